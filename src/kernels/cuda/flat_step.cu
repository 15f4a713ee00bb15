/* Flat buffers: sums and averages, running statistics, queues, and the step block. */
#include "flat.cuh"

/* ---- sums and averages ---- */

namespace
{

struct nothing {
};

struct add {
    enum { BUFFERS = 2, WRITTEN = 1, SUMMED = 0 }; /* a, b */
    typedef nothing settings;
    __device__ bool begin(const settings &)
    {
        return true;
    }
    __device__ float one(float x[2]) const
    {
        x[0] += x[1];
        return 0.0f;
    }
};

struct lerp_settings {
    float t;
    const lvn_step_average *step;
};

struct lerp {
    enum { BUFFERS = 2, WRITTEN = 1, SUMMED = 0 }; /* a, b */
    typedef lerp_settings settings;
    float t;
    bool copies;
    __device__ bool begin(const settings &p)
    {
        t = p.step == NULL ? p.t : (float)p.step->factor;
        copies = p.step != NULL && p.step->copies != 0;
        return p.step == NULL || p.step->updated != 0;
    }
    __device__ float one(float x[2]) const
    {
        const float a = x[0], b = x[1];
        x[0] = copies ? b : a == b ? a : a + t * (b - a); /* -0 stays, too */
        return 0.0f;
    }
};

struct squares {
    enum { BUFFERS = 1, WRITTEN = 0, SUMMED = 1 };
    typedef nothing settings;
    __device__ bool begin(const settings &)
    {
        return true;
    }
    __device__ float one(float x[1]) const
    {
        return x[0];
    }
};

struct round_to_bf16 {
    enum { BUFFERS = 1, WRITTEN = 1, SUMMED = 0 };
    typedef nothing settings;
    __device__ bool begin(const settings &)
    {
        return true;
    }
    __device__ float one(float x[1]) const
    {
        x[0] = to_float(from_float<bf16>(x[0]));
        return 0.0f;
    }
};

} // namespace

lvn_status lvnc_flat_add(void *stream, float *a, const float *b, int64_t n)
{
    return flat_run<add>(stream, "flat.add", nothing(), {{a, flat_read(b)}}, n);
}

lvn_status lvnc_flat_lerp(void *stream, float *a, const float *b, float t, int64_t n,
                          const lvn_step_average *step)
{
    const lerp_settings p = {t, step};
    return flat_run<lerp>(stream, "flat.lerp", p, {{a, flat_read(b)}}, n);
}

lvn_status lvnc_flat_block_sumsq(void *stream, const float *g, int64_t n, double *partial)
{
    return flat_run<squares>(stream, "flat.block_sumsq", nothing(), {{flat_read(g)}}, n, partial);
}

lvn_status lvnc_flat_round_bf16(void *stream, float *w, int64_t n)
{
    return flat_run<round_to_bf16>(stream, "flat.round_bf16", nothing(), {{w}}, n);
}

/* ---- running statistics ---- */

static __global__ void set_record(float *record, const float *value, int64_t n, float weight)
{
    FOR_GRID (i, n + 1) {
        record[i] = i < n ? weight * value[i] : weight;
    }
}

lvn_status lvnc_flat_record(void *stream, float *record, const float *value, int64_t n,
                            float weight)
{
    return launch(stream, "flat.record", set_record, blocks_for(n + 1, 256), 256, 0, record, value,
                  n, weight);
}

static __global__ void follow_record(float *buffer, const float *record, int64_t n, lvn_flat_mean p)
{
    const bool goes = lvn_flat_mean_resolve(&p);
    const float weight = goes ? record[n] : 0.0f;
    const float momentum = (float)p.momentum, keep = (float)(1.0 - p.momentum);
    if (weight > 0.0f) { /* else no micro-batch pushed anything */
        FOR_GRID (i, n) {
            buffer[i] = keep * buffer[i] + momentum * (record[i] / weight);
        }
    }
}

lvn_status lvnc_flat_apply_record(void *stream, float *buffer, const float *record, int64_t n,
                                  const lvn_flat_mean *p)
{
    return launch(stream, "flat.apply_record", follow_record, blocks_for(n, 256), 256, 0, buffer,
                  record, n, *p);
}

/* ---- queues ---- */

/* Rows of a slot of the record: no more than there is room for. */
__device__ static inline int64_t rows_of_slot(const float *record, const lvn_flat_append &p,
                                              int64_t slot)
{
    const float count = record[p.slots * p.slot_rows * p.width + 1 + slot],
                most = (float)p.slot_rows;
    return count > 0.0f ? (int64_t)ceilf(count < most ? count : most) : 0;
}

/* A place that a file may have brought. */
__device__ static inline int64_t place_of(const float *next, const lvn_flat_append &p)
{
    return *next >= 0.0f && *next < (float)p.rows ? (int64_t)*next : 0;
}

