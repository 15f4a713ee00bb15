/* Ops of two operands with broadcasting (map.def), comparisons of i64, and expand. Called through
 * the op table (kernels.h).
 *
 * Axes that behave alike are joined first: most pairs of shapes become one or two axes. The last
 * joined axis is the inner loop (array with array, array with value, value with array); the others
 * are walked. Short inner rows that repeat down the table (a bias over few channels) are repeated
 * into a longer row, so that vectors are full. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"
#include "tensor/device.h"

#include <string.h>

typedef struct walk {
    int ndim;
    int64_t size[LVN_MAX_NDIM];
    int64_t step_a[LVN_MAX_NDIM], step_b[LVN_MAX_NDIM]; /* elements; 0 where broadcast */
} walk;

typedef struct binary_job {
    walk w; /* outer axes, without the inner one */
    lvni_cpu_binary_fn fn;
    lvni_tensor_fp_mode mode;
    const char *a, *b;
    char *y;
    size_t bytes, bytes_y; /* of an element of a and b, and of y */
    int64_t inner, copies; /* copies > 1: so many rows at once, of the repeated b */
} binary_job;

/* Steps of an operand in the shape of the result. */
static void operand_steps(const lvn_tensor *t, int ndim, int64_t step[LVN_MAX_NDIM])
{
    int64_t run = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        const int own = i - (ndim - t->ndim);
        const int64_t size = own >= 0 ? t->shape[own] : 1;
        step[i] = size == 1 ? 0 : run;
        run *= size;
    }
}

static walk join_axes(const lvn_tensor *a, const lvn_tensor *b, const lvn_tensor *y)
{
    int64_t step_a[LVN_MAX_NDIM] = {0}, step_b[LVN_MAX_NDIM] = {0};
    operand_steps(a, y->ndim, step_a);
    operand_steps(b, y->ndim, step_b);
    walk w = {0};
    for (int i = 0; i < y->ndim; i++) {
        if (y->shape[i] == 1) {
            continue;
        }
        const int last = w.ndim - 1;
        const bool alike = last >= 0 && (w.step_a[last] == 0) == (step_a[i] == 0) &&
                           (w.step_b[last] == 0) == (step_b[i] == 0);
        const int at = alike ? last : w.ndim++;
        w.size[at] = alike ? w.size[at] * y->shape[i] : y->shape[i];
        w.step_a[at] = step_a[i];
        w.step_b[at] = step_b[i];
    }
    return w;
}

/* Offsets of outer item `item`. */
static void locate(const walk *w, int64_t item, int64_t *off_a, int64_t *off_b)
{
    *off_a = *off_b = 0;
    for (int i = w->ndim - 1; i >= 0; i--) {
        const int64_t at = item % w->size[i];
        item /= w->size[i];
        *off_a += at * w->step_a[i];
        *off_b += at * w->step_b[i];
    }
}

static void rows_range(const void *job, int64_t begin, int64_t end)
{
    const binary_job *j = job;
    for (int64_t item = begin; item < end; item++) {
        int64_t a, b;
        locate(&j->w, item, &a, &b);
        j->fn(j->a + (size_t)a * j->bytes, j->b + (size_t)b * j->bytes,
              j->y + (size_t)(item * j->inner) * j->bytes_y, j->inner);
    }
}

static void flat_range(const void *job, int64_t begin, int64_t end)
{
    const binary_job *j = job;
    const bool walk_a = j->w.step_a[0] != 0, walk_b = j->w.step_b[0] != 0;
    const size_t at = (size_t)begin * j->bytes;
    j->fn(j->a + (walk_a ? at : 0), j->b + (walk_b ? at : 0), j->y + (size_t)begin * j->bytes_y,
          end - begin);
}

/* (rows, inner) with b (inner), repeated `copies` times in scratch. */
static void repeated_range(const void *job, int64_t begin, int64_t end)
{
    const binary_job *j = job;
    for (int64_t r = begin; r < end; r += j->copies) {
        const int64_t rows = end - r < j->copies ? end - r : j->copies;
        j->fn(j->a + (size_t)(r * j->inner) * j->bytes, j->b,
              j->y + (size_t)(r * j->inner) * j->bytes_y, rows * j->inner);
    }
}

static lvn_status repeated(binary_job *job, int64_t rows)
{
    enum { LONG = 1024 };
    job->copies = LONG / job->inner;
    const size_t bytes = (size_t)job->inner * job->bytes;
    char *row = lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)job->copies * bytes);
    if (row == NULL || lvni_tensor_device_dry_run()) {
        return row == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    for (int64_t i = 0; i < job->copies; i++) {
        memcpy(row + (size_t)i * bytes, job->b, bytes);
    }
    job->b = row;
    lvni_cpu_par_in(job->mode, rows, job->copies, job->inner, repeated_range, job);
    return LVN_OK;
}

/* Of add, the one op whose result may be its first input: a += b, of one shape. */
static void add_in_place(const void *a, const void *b, void *y, int64_t n)
{
    (void)a;
    lvni_cpu_isa()->accumulate(y, b, n);
}

static void add_in_place_bf16(const void *a, const void *b, void *y, int64_t n)
{
    (void)a;
    lvni_cpu_isa()->accumulate_bf16(y, b, n);
}

