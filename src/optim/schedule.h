/* Schedules: factors on a learning rate, and curves of any number, as functions of the step; and
 * the plateau, which follows a metric and has a state. Read by the trainer at each step. */
#ifndef LEVIN_OPTIM_SCHEDULE_H
#define LEVIN_OPTIM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum lvni_optim_schedule_kind {
    LVNI_SCHEDULE_CONSTANT,
    LVNI_SCHEDULE_STEP,
    LVNI_SCHEDULE_MULTISTEP,
    LVNI_SCHEDULE_COSINE,
    LVNI_SCHEDULE_LINEAR,
    LVNI_SCHEDULE_EXPONENTIAL, /* step by another name */
    LVNI_SCHEDULE_POLYNOMIAL,
    LVNI_SCHEDULE_RESTARTS,
    LVNI_SCHEDULE_ONECYCLE,
    LVNI_SCHEDULE_PLATEAU /* constant; the factor of lvni_optim_plateau comes on top */
} lvni_optim_schedule_kind;
enum { LVNI_MILESTONES = 64 };

/* The cycle of PyTorch's OneCycleLR; rates are parts of the largest one, optim.lr. */
typedef struct lvni_optim_cycle {
    double rise;               /* part of the steps in which the rate rises */
    double start, end;         /* rates at the beginning and at the end */
    bool linear, three_phases; /* else cosines, and two */
    bool moves_momentum;       /* against the rate: momentum of sgd, beta1 of the others */
    double base_momentum, max_momentum;
} lvni_optim_cycle;

typedef struct lvni_optim_schedule {
    lvni_optim_schedule_kind kind;
    int64_t warmup_steps;  /* a factor (t + 1) / warmup_steps for t < warmup_steps */
    int64_t total_steps;   /* cosine, linear, polynomial, onecycle: where they end */
    double end_factor;     /* cosine, linear, polynomial, restarts */
    double gamma;          /* step, multistep, exponential */
    double power;          /* polynomial */
    int64_t step_size;     /* step, exponential: steps between two falls; restarts: first period */
    int64_t period_factor; /* restarts: of a period to the one before */
    int64_t milestone[LVNI_MILESTONES]; /* multistep: ascending */
    int n_milestones;
    lvni_optim_cycle cycle; /* onecycle */
    double scale;           /* on every factor; 0: 1 */
} lvni_optim_schedule;
/* The factor on lr for step t >= 0, a function of t alone, so a resumed run has it from its first
 * step on. With s = (t - warmup) / (total - warmup), 1 after the end, e = end_factor:
 *   step, exponential   gamma ^ floor(t / step_size)
 *   multistep           gamma ^ (milestones <= t)
 *   cosine      e + (1 - e) (1 + cos(pi t')) / 2   (Loshchilov & Hutter 2017, eq. 5, without
 *     restarts), t' = (t - warmup) / (total - 1 - warmup): the last step has e
 *   restarts    the same with restarts: t' is the part of the period that has passed
 *   linear      1 + (e - 1) s
 *   polynomial  e + (1 - e) (1 - s)^power
 *   onecycle    PyTorch's OneCycleLR over total - warmup steps
 * Step, exponential and multistep count from the run's beginning, warm-up included, and fall during
 * it, too; the others begin after it. The last step, total - 1, has s = 1 - 1 / (total - warmup):
 * linear and polynomial reach e with the one that would follow. */
double lvni_optim_schedule_factor(const lvni_optim_schedule *schedule, int64_t step);
static inline double lvni_optim_schedule_scale(const lvni_optim_schedule *s)
{
    return s->scale > 0.0 ? s->scale : 1.0;
}
/* Momentum or beta1 of the step; -1: the schedule does not move it. */
double lvni_optim_schedule_momentum(const lvni_optim_schedule *schedule, int64_t step);
/* A rate that is 0 before step `until`, is then the part `first` of what the schedule has in step
 * `until`, and grows by the factor `growth` every `every` steps, up to what the schedule has by
 * then, as Lightning's BackboneFinetuning lets it. first 0: it is the schedule's at once. */
typedef struct lvni_optim_hold {
    int64_t until;
    double first, growth;
    int64_t every;
} lvni_optim_hold;
/* The factor on the schedule's own, 0 to 1: a function of the step alone. */
double lvni_optim_hold_factor(const lvni_optim_hold *hold, const lvni_optim_schedule *schedule,
                              int64_t step);
/* The first step behind this one that has another factor; INT64_MAX: none. */
int64_t lvni_optim_hold_next(const lvni_optim_hold *hold, const lvni_optim_schedule *schedule,
                             int64_t step);
/* The schedule needs a run of known length. */
bool lvni_optim_schedule_ends(const lvni_optim_schedule *schedule);

/* ---- a number on its way from one value to another ---- */

typedef enum lvni_optim_curve_kind {
    LVNI_CURVE_CONSTANT, /* from */
    LVNI_CURVE_LINEAR,   /* from + (to - from) t / steps, to from step `steps` on */
    LVNI_CURVE_COSINE    /* to - (to - from) (1 + cos(pi t / (steps - 1))) / 2, to at the last */
} lvni_optim_curve_kind;
typedef struct lvni_optim_curve {
    lvni_optim_curve_kind kind;
    double from, to;
    int64_t steps;
} lvni_optim_curve;
double lvni_optim_curve_at(const lvni_optim_curve *curve, int64_t step);

/* ---- PyTorch's ReduceLROnPlateau: the rate falls when a metric has stopped improving ---- */

typedef struct lvni_optim_plateau_options {
    const char *monitor; /* "val/loss" */
    bool larger_is_better, absolute;
    double factor, threshold, min_lr;
    int64_t patience, cooldown;
} lvni_optim_plateau_options;
/* Saved in checkpoints. */
typedef struct lvni_optim_plateau {
    double factor; /* on the rate */
    double best;   /* NaN: none yet */
    int64_t bad;   /* validations since */
    int64_t cooling;
} lvni_optim_plateau;
void lvni_optim_plateau_begin(lvni_optim_plateau *plateau);
/* After a validation; true: the rate fell. lr: optim.lr. */
bool lvni_optim_plateau_follow(lvni_optim_plateau *plateau, const lvni_optim_plateau_options *o,
                               double lr, double metric);

#endif