/* A block has row blockIdx.x of the record. Of rows that go to one place the last one does. */
static __global__ void append_rows(float *queue, float *filled, const float *next,
                                   const float *record, lvn_flat_append p)
{
    if (p.step != NULL && p.step->updated == 0) {
        return;
    }
    const int64_t row = blockIdx.x, slot = row / p.slot_rows;
    int64_t before = row % p.slot_rows, all = 0; /* rows before this one; of the step */
    const bool there = before < rows_of_slot(record, p, slot);
    for (int64_t i = 0; i < p.slots; i++) {
        const int64_t rows = rows_of_slot(record, p, i);
        before += i < slot ? rows : 0;
        all += rows;
    }
    if (!there || before + p.rows < all) {
        return;
    }
    const int64_t to = (place_of(next, p) + before) % p.rows;
    for (int64_t i = threadIdx.x; i < p.width; i += blockDim.x) {
        queue[to * p.width + i] = record[row * p.width + i];
    }
    if (threadIdx.x == 0) {
        filled[to] = 1.0f;
    }
}

static __global__ void append_next(float *next, const float *record, lvn_flat_append p)
{
    if (threadIdx.x == 0 && (p.step == NULL || p.step->updated != 0)) {
        int64_t at = place_of(next, p);
        for (int64_t i = 0; i < p.slots; i++) {
            at = (at + rows_of_slot(record, p, i)) % p.rows;
        }
        *next = (float)at;
    }
}

lvn_status lvnc_flat_append(void *stream, float *queue, float *filled, float *next,
                            const float *record, const lvn_flat_append *p)
{
    LVN_TRY(launch(stream, "flat.append", append_rows, blocks_for(p->slots * p->slot_rows, 1), 128,
                   0, queue, filled, next, record, *p));
    return launch(stream, "flat.append", append_next, p->slots > 0 ? 1 : 0, 32, 0, next, record,
                  *p);
}

/* ---- numbers ---- */

__device__ static inline double number_at(const void *p, lvn_dtype dtype)
{
    switch (dtype) {
    case LVN_F32: return (double)*static_cast<const float *>(p);
    case LVN_F64: return *static_cast<const double *>(p);
    case LVN_I64: return (double)*static_cast<const int64_t *>(p);
    case LVN_I32: return (double)*static_cast<const int32_t *>(p);
    case LVN_U8:
    case LVN_BOOL: return (double)*static_cast<const uint8_t *>(p);
    case LVN_BF16: return (double)to_float(*static_cast<const bf16 *>(p));
    case LVN_F16: return (double)to_float(*static_cast<const f16 *>(p));
    default: return (double)NAN;
    }
}

__device__ static inline void set_number(void *p, lvn_dtype dtype, double x)
{
    switch (dtype) {
    case LVN_F32: *static_cast<float *>(p) = (float)x; break;
    case LVN_F64: *static_cast<double *>(p) = x; break;
    case LVN_I64: *static_cast<int64_t *>(p) = (int64_t)x; break;
    case LVN_I32: *static_cast<int32_t *>(p) = (int32_t)x; break;
    case LVN_U8:
    case LVN_BOOL: *static_cast<uint8_t *>(p) = (uint8_t)x; break;
    case LVN_BF16: *static_cast<bf16 *>(p) = from_float<bf16>((float)x); break;
    case LVN_F16: *static_cast<f16 *>(p) = from_float<f16>((float)x); break;
    default: break;
    }
}

static __global__ void get_number(double *slot, const void *value, lvn_dtype dtype)
{
    if (threadIdx.x == 0) {
        *slot = number_at(value, dtype);
    }
}

lvn_status lvnc_flat_number(void *stream, double *slot, const void *value, lvn_dtype dtype)
{
    return launch(stream, "flat.number", get_number, 1, 32, 0, slot, value, dtype);
}

static __global__ void set_seed(void *value, lvn_dtype dtype, double number, const double *weight,
                                const double *factor)
{
    if (threadIdx.x == 0) {
        number *= weight != NULL ? *weight : 1.0;
        set_number(value, dtype, number * (factor != NULL ? *factor : 1.0));
    }
}

lvn_status lvnc_flat_seed(void *stream, void *value, lvn_dtype dtype, double number,
                          const double *weight, const double *factor)
{
    return launch(stream, "flat.seed", set_seed, 1, 32, 0, value, dtype, number, weight, factor);
}

/* ---- the step block ----
 * Kernels cannot be left out after one that raised: these two are, so that the step updates nothing
 * and does not count. */

static __global__ void __launch_bounds__(1024, 1)
    decide(lvn_step_block *block, double *sums, int64_t n, const double *losses,
           lvn_step_decision d, const int *raised)
{
    if (*raised != 0) {
        return;
    }
    const double sum = flat_sum_pairs(sums, n);
    if (threadIdx.x == 0) {
        const double t = lvn_step_t(block, d.phase), power1 = pow(lvn_step_beta1(block, &d), t),
                     power2 = pow(d.beta2, t);
        lvn_step_decide(block, sqrt(sum), power1, power2, losses, &d);
    }
}

lvn_status lvnc_flat_decide(void *stream, lvn_step_block *block, double *sums, int64_t n,
                            const double *losses, const lvn_step_decision *decision)
{
    return launch(stream, "flat.decide", decide, 1, flat_adders(n), 0, block, sums, n, losses,
                  *decision, lvnc_raised(stream));
}

static __global__ void finish(lvn_step_block *block, const int *raised)
{
    if (threadIdx.x == 0 && *raised == 0) {
        lvn_step_finish(block);
    }
}

lvn_status lvnc_flat_finish(void *stream, lvn_step_block *block)
{
    return launch(stream, "flat.finish", finish, 1, 32, 0, block, lvnc_raised(stream));
}
