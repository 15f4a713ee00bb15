/* Averages of weights (ema.h): one pass over the flat values per optimizer step. */
#include "optim/ema.h"

#include "kernels/flat.h"
#include "tensor/device.h"

#include <string.h>

lvn_status lvni_optim_ema_create(const lvni_optim_ema_options *options, const float *x, int64_t n,
                                 lvni_optim_ema **out)
{
    *out = NULL;
    lvni_optim_ema *e = LVNI_NEW(LVNI_TAG_MODEL, lvni_optim_ema);
    float *value = lvni_tensor_mem_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *value);
    if (e == NULL || value == NULL) {
        lvni_core_free(e);
        lvni_tensor_mem_free(value, (size_t)n, sizeof *value);
        return lvn_last_error()->code;
    }
    *e = (lvni_optim_ema){.options = *options, .n = n, .value = value};
    *out = e;
    return lvni_tensor_mem_copy(value, x, (size_t)n * sizeof *value);
}

void lvni_optim_ema_destroy(lvni_optim_ema *e)
{
    if (e != NULL) {
        lvni_tensor_mem_free(e->value, (size_t)e->n, sizeof *e->value);
        lvni_core_free(e);
    }
}

void lvni_optim_ema_update(lvni_optim_ema *e, const float *x, int64_t t)
{
    const double most = e->options.warmup ? (double)(1 + t) / (double)(10 + t) : 1.0;
    const double decay = t == 0 ? 0.0 : e->options.decay < most ? e->options.decay : most;
    if (decay > 0.0) {
        lvni_kernels_flat_lerp(e->value, x, (float)(1.0 - decay), e->n);
    } else {
        lvni_tensor_mem_copy(e->value, x, (size_t)e->n * sizeof *x);
    }
}
