/* Schedules and curves are pure functions of the step; the plateau follows a metric
 * (schedule.h). */
#include "optim/schedule.h"

#include "core/math.h"

#include <math.h>

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

static double half_cosine(double from, double to, double part)
{
    return to + (from - to) * (0.5 * (1.0 + lvni_core_cos2pi(0.5 * part)));
}

/* The part of its period that t is at: periods of step_size, step_size * period_factor, ... */
static double part_of_period(const lvni_optim_schedule *s, int64_t t)
{
    int64_t period = s->step_size;
    if (s->period_factor <= 1) {
        return (double)(t % period) / (double)period;
    }
    while (t >= period) {
        t -= period;
        period = period > INT64_MAX / s->period_factor ? INT64_MAX : period * s->period_factor;
    }
    return (double)t / (double)period;
}

/* A stretch of the cycle, which ends at `end`. */
typedef struct stretch {
    double end, from, to;
    double momentum_from, momentum_to;
} stretch;

static int make_stretches(const lvni_optim_schedule *s, stretch out[3])
{
    const lvni_optim_cycle *c = &s->cycle;
    const double n = (double)(s->total_steps - s->warmup_steps), low = c->base_momentum,
                 high = c->max_momentum;
    out[0] = (stretch){c->rise * n - 1.0, c->start, 1.0, high, low};
    out[1] = (stretch){c->three_phases ? 2.0 * c->rise * n - 2.0 : n - 1.0, 1.0,
                       c->three_phases ? c->start : c->end, low, high};
    out[2] = (stretch){n - 1.0, c->start, c->end, high, high};
    return c->three_phases ? 3 : 2;
}

/* Where the cycle is: a rate, or a momentum. t counts from the warm-up's end. */
static double cycle_at(const lvni_optim_schedule *s, int64_t t, bool momentum)
{
    stretch all[3];
    const int n = make_stretches(s, all);
    double begin = 0.0;
    int i = 0;
    while (i < n - 1 && (double)t > all[i].end) {
        begin = all[i++].end;
    }
    const double length = all[i].end - begin;
    const double passed = length > 0.0 ? ((double)t - begin) / length : 1.0;
    const double part = passed < 1.0 ? passed : 1.0;
    const double from = momentum ? all[i].momentum_from : all[i].from,
                 to = momentum ? all[i].momentum_to : all[i].to;
    return s->cycle.linear ? from + (to - from) * part : half_cosine(from, to, part);
}

/* The end is that of the last step. */
static double cosine_at(const lvni_optim_schedule *s, int64_t step)
{
    const int64_t t = step - s->warmup_steps, last = s->total_steps - s->warmup_steps - 1;
    return t >= last ? s->end_factor : half_cosine(1.0, s->end_factor, (double)t / (double)last);
}

/* From the end of the warm-up on. */
static double after_warmup(const lvni_optim_schedule *s, int64_t step)
{
    const double at = progress(s, step), end = s->end_factor;
    if (s->kind == LVNI_SCHEDULE_RESTARTS) {
        return half_cosine(1.0, end, part_of_period(s, step - s->warmup_steps));
    }
    if (s->kind == LVNI_SCHEDULE_ONECYCLE) {
        return cycle_at(s, step - s->warmup_steps, false);
    }
    if (s->kind == LVNI_SCHEDULE_COSINE) {
        return cosine_at(s, step);
    }
    if (at >= 1.0) {
        return end;
    }
    return s->kind == LVNI_SCHEDULE_LINEAR ? 1.0 + (end - 1.0) * at
                                           : end + (1.0 - end) * lvni_core_pow(1.0 - at, s->power);
}

static double factor_at(const lvni_optim_schedule *s, int64_t step)
{
    const bool rising = step < s->warmup_steps;
    const double rise = rising ? (double)(step + 1) / (double)s->warmup_steps : 1.0;
    switch (s->kind) {
    case LVNI_SCHEDULE_STEP:
    case LVNI_SCHEDULE_EXPONENTIAL: return rise * power(s->gamma, step / s->step_size);
    case LVNI_SCHEDULE_MULTISTEP: return rise * power(s->gamma, milestones_passed(s, step));
    case LVNI_SCHEDULE_COSINE:
    case LVNI_SCHEDULE_LINEAR:
    case LVNI_SCHEDULE_POLYNOMIAL:
    case LVNI_SCHEDULE_RESTARTS: return rising ? rise : after_warmup(s, step);
    case LVNI_SCHEDULE_ONECYCLE: return rising ? rise * s->cycle.start : after_warmup(s, step);
    case LVNI_SCHEDULE_PLATEAU:
    case LVNI_SCHEDULE_CONSTANT: break;
    }
    return rise;
}

