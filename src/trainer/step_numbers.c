/* Values of the model's numbers (nn/numbers.c) in each step, and whether the run is one in which
 * they get where they go. Called by the engine. */
#include "trainer/engine.h"

#include <math.h>

/* Of the step's number alone, so a resumed run has them. */
static lvni_optim_curve curve_of(const lvni_trainer_engine *e, const lvn_number *n)
{
    return (lvni_optim_curve){
        .kind = n->curve == LVN_CURVE_COSINE ? LVNI_CURVE_COSINE : LVNI_CURVE_LINEAR,
        .from = n->from,
        .to = n->to,
        .steps = n->steps > 0    ? n->steps
                 : n->epochs > 0 ? lvni_plan_steps_before(&e->o.plan, n->epochs)
                                 : e->o.schedule.total_steps};
}

/* Of an epoch's first step on; a run that ends before has no such step. */
static double stair_at(const lvni_trainer_engine *e, const lvn_number *n)
{
    double value = n->from;
    for (int i = 0; i < n->n_stairs; i++) {
        if (lvni_plan_steps_before(&e->o.plan, n->stair[i].epoch) <= e->now.step) {
            value = n->stair[i].value;
        }
    }
    return value;
}

/* An epoch's steps have the same. */
static double ramp_at(const lvni_trainer_engine *e, const lvn_number *n)
{
    int64_t epoch = 0;
    (void)lvni_plan_locate(&e->o.plan, e->now.step, &epoch);
    if (epoch <= n->begin) {
        return n->from;
    }
    const double value = n->from + (double)(epoch - n->begin) * n->rise;
    return n->rise < 0.0 ? fmax(value, n->to) : fmin(value, n->to);
}

static double draw(const lvni_trainer_engine *e, const lvn_number *n)
{
    const uint64_t purpose = lvni_core_rng_purpose(n->module->path) +
                             0x9e3779b97f4a7c15u * lvni_core_rng_purpose(n->name);
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(e->o.seed, purpose),
                               .a = (uint32_t)e->now.step};
    return n->from + (n->to - n->from) * (double)lvni_core_rng_uniform(&rng, 0);
}

static double value_at(const lvni_trainer_engine *e, const lvn_number *n)
{
    const lvni_optim_curve curve = curve_of(e, n);
    return n->curve == LVN_CURVE_STAIRS   ? stair_at(e, n)
           : n->curve == LVN_CURVE_RANDOM ? draw(e, n)
           : n->curve == LVN_CURVE_RAMP   ? ramp_at(e, n)
                                          : lvni_optim_curve_at(&curve, e->now.step);
}

lvn_status lvni_trainer_numbers_check(const lvni_trainer_engine *e)
{
    const lvni_nn_model *m = e->o.model;
    for (int i = 0; i < m->n_numbers; i++) {
        const lvn_number *n = &m->number[i];
        if (lvni_nn_number_is_curve(n) && curve_of(e, n).steps == INT64_MAX) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "the number %s of the model goes from %g to %g until the run's end, and the "
                     "run has none: give max_epochs or max_steps",
                     n->name, n->from, n->to);
        }
    }
    for (int i = 0; i < m->n_follow_rules; i++) {
        const lvni_nn_follow_rule *rule = &m->follow_rule[i];
        if (rule->momentum != rule->end && e->o.schedule.total_steps == INT64_MAX) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "the momentum of a module that follows goes from %g to %g until the run's "
                     "end, and the run has none: give max_epochs or max_steps",
                     rule->momentum, rule->end);
        }
    }
    return LVN_OK;
}

void lvni_trainer_numbers_begin(lvni_trainer_engine *e)
{
    const lvni_nn_model *m = e->o.model;
    for (int i = 0; i < m->n_numbers; i++) {
        e->now.number[i] = value_at(e, &m->number[i]);
    }
}
