/* Dropout: the mask is a function of the stream and the element's number (core/rng.h), so nothing
 * is stored. Called through the op table (kernels.h), for the gradient too. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

enum { GRAIN = 1024 }; /* a multiple of the 4 elements of a counter */

typedef struct dropout_job {
    const void *x;
    void *y;
    const lvni_core_rng *rng;
    float p, scale;
    /* of bf16 and f16, a block at a time as in elementwise.c */
    void (*widen)(const uint16_t *x, float *y, int64_t n);
    void (*narrow)(const float *x, uint16_t *y, int64_t n);
} dropout_job;

static void dropout_range(const void *job, int64_t begin, int64_t end)
{
    const dropout_job *j = job;
    lvni_cpu_isa()->dropout((const float *)j->x + begin, (float *)j->y + begin, begin, end - begin,
                            j->rng, j->p, j->scale);
}

static void low_range(const void *job, int64_t begin, int64_t end)
{
    const dropout_job *j = job;
    float x[GRAIN], y[GRAIN];
    for (int64_t i = begin; i < end; i += GRAIN) {
        const int64_t n = end - i < GRAIN ? end - i : GRAIN;
        j->widen((const uint16_t *)j->x + i, x, n);
        lvni_cpu_isa()->dropout(x, y, i, n, j->rng, j->p, j->scale);
        j->narrow(y, (uint16_t *)j->y + i, n);
    }
}

lvn_status lvni_cpu_dropout(const lvn_kernel_args *args)
{
    const lvn_dropout_attr *attr = args->attr;
    const lvni_cpu_vec *isa = lvni_cpu_isa();
    const lvni_core_rng rng = lvni_kernels_rng(&attr->rng);
    const bool bf16 = args->in[0]->dtype == LVN_BF16;
    const dropout_job job = {.x = args->in[0]->data,
                             .y = args->out[0]->data,
                             .rng = &rng,
                             .p = (float)attr->p,
                             .scale = (float)(1.0 / (1.0 - attr->p)),
                             .widen = bf16 ? isa->from_bf16 : isa->from_f16,
                             .narrow = bf16 ? isa->to_bf16 : isa->to_f16};
    lvni_cpu_par(lvn_numel(args->out[0]), GRAIN, 4,
                 lvni_tensor_is_low(args->in[0]->dtype) ? low_range : dropout_range, &job);
    return LVN_OK;
}
