/* Dropout: the mask is a function of the stream and the element's number (core/rng.h), so nothing is stored. Called through
 * the op table (kernels.h), for the gradient too. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

typedef struct dropout_job {
    const float *x;
    float *y;
    const lvni_rng *rng;
    float p, scale;
} dropout_job;

static void dropout_range(const void *job, int64_t begin, int64_t end)
{
    const dropout_job *j = job;
    lvni_cpu_isa()->dropout(j->x + begin, j->y + begin, begin, end - begin, j->rng, j->p, j->scale);
}

lvn_status lvni_cpu_dropout(const lvni_args *args)
{
    const lvni_dropout_attr *attr = args->attr;
    const dropout_job job = {.x = LVNI_CF32(args->in[0]), .y = LVNI_F32(args->out[0]), .rng = &attr->rng,
                             .p = (float)attr->p, .scale = (float)(1.0 / (1.0 - attr->p))};
    enum { GRAIN = 1024 }; /* a multiple of the 4 elements of a counter */
    lvni_par(lvn_numel(args->out[0]), GRAIN, 4, dropout_range, &job);
    return LVN_OK;
}
