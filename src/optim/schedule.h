/* Schedules: factors on a learning rate as functions of the step. Read by the trainer's update at
 * each step. */
#ifndef LEVIN_OPTIM_SCHEDULE_H
#define LEVIN_OPTIM_SCHEDULE_H

#include <stdint.h>

typedef enum lvni_optim_schedule_kind {
    LVNI_SCHEDULE_CONSTANT,
    LVNI_SCHEDULE_STEP,
    LVNI_SCHEDULE_MULTISTEP,
    LVNI_SCHEDULE_COSINE,
    LVNI_SCHEDULE_LINEAR
} lvni_optim_schedule_kind;
enum { LVNI_MILESTONES = 64 };
typedef struct lvni_optim_schedule {
    lvni_optim_schedule_kind kind;
    int64_t warmup_steps;               /* a factor (t + 1) / warmup_steps for t < warmup_steps */
    int64_t total_steps;                /* cosine, linear: where they reach end_factor */
    double end_factor;                  /* cosine, linear */
    double gamma;                       /* step, multistep */
    int64_t step_size;                  /* step: steps between two falls */
    int64_t milestone[LVNI_MILESTONES]; /* multistep: ascending */
    int n_milestones;
} lvni_optim_schedule;
/* The factor on lr for step t >= 0, a function of t alone, so a resumed run has it from its first
 * step on. With s = (t - warmup) / (total - warmup), 1 after the end, e = end_factor:
 *   step        gamma ^ floor(t / step_size)
 *   multistep   gamma ^ (milestones <= t)
 *   cosine      e + (1 - e) (1 + cos(pi s)) / 2   (Loshchilov & Hutter 2017, eq. 5, without
 *     restarts)
 *   linear      1 + (e - 1) s
 * Steps and milestones are counted from the run's beginning, warm-up included; cosine and linear
 * begin after it. */
double lvni_optim_schedule_factor(const lvni_optim_schedule *schedule, int64_t step);

#endif
