/* where: an element of one tensor or of another, with broadcasting of all three. Called through the
 * op table (kernels.h). */
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

typedef struct where_job {
    int ndim; /* joined axes; the last one is the inner loop */
    int64_t size[LVN_MAX_NDIM];
    int64_t step[3][LVN_MAX_NDIM]; /* of condition, a, b in elements; 0 where broadcast */
    size_t bytes;
    const uint8_t *condition;
    const char *a, *b;
    char *y;
} where_job;

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

/* Neighbouring axes that all three walk alike become one. */
static void join_axes(const lvn_kernel_args *args, where_job *j)
{
    const lvn_tensor *y = args->out[0];
    int64_t step[3][LVN_MAX_NDIM] = {{0}};
    for (int k = 0; k < 3; k++) {
        operand_steps(args->in[k], y->ndim, step[k]);
    }
    for (int i = 0; i < y->ndim; i++) {
        const int last = j->ndim - 1;
        bool alike = last >= 0;
        for (int k = 0; alike && k < 3; k++) {
            alike = (j->step[k][last] == 0) == (step[k][i] == 0);
        }
        if (y->shape[i] == 1) {
            continue;
        }
        const int at = alike ? last : j->ndim++;
        j->size[at] = alike ? j->size[at] * y->shape[i] : y->shape[i];
        for (int k = 0; k < 3; k++) {
            j->step[k][at] = step[k][i];
        }
    }
    if (j->ndim == 0) {
        j->size[j->ndim++] = 1;
    }
}

/* n elements; steps are 0 or 1. */
#define PICK(bits)                                                                                 \
    static void pick_##bits(const uint8_t *c, int64_t sc, const void *left, int64_t sa,            \
                            const void *right, int64_t sb, void *result, int64_t n)                \
    {                                                                                              \
        const uint##bits##_t *restrict a = left, *restrict b = right;                              \
        uint##bits##_t *restrict y = result;                                                       \
        if (sc == 1 && sa == 1 && sb == 1) {                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                y[i] = c[i] != 0 ? a[i] : b[i];                                                    \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            y[i] = c[i * sc] != 0 ? a[i * sa] : b[i * sb];                                         \
        }                                                                                          \
    }
PICK(8)
PICK(16)
PICK(32)
PICK(64)

static void pick(const where_job *j, const int64_t at[3], int64_t to, int64_t n)
{
    const int last = j->ndim - 1;
    const uint8_t *c = j->condition + at[0];
    const char *a = j->a + (size_t)at[1] * j->bytes, *b = j->b + (size_t)at[2] * j->bytes;
    char *y = j->y + (size_t)to * j->bytes;
    switch (j->bytes) {
    case 1: pick_8(c, j->step[0][last], a, j->step[1][last], b, j->step[2][last], y, n); break;
    case 2: pick_16(c, j->step[0][last], a, j->step[1][last], b, j->step[2][last], y, n); break;
    case 4: pick_32(c, j->step[0][last], a, j->step[1][last], b, j->step[2][last], y, n); break;
    default: pick_64(c, j->step[0][last], a, j->step[1][last], b, j->step[2][last], y, n); break;
    }
}

static void rows_range(const void *job, int64_t begin, int64_t end)
{
    const where_job *j = job;
    const int last = j->ndim - 1;
    for (int64_t item = begin; item < end; item++) {
        int64_t at[3] = {0}, rest = item;
        for (int i = last - 1; i >= 0; i--) {
            const int64_t place = rest % j->size[i];
            rest /= j->size[i];
            for (int k = 0; k < 3; k++) {
                at[k] += place * j->step[k][i];
            }
        }
        pick(j, at, item * j->size[last], j->size[last]);
    }
}

static void flat_range(const void *job, int64_t begin, int64_t end)
{
    const where_job *j = job;
    pick(j, (const int64_t[]){begin * j->step[0][0], begin * j->step[1][0], begin * j->step[2][0]},
         begin, end - begin);
}

lvn_status lvni_cpu_where(const lvn_kernel_args *args)
{
    const int64_t n = lvn_numel(args->out[0]);
    where_job j = {.bytes = lvn_dtype_size(args->out[0]->dtype),
                   .condition = args->in[0]->data,
                   .a = args->in[1]->data,
                   .b = args->in[2]->data,
                   .y = args->out[0]->data};
    if (n == 0) {
        return LVN_OK;
    }
    join_axes(args, &j);
    if (j.ndim == 1) {
        enum { GRAIN = 4096 };
        lvni_cpu_par(n, GRAIN, 1, flat_range, &j);
    } else {
        lvni_cpu_par(n / j.size[j.ndim - 1], 1, j.size[j.ndim - 1], rows_range, &j);
    }
    return LVN_OK;
}
