/* Flat buffers: Adafactor, of one whole tensor. Its launches: the averages of squares; of each
 * block of the tensor the sums of squares of w and of u; these sums added up; the step. */
#include "flat.cuh"

static const char *const WHAT = "flat.adafactor";

/* Of the call's scratch memory. */
struct sums_of {
    double *w, *u; /* of each block; added up: the first ones */
    double *mean;  /* of each matrix: of its row_var, at least eps1 */
    int64_t blocks;
};

/* ---- averages of squares ---- */

namespace
{

struct follow_squares {                            /* one axis */
    enum { BUFFERS = 2, WRITTEN = 1, SUMMED = 0 }; /* row_var, g */
    typedef lvn_flat_adafactor settings;
    float scale, share;
    __device__ bool begin(settings p)
    {
        const bool goes = lvn_flat_adafactor_resolve(&p);
        scale = (float)p.grad_scale;
        share = (float)pow(p.t, p.beta2_decay);
        return goes;
    }
    __device__ float one(float x[2]) const
    {
        const float g = x[1] * scale;
        x[0] += share * (g * g - x[0]);
        return 0.0f;
    }
};

struct mean_numbers { /* as members of follow_squares, of a mean */
    typedef lvn_flat_adafactor settings;
    double scale, least;
    float share;
    __device__ bool begin(settings p)
    {
        const bool goes = lvn_flat_adafactor_resolve(&p);
        scale = p.grad_scale * p.grad_scale;
        least = p.eps1;
        share = (float)pow(p.t, p.beta2_decay);
        return goes;
    }
};

} // namespace

/* x is (items, y, z). Of its squares the means over y: `average` (items, z) goes a share of the way
 * to them. Or of its elements, then they become `mean`. A block has `wide` neighbours of an item,
 * and FLAT_THREADS / wide threads for each: thread t adds those of rows t, t + that many, and so
 * on. */
template <bool SQUARES>
static __global__ void take_means(lvn_flat_adafactor given, const float *x, float *average,
                                  double *mean, int64_t items, int64_t y, int64_t z, int wide)
{
    mean_numbers numbers;
    SHARED(double, part, FLAT_THREADS);
    if (!flat_begin<mean_numbers>(given, &numbers)) {
        return;
    }
    const int own = (int)threadIdx.x, rows = FLAT_THREADS / wide, row = own / wide;
    const int64_t chunks = (z + wide - 1) / wide;
    for (int64_t b = blockIdx.x; b < items * chunks; b += gridDim.x) {
        const int64_t item = b / chunks, at = b % chunks * wide + own % wide;
        double sum = 0.0;
        for (int64_t r = row; r < y && at < z; r += rows) {
            const double v = (double)x[(item * y + r) * z + at];
            sum += SQUARES ? v * v : v;
        }
        part[own] = sum;
        __syncthreads();
        for (int half = rows / 2; half > 0; half /= 2) {
            if (row < half) {
                part[own] += part[own + half * wide];
            }
            __syncthreads();
        }
        if (row == 0 && at < z) {
            sum = part[own];
            if (SQUARES) {
                float *to = average + item * z + at;
                *to += numbers.share * ((float)(sum * numbers.scale / (double)y) - *to);
            } else {
                sum /= (double)y;
                mean[item * z + at] = sum > numbers.least ? sum : numbers.least;
            }
        }
    }
}

/* The neighbours of a block: a power of two, 32 at most. */
static int width_of(int64_t z)
{
    int wide = 1;
    while (wide < 32 && wide < z) {
        wide *= 2;
    }
    return wide;
}

static unsigned mean_blocks(int64_t items, int64_t z)
{
    return blocks_for(items * ((z + width_of(z) - 1) / width_of(z)), 1);
}

static lvn_status follow(void *stream, const float *g, float *row_var, float *col_var, int64_t n,
                         const sums_of &sums, const lvn_flat_adafactor &p)
{
    if (col_var == NULL) {
        return flat_run<follow_squares>(stream, WHAT, p, {{row_var, flat_read(g)}}, n);
    }
    const int64_t z = p.cols * p.inner;
    LVN_TRY(launch(stream, WHAT, take_means<true>, mean_blocks(p.outer * p.rows, p.inner),
                   FLAT_THREADS, 0, p, g, row_var, NULL, p.outer * p.rows, p.cols, p.inner,
                   width_of(p.inner)));
    LVN_TRY(launch(stream, WHAT, take_means<true>, mean_blocks(p.outer, z), FLAT_THREADS, 0, p, g,
                   col_var, NULL, p.outer, p.rows, z, width_of(z)));
    return launch(stream, WHAT, take_means<false>, mean_blocks(p.outer, p.inner), FLAT_THREADS, 0,
                  p, row_var, NULL, sums.mean, p.outer, p.rows, p.inner, width_of(p.inner));
}

/* ---- the step ---- */

