/* The exponential moving average of a model's weights and buffers, over flat memory. Updated by the
 * trainer after each optimizer step; validation and exported models take the averaged values. */
#ifndef LEVIN_OPTIM_EMA_H
#define LEVIN_OPTIM_EMA_H

#include <levin/status.h>

typedef struct lvni_optim_ema_options {
    double decay; /* 0: no average */
    bool warmup;
} lvni_optim_ema_options;

typedef struct lvni_optim_ema {
    lvni_optim_ema_options options;
    int64_t n;
    float *value;
} lvni_optim_ema;

/* The average of n values begins as a copy of x. */
lvn_status lvni_optim_ema_create(const lvni_optim_ema_options *options, const float *x, int64_t n,
                                 lvni_optim_ema **out);
void lvni_optim_ema_destroy(lvni_optim_ema *ema);
/* average += (1 - d) (x - average), with d = decay after t earlier updates; the first update (t =
 * 0) copies x. With warm-up d is at most (1 + t) / (10 + t), so that the average of a short run is
 * not one of its first weights. */
void lvni_optim_ema_update(lvni_optim_ema *ema, const float *x, int64_t t);

#endif