double lvni_optim_schedule_factor(const lvni_optim_schedule *s, int64_t step)
{
    return factor_at(s, step) * lvni_optim_schedule_scale(s);
}

double lvni_optim_schedule_momentum(const lvni_optim_schedule *s, int64_t step)
{
    if (s->kind != LVNI_SCHEDULE_ONECYCLE || !s->cycle.moves_momentum) {
        return -1.0;
    }
    return step < s->warmup_steps ? s->cycle.max_momentum
                                  : cycle_at(s, step - s->warmup_steps, true);
}

/* A quotient that has reached 1 stays there: a schedule that falls cannot begin the growth again.
 */
double lvni_optim_hold_factor(const lvni_optim_hold *h, const lvni_optim_schedule *s, int64_t step)
{
    if (step < h->until || h->first == 0.0) {
        return step < h->until ? 0.0 : 1.0;
    }
    const double grown = factor_at(s, h->until) * h->first *
                         power(h->growth, (step - h->until) / h->every),
                 whole = factor_at(s, step);
    return grown < whole ? grown / whole : 1.0;
}

int64_t lvni_optim_hold_next(const lvni_optim_hold *h, const lvni_optim_schedule *s, int64_t step)
{
    const double now = lvni_optim_hold_factor(h, s, step);
    if (step < h->until) {
        return h->until;
    }
    int64_t next = step + 1;
    while (now < 1.0 && next < INT64_MAX && lvni_optim_hold_factor(h, s, next) == now) {
        next++;
    }
    return now < 1.0 ? next : INT64_MAX;
}

bool lvni_optim_schedule_ends(const lvni_optim_schedule *s)
{
    return s->kind == LVNI_SCHEDULE_COSINE || s->kind == LVNI_SCHEDULE_LINEAR ||
           s->kind == LVNI_SCHEDULE_POLYNOMIAL || s->kind == LVNI_SCHEDULE_ONECYCLE;
}

double lvni_optim_curve_at(const lvni_optim_curve *c, int64_t step)
{
    if (c->kind == LVNI_CURVE_CONSTANT) {
        return c->from;
    }
    const int64_t length = c->kind == LVNI_CURVE_COSINE ? c->steps - 1 : c->steps;
    if (step >= length) {
        return c->to;
    }
    const double part = (double)step / (double)length;
    return c->kind == LVNI_CURVE_LINEAR ? c->from + (c->to - c->from) * part
                                        : half_cosine(c->from, c->to, part);
}

void lvni_optim_plateau_begin(lvni_optim_plateau *p)
{
    *p = (lvni_optim_plateau){.factor = 1.0, .best = (double)NAN};
}

static bool improves(const lvni_optim_plateau_options *o, double metric, double best)
{
    if (isnan(best)) {
        return !isnan(metric);
    }
    if (o->larger_is_better) {
        return metric > (o->absolute ? best + o->threshold : best * (1.0 + o->threshold));
    }
    return metric < (o->absolute ? best - o->threshold : best * (1.0 - o->threshold));
}

bool lvni_optim_plateau_follow(lvni_optim_plateau *p, const lvni_optim_plateau_options *o,
                               double lr, double metric)
{
    if (improves(o, metric, p->best)) {
        p->best = metric;
        p->bad = 0;
    } else {
        p->bad++;
    }
    if (p->cooling > 0) {
        p->cooling--;
        p->bad = 0;
    }
    if (p->bad <= o->patience) {
        return false;
    }
    p->cooling = o->cooldown;
    p->bad = 0;
    const double was = lr * p->factor, fallen = was * o->factor,
                 now = fallen > o->min_lr ? fallen : o->min_lr;
    if (!(was - now > 1e-8)) { /* PyTorch's eps */
        return false;
    }
    p->factor = now / lr;
    return true;
}
