/* What a step changes besides parameters: buffers, by their rules (nn/buffers.c), after the
 * optimizer and with its decision. Called by the update (update.c). */
#include "trainer/engine.h"

/* Half a cosine over the run, of the step's number alone: a step that is skipped counts, as it does
 * on a device, which skips by itself. */
static double factor_of(const lvni_trainer_engine *e, const lvni_nn_follow_rule *rule)
{
    const double begin = 1.0 - rule->momentum, end = 1.0 - rule->end;
    if (begin == end || !(begin > 0.0)) {
        return begin;
    }
    const lvni_optim_schedule s = {.kind = LVNI_SCHEDULE_COSINE,
                                   .total_steps = e->o.schedule.total_steps,
                                   .end_factor = end / begin};
    return begin * lvni_optim_schedule_factor(&s, e->now.step);
}

void lvni_trainer_follow_factors(const lvni_trainer_engine *e,
                                 lvn_step_average factor[LVN_STEP_FOLLOWS])
{
    const lvni_nn_model *m = e->o.model;
    for (int i = 0; i < m->n_follow_rules; i++) {
        factor[i].factor = factor_of(e, &m->follow_rule[i]);
    }
}

void lvni_trainer_move_buffers(lvni_trainer_engine *e, const lvni_nn_set *total)
{
    const lvn_step_block *block = e->late == NULL ? NULL : e->late->block;
    const int phase = e->now.phase;
    lvn_step_average given[LVN_STEP_FOLLOWS];
    lvni_nn_model_apply_records(e->o.model, total, block == NULL ? NULL : &block->phase[phase]);
    lvni_trainer_follow_factors(e, given);
    lvni_nn_model_follow(e->o.model, phase, given, block == NULL ? NULL : block->follow);
}
