/* Optimizers and learning-rate schedules over a model's flat weights. The trainer calls lvni_optim_step once per optimizer
 * step with the step's merged gradient. */
#ifndef LEVIN_OPTIM_OPTIM_H
#define LEVIN_OPTIM_OPTIM_H

#include <levin/status.h>

typedef enum lvni_optim_kind { LVNI_OPTIM_SGD, LVNI_OPTIM_ADAMW } lvni_optim_kind;

typedef struct lvni_optim_options {
    lvni_optim_kind kind;
    double lr, weight_decay;
    double momentum;             /* sgd */
    double beta1, beta2, eps;    /* adamw */
} lvni_optim_options;

enum { LVNI_OPTIM_SLOTS = 2 };

/* State as flat buffers of the weights' length: sgd: momentum (when it is not 0); adamw: exp_avg, exp_avg_sq. */
typedef struct lvni_optim {
    lvni_optim_options options;
    int64_t n; /* elements */
    int n_slots;
    const char *slot_name[LVNI_OPTIM_SLOTS]; /* as in checkpoints: optim/<slot>/<parameter> */
    float *slot[LVNI_OPTIM_SLOTS];
    int64_t steps; /* done */
    double *partial; /* one sum of squares per block */
} lvni_optim;

lvn_status lvni_optim_create(const lvni_optim_options *options, int64_t n, lvni_optim **out);
void lvni_optim_destroy(lvni_optim *optim);
/* w -= update(g * grad_scale); lr is the step's learning rate. */
void lvni_optim_step(lvni_optim *optim, float *w, const float *g, double lr, double grad_scale);
/* 2-norm of n gradients: sums over fixed blocks added in the tree over block numbers, in f64. Not finite when a gradient is not. */
double lvni_optim_gradient_norm(lvni_optim *optim, const float *g);

typedef enum lvni_schedule_kind { LVNI_SCHEDULE_CONSTANT, LVNI_SCHEDULE_COSINE } lvni_schedule_kind;
typedef struct lvni_schedule {
    lvni_schedule_kind kind;
    int64_t warmup_steps; /* lr * (t + 1) / warmup_steps for t < warmup_steps */
    int64_t total_steps;  /* cosine: where it reaches 0 */
} lvni_schedule;
/* The factor on lr for step t >= 0. Cosine: (1 + cos(pi (t - warmup) / (total - warmup))) / 2 (Loshchilov & Hutter 2017,
 * eq. 5, without restarts); 0 after the end. */
double lvni_schedule_factor(const lvni_schedule *schedule, int64_t step);

#endif