/* Where v comes from. INDEX holds the number of elements. */
template <typename INDEX> struct variance {
    const float *row_var, *col_var;
    const double *mean;
    INDEX rows, cols, inner;
    __device__ float of(int64_t element) const
    {
        if (col_var == NULL) {
            return row_var[element];
        }
        const INDEX i = (INDEX)element, k = i % inner, c = i / inner % cols, row = i / inner / cols,
                    outer = row / rows;
        return row_var[(int64_t)row * inner + k] / (float)mean[(int64_t)outer * inner + k] *
               col_var[((int64_t)outer * cols + c) * inner + k];
    }
};

namespace
{

struct step_numbers {
    struct settings {
        lvn_flat_adafactor p;
        const double *of_w, *of_u; /* sums, NULL: they are not known yet */
        int64_t n;
    };
    float scale, least, keep, rate;
    __device__ bool begin(settings s)
    {
        const bool goes = lvn_flat_adafactor_resolve(&s.p);
        scale = (float)s.p.grad_scale;
        least = lvn_flat_adafactor_least(&s.p);
        keep = (float)(1.0 - s.p.lr * s.p.weight_decay);
        rate = s.of_w == NULL
                   ? 0.0f
                   : (float)lvn_flat_adafactor_rate(sqrt(*s.of_w), sqrt(*s.of_u), sqrt((double)s.n),
                                                    sqrt(s.p.t), &s.p);
        return goes;
    }
    __device__ float direction(float g, float v) const
    {
        return g * scale / sqrtf(v < least ? least : v); /* a NaN stays */
    }
};

} // namespace

template <typename INDEX>
static __global__ void sum_squares(step_numbers::settings given, const float *w, const float *g,
                                   variance<INDEX> v, sums_of sums)
{
    step_numbers numbers;
    if (!flat_begin<step_numbers>(given, &numbers)) {
        return;
    }
    const int64_t first = (int64_t)blockIdx.x * LVN_FLAT_BLOCK,
                  end = first + flat_here(given.n - first);
    double of_w = 0.0, of_u = 0.0;
    for (int64_t i = first + threadIdx.x; i < end; i += FLAT_THREADS) {
        const double u = (double)numbers.direction(g[i], v.of(i));
        of_w += (double)w[i] * (double)w[i];
        of_u += u * u;
    }
    of_w = block_sum(of_w);
    of_u = block_sum(of_u);
    if (threadIdx.x == 0) {
        sums.w[blockIdx.x] = of_w;
        sums.u[blockIdx.x] = of_u;
    }
}

/* Block 0: of w, block 1: of u. */
static __global__ void __launch_bounds__(1024, 1) add_sums(lvn_flat_adafactor p, sums_of sums)
{
    if (lvn_flat_adafactor_resolve(&p)) {
        (void)flat_sum_pairs(blockIdx.x == 0 ? sums.w : sums.u, sums.blocks);
    }
}

template <typename INDEX>
static __global__ void step(step_numbers::settings given, float *w, const float *g,
                            variance<INDEX> v)
{
    step_numbers numbers;
    if (!flat_begin<step_numbers>(given, &numbers)) {
        return;
    }
    const int64_t first = (int64_t)blockIdx.x * LVN_FLAT_BLOCK,
                  end = first + flat_here(given.n - first);
    for (int64_t i = first + threadIdx.x; i < end; i += FLAT_THREADS) {
        w[i] = w[i] * numbers.keep - numbers.rate * numbers.direction(g[i], v.of(i));
    }
}

template <typename INDEX>
static lvn_status run_step(void *stream, float *w, const float *g, const float *row_var,
                           const float *col_var, int64_t n, const sums_of &sums,
                           const lvn_flat_adafactor &p)
{
    variance<INDEX> v = {row_var, col_var, sums.mean, 1, 1, 1};
    if (col_var != NULL) {
        v.rows = (INDEX)p.rows;
        v.cols = (INDEX)p.cols;
        v.inner = (INDEX)p.inner;
    }
    step_numbers::settings s = {p, NULL, NULL, n};
    const unsigned blocks = blocks_for(n, LVN_FLAT_BLOCK);
    LVN_TRY(launch(stream, WHAT, sum_squares<INDEX>, blocks, FLAT_THREADS, 0, s, w, g, v, sums));
    LVN_TRY(launch(stream, WHAT, add_sums, 2, flat_adders(sums.blocks), 0, p, sums));
    s.of_w = sums.w;
    s.of_u = sums.u;
    return launch(stream, WHAT, step<INDEX>, blocks, FLAT_THREADS, 0, s, w, g, v);
}

lvn_status lvnc_flat_adafactor(void *stream, float *w, const float *g, float *row_var,
                               float *col_var, int64_t n, const lvn_flat_adafactor *p)
{
    if (n == 0) {
        return LVN_OK;
    }
    const int64_t blocks = (n + LVN_FLAT_BLOCK - 1) / LVN_FLAT_BLOCK;
    const sums_of sums = {p->scratch, p->scratch + blocks, p->scratch + 2 * blocks, blocks};
    LVN_TRY(follow(stream, g, row_var, col_var, n, sums, *p));
    return n < INT32_MAX ? run_step<uint32_t>(stream, w, g, row_var, col_var, n, sums, *p)
                         : run_step<int64_t>(stream, w, g, row_var, col_var, n, sums, *p);
}
