/* Schedules are pure functions of the step (schedule.h). */
#include "optim/schedule.h"

#include "core/math.h"

#include <stdbool.h>

/* By squaring: the same bits on every machine, exact for the first powers. */
static double power(double x, int64_t k)
{
    double result = 1.0;
    for (; k > 0; k /= 2) {
        result = k % 2 == 1 ? result * x : result;
        x *= x;
    }
    return result;
}

static int64_t milestones_passed(const lvni_optim_schedule *s, int64_t step)
{
    int n = 0;
    while (n < s->n_milestones && s->milestone[n] <= step) {
        n++;
    }
    return n;
}

/* 0 at the end of the warm-up, 1 from the end of the run on. */
static double progress(const lvni_optim_schedule *s, int64_t step)
{
    const int64_t length = s->total_steps - s->warmup_steps;
    return length <= 0 || step >= s->total_steps
               ? 1.0
               : (double)(step - s->warmup_steps) / (double)length;
}

static double after_warmup(const lvni_optim_schedule *s, int64_t step)
{
    const double at = progress(s, step), end = s->end_factor;
    if (at >= 1.0) {
        return end;
    }
    return s->kind == LVNI_SCHEDULE_LINEAR
               ? 1.0 + (end - 1.0) * at
               : end + (1.0 - end) * (0.5 * (1.0 + lvni_core_cos2pi(0.5 * at)));
}

double lvni_optim_schedule_factor(const lvni_optim_schedule *s, int64_t step)
{
    const bool rising = step < s->warmup_steps;
    const double rise = rising ? (double)(step + 1) / (double)s->warmup_steps : 1.0;
    switch (s->kind) {
    case LVNI_SCHEDULE_STEP: return rise * power(s->gamma, step / s->step_size);
    case LVNI_SCHEDULE_MULTISTEP: return rise * power(s->gamma, milestones_passed(s, step));
    case LVNI_SCHEDULE_COSINE:
    case LVNI_SCHEDULE_LINEAR: return rising ? rise : after_warmup(s, step);
    case LVNI_SCHEDULE_CONSTANT: break;
    }
    return rise;
}