/* modes: one function per lvni_cpu_binary_mode */
static lvn_status binary(const lvn_kernel_args *args, const lvni_cpu_binary_fn *modes,
                         lvni_tensor_fp_mode mode)
{
    const lvn_tensor *a = args->in[0], *b = args->in[1], *y = args->out[0];
    const int64_t n = lvn_numel(y);
    if (n == 0) {
        return LVN_OK;
    }
    binary_job job = {.w = join_axes(a, b, y),
                      .mode = mode,
                      .a = a->data,
                      .b = b->data,
                      .y = y->data,
                      .bytes = lvn_dtype_size(a->dtype),
                      .bytes_y = lvn_dtype_size(y->dtype)};
    if (job.w.ndim == 0) { /* one element: array with array of length 1 */
        job.fn = modes[LVNI_VV];
        lvni_cpu_par_in(mode, 1, 1, 1, flat_range, &job);
        return LVN_OK;
    }
    const int last = job.w.ndim - 1;
    const bool walk_a = job.w.step_a[last] != 0, walk_b = job.w.step_b[last] != 0;
    job.fn = modes[!walk_b ? LVNI_VS : !walk_a ? LVNI_SV : LVNI_VV];
    if (y->data == a->data) {
        job.fn = y->dtype == LVN_BF16 ? add_in_place_bf16 : add_in_place;
    }
    job.inner = job.w.size[last];
    if (last == 0) {
        enum { GRAIN = 1024 };
        lvni_cpu_par_in(mode, n, GRAIN, 1, flat_range, &job);
        return LVN_OK;
    }
    if (last == 1 && walk_a && walk_b && job.w.step_b[0] == 0 && job.inner < 64) {
        return repeated(&job, job.w.size[0]);
    }
    job.w.ndim = last;
    lvni_cpu_par_in(mode, n / job.inner, 1, job.inner, rows_range, &job);
    return LVN_OK;
}

static lvni_cpu_elem elem_of(const lvn_tensor *t)
{
    return t->dtype == LVN_BF16 ? LVNI_ELEM_BF16 : LVNI_ELEM_F32;
}

/* Those that choose see denormals as they are; arithmetic takes them for 0. */
static lvni_tensor_fp_mode mode_of(int id)
{
    const bool chooses =
        id == LVNI_BINARY_minimum || id == LVNI_BINARY_maximum || id == LVNI_BINARY_share;
    return chooses ? LVNI_FP_EXACT : LVNI_FP_FLUSH;
}

/* ---- i64: labels and indices are compared, too ---- */

#define INT_MODE(op, mode, at_a, at_b, condition)                                                  \
    static void int_##op##_##mode(const void *left, const void *right, void *result, int64_t n)    \
    {                                                                                              \
        const int64_t *in_a = left, *in_b = right;                                                 \
        uint8_t *y = result;                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const int64_t a = in_a[at_a], b = in_b[at_b];                                          \
            y[i] = (condition);                                                                    \
        }                                                                                          \
    }

#define LVNI_BINARY(op, expression)                                                                \
    lvn_status lvni_cpu_##op(const lvn_kernel_args *args)                                          \
    {                                                                                              \
        return binary(args, lvni_cpu_isa()->binary[elem_of(args->in[0])][LVNI_BINARY_##op],        \
                      mode_of(LVNI_BINARY_##op));                                                  \
    }
#define LVNI_COMPARE(op, condition)                                                                \
    INT_MODE(op, vv, i, i, condition)                                                              \
    INT_MODE(op, vs, i, 0, condition)                                                              \
    INT_MODE(op, sv, 0, i, condition)                                                              \
    lvn_status lvni_cpu_##op(const lvn_kernel_args *args)                                          \
    {                                                                                              \
        static const lvni_cpu_binary_fn of_int[] = {                                               \
            [LVNI_VV] = int_##op##_vv, [LVNI_VS] = int_##op##_vs, [LVNI_SV] = int_##op##_sv};      \
        return binary(args,                                                                        \
                      args->in[0]->dtype == LVN_I64 ? of_int                                       \
                                                    : lvni_cpu_isa()->compare[LVNI_COMPARE_##op],  \
                      LVNI_FP_EXACT);                                                              \
    }
#include "kernels/map.def"

/* ---- expand ---- */

static void expand_range(const void *job, int64_t begin, int64_t end)
{
    const binary_job *j = job;
    const int last = j->w.ndim;
    for (int64_t item = begin; item < end; item++) {
        int64_t a, unused;
        locate(&j->w, item, &a, &unused);
        const float *x = (const float *)(const void *)j->a + a;
        float *y = (float *)(void *)j->y + item * j->inner;
        if (j->w.step_a[last] != 0) {
            memcpy(y, x, (size_t)j->inner * sizeof *y);
        } else {
            for (int64_t i = 0; i < j->inner; i++) {
                y[i] = *x;
            }
        }
    }
}

lvn_status lvni_cpu_expand(const lvn_kernel_args *args)
{
    const lvn_tensor *x = args->in[0];
    binary_job job = {.w = join_axes(x, x, args->out[0]), .a = x->data, .y = args->out[0]->data};
    const int64_t n = lvn_numel(args->out[0]);
    if (job.w.ndim == 0 || n == 0) {
        memcpy(job.y, job.a, (size_t)n * sizeof(float));
        return LVN_OK;
    }
    job.w.ndim--; /* the last joined axis is the inner loop; its steps stay behind the outer ones */
    job.inner = job.w.size[job.w.ndim];
    lvni_cpu_par(n / job.inner, 1, job.inner, expand_range, &job);
    return LVN_OK;
}
