/* Ops of one shape: one input, or a gradient with the value it belongs to (the rows of map.def).
 * bf16 and f16 are computed in f32, a block at a time, so that the f32 copies stay in the first
 * cache; costly curves of large bf16 tensors are looked up (curve_table.h). Called through the op
 * table (kernels.h). */
#include "kernels/cpu/curve_table.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

#include "tensor/device.h"

enum { GRAIN = 1024 };

typedef struct map_job {
    void (*unary)(const float *x, float *y, int64_t n, float p0, float p1);
    /* NULL: unary */
    void (*pair)(const float *a, const float *b, float *y, int64_t n, float p0, float p1);
    const void *a, *b;
    void *y;
    float p0, p1;
    void (*widen)(const uint16_t *x, float *y, int64_t n); /* NULL: all is f32 */
    void (*narrow)(const float *x, uint16_t *y, int64_t n);
    int id;                 /* of the unary or the pair */
    const uint16_t *values; /* tables, of the ranges below that use them */
    const float *slopes;
} map_job;

static void apply(const map_job *j, const float *a, const float *b, float *y, int64_t n)
{
    if (j->pair == NULL) {
        j->unary(a, y, n, j->p0, j->p1);
    } else {
        j->pair(a, b, y, n, j->p0, j->p1);
    }
}

static void f32_range(const void *job, int64_t begin, int64_t end)
{
    const map_job *j = job;
    const float *a = j->a, *b = j->b;
    apply(j, a + begin, b + begin, (float *)j->y + begin, end - begin);
}

static void low_range(const void *job, int64_t begin, int64_t end)
{
    const map_job *j = job;
    const uint16_t *from_a = j->a, *from_b = j->b;
    float a[GRAIN], b[GRAIN], y[GRAIN];
    for (int64_t i = begin; i < end; i += GRAIN) {
        const int64_t n = end - i < GRAIN ? end - i : GRAIN;
        j->widen(from_a + i, a, n);
        if (j->pair != NULL) {
            j->widen(from_b + i, b, n);
        }
        apply(j, a, b, y, n);
        j->narrow(y, (uint16_t *)j->y + i, n);
    }
}

static void values_range(const void *job, int64_t begin, int64_t end)
{
    const map_job *j = job;
    const uint16_t *restrict x = j->a, *restrict values = j->values;
    uint16_t *restrict y = j->y;
    for (int64_t i = begin; i < end; i++) {
        y[i] = values[x[i]];
    }
}

/* dy f'(k) */
static void slopes_range(const void *job, int64_t begin, int64_t end)
{
    const map_job *j = job;
    const uint16_t *from_dy = j->a, *from_k = j->b;
    float dy[GRAIN], slope[GRAIN], dx[GRAIN];
    for (int64_t i = begin; i < end; i += GRAIN) {
        const int64_t n = end - i < GRAIN ? end - i : GRAIN;
        j->widen(from_dy + i, dy, n);
        for (int64_t e = 0; e < n; e++) {
            slope[e] = j->slopes[from_k[i + e]];
        }
        lvni_cpu_isa()->binary[LVNI_ELEM_F32][LVNI_BINARY_mul][LVNI_VV](dy, slope, dx, n);
        j->narrow(dx, (uint16_t *)j->y + i, n);
    }
}

static lvni_cpu_range_fn low_loop(map_job *j, lvn_dtype dtype, int64_t n)
{
    if (dtype != LVN_BF16 || n < LVNI_CURVE_NUMBERS || lvni_tensor_device_dry_run()) {
        return low_range;
    }
    if (j->pair == NULL) {
        j->values = lvni_cpu_curve_values((lvni_cpu_unary_id)j->id);
        return j->values != NULL ? values_range : low_range;
    }
    j->slopes = lvni_cpu_curve_slopes((lvni_cpu_pair_id)j->id);
    return j->slopes != NULL ? slopes_range : low_range;
}

/* Those that compare and choose: a denormal is neither 0 nor of no sign. */
static lvni_tensor_fp_mode mode_of(const map_job *j)
{
    static const bool unary[LVNI_UNARY_COUNT] = {
        [LVNI_UNARY_sign] = true, [LVNI_UNARY_round] = true, [LVNI_UNARY_floor] = true,
        [LVNI_UNARY_ceil] = true, [LVNI_UNARY_relu] = true,  [LVNI_UNARY_leaky_relu] = true,
        [LVNI_UNARY_clamp] = true};
    static const bool pair[LVNI_PAIR_COUNT] = {[LVNI_PAIR_abs_grad] = true,
                                               [LVNI_PAIR_relu_grad] = true,
                                               [LVNI_PAIR_leaky_relu_grad] = true,
                                               [LVNI_PAIR_clamp_grad] = true};
    return (j->pair == NULL ? unary : pair)[j->id] ? LVNI_FP_EXACT : LVNI_FP_FLUSH;
}

static lvn_status map(const lvn_kernel_args *args, map_job *j)
{
    const lvni_cpu_vec *isa = lvni_cpu_isa();
    const lvn_dtype dtype = args->in[0]->dtype;
    j->a = args->in[0]->data;
    j->b = j->pair == NULL ? j->a : args->in[1]->data;
    j->y = args->out[0]->data;
    j->widen = dtype == LVN_BF16 ? isa->from_bf16 : isa->from_f16;
    j->narrow = dtype == LVN_BF16 ? isa->to_bf16 : isa->to_f16;
    const int64_t n = lvn_numel(args->out[0]);
    lvni_cpu_par_in(mode_of(j), n, GRAIN, 1,
                    lvni_tensor_is_low(dtype) ? low_loop(j, dtype, n) : f32_range, j);
    return LVN_OK;
}

#define LVNI_UNARY(op, expression)                                                                 \
    lvn_status lvni_cpu_##op(const lvn_kernel_args *args)                                          \
    {                                                                                              \
        map_job j = {.unary = lvni_cpu_isa()->unary[LVNI_UNARY_##op], .id = LVNI_UNARY_##op};      \
        return map(args, &j);                                                                      \
    }
#define LVNI_UNARY_ATTR(op, attr_type, first, second, expression)                                  \
    lvn_status lvni_cpu_##op(const lvn_kernel_args *args)                                          \
    {                                                                                              \
        const attr_type *attr = args->attr;                                                        \
        map_job j = {.unary = lvni_cpu_isa()->unary[LVNI_UNARY_##op],                              \
                     .id = LVNI_UNARY_##op,                                                        \
                     .p0 = (float)attr->first,                                                     \
                     .p1 = (float)attr->second};                                                   \
        return map(args, &j);                                                                      \
    }
#define LVNI_PAIR(op, expression)                                                                  \
    lvn_status lvni_cpu_##op(const lvn_kernel_args *args)                                          \
    {                                                                                              \
        map_job j = {.pair = lvni_cpu_isa()->pair[LVNI_PAIR_##op], .id = LVNI_PAIR_##op};          \
        return map(args, &j);                                                                      \
    }
#define LVNI_PAIR_ATTR(op, attr_type, first, second, expression)                                   \
    lvn_status lvni_cpu_##op(const lvn_kernel_args *args)                                          \
    {                                                                                              \
        const attr_type *attr = args->attr;                                                        \
        map_job j = {.pair = lvni_cpu_isa()->pair[LVNI_PAIR_##op],                                 \
                     .id = LVNI_PAIR_##op,                                                         \
                     .p0 = (float)attr->first,                                                     \
                     .p1 = (float)attr->second};                                                   \
        return map(args, &j);                                                                      \
    }
#include "kernels/map.def"
