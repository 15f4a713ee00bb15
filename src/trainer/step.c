/* One optimizer step, phase after phase, each in the order of time: load the micro-batches (the
 * first phase; the others have the same samples), forward and backward on the lanes, reduce: merge
 * gradients in the fixed tree over micro-batch numbers, with other ranks', and update. What is
 * computed is read by collect; submit reads only what the next phase cannot begin without. */
#include "trainer/engine.h"
#include "trainer/phases.h"
#include "trainer/profile.h"
#include "trainer/stages.h"

#include <string.h>

/* Every micro-batch once; *total: the sum of their gradients, NULL when no sample could be read. */
static lvn_status run_micro_batches(lvni_trainer_engine *e, lvni_trainer_step_record *r,
                                    lvni_nn_set **total)
{
    const lvni_plan *plan = &e->o.plan;
    if (e->stages != NULL) {
        LVN_TRY(lvni_trainer_stages_run(e));
        return lvni_trainer_waves_reduce(e, r, total);
    }
    lvni_trainer_waves_begin(e);
    for (int begin = plan->micro_batch_begin, n = 0; begin < plan->micro_batch_end; begin += n) {
        n = (int)lvni_plan_wave(plan, begin).count;
        LVN_TRY(lvni_trainer_wave_load(e, begin, n));
        LVN_TRY(lvni_trainer_wave_run(e, n)); /* forward, backward */
        LVN_TRY(lvni_trainer_wave_merge(e, n));
        if (lvni_trainer_in_last_phase(e)) {
            lvni_trainer_wave_release(e, begin, n);
        }
    }
    return lvni_trainer_waves_reduce(e, r, total);
}

/* The phases of a step must not report more metrics than a line of the log has room for. */
static lvn_status check_metrics(const lvni_trainer_step_record *r, int n_phases)
{
    if (n_phases == 1) {
        return LVN_OK;
    }
    lvni_nn_step all;
    lvni_nn_step_copy(&all, &r->phase[0].metrics);
    for (int i = 1; i < n_phases; i++) {
        LVN_TRY(lvni_nn_metrics_add(&all, &r->phase[i].metrics));
    }
    return LVN_OK;
}

static lvn_status submit_phase(lvni_trainer_engine *e, lvni_trainer_step_record *r)
{
    lvni_nn_set *total = NULL;
    e->now.loss_factor = lvni_trainer_loss_factor(&e->o.plan, &e->scaler);
    lvni_trainer_phases_begin(e->o.model, e->now.phase, e->now.step);
    memset(e->graded, 0, (size_t)e->o.model->n_parameters * sizeof *e->graded);
    LVN_TRY(run_micro_batches(e, r, &total));
    lvni_trainer_unused_end_phase(e);
    LVN_TRY(check_metrics(r, e->now.phase + 1));
    lvni_dist_comm_at(e->o.comm, LVNI_PLACE_UPDATE, e->now.step);
    lvni_trainer_profile_at(LVNI_PART_UPDATE);
    /* else no sample of the step could be read: nothing to learn from */
    return total != NULL ? lvni_trainer_update(e, total, r) : LVN_OK;
}

lvn_status lvni_trainer_submit_phases(lvni_trainer_engine *e, lvni_trainer_step_record *r)
{
    for (int i = 0; i < e->n_phases; i++) {
        e->now.phase = i;
        r->phase[i].left_out = !lvni_trainer_phase_runs(e, i);
        LVN_TRY(r->phase[i].left_out ? LVN_OK : submit_phase(e, r));
    }
    lvni_trainer_update_average(e, r);
    return LVN_OK;
}

static void begin_phase(lvni_trainer_phase_result *p)
{
    lvni_nn_step_begin(&p->metrics, 0.0);
    p->grad_norm = p->lr = 0.0;
    p->clipped = p->skipped = p->updated = p->left_out = false;
}

void lvni_trainer_record_begin(const lvni_trainer_engine *e, lvni_trainer_step_record *r)
{
    r->samples = 0;
    r->lr = 0.0;
    r->signal = 0;
    r->save = false;
    r->validate = false;
    r->n_phases = e->n_phases;
    for (int i = 0; i < e->n_phases; i++) {
        begin_phase(&r->phase[i]);
    }
    r->deferred = -1;
}

lvn_status lvni_trainer_submit_step(lvni_trainer_engine *e, lvni_trainer_step_record *r)
{
    LVN_TRY(lvni_trainer_submit_phases(e, r));
    if (e->deferred == NULL) {
        return LVN_OK;
    }
    lvni_trainer_deferred_finish(e->deferred);
    return lvni_trainer_deferred_end(e->deferred, e, &r->deferred);
}

lvn_status lvni_trainer_engine_submit(lvni_trainer_engine *e, lvni_data_loader *loader,
                                      const lvni_ckpt_position *before, lvni_trainer_step_record *r)
{
    r->before = *before;
    lvni_trainer_record_begin(e, r);
    e->loader = loader;
    e->now.step = before->step;
    e->now.epoch = before->epoch;
    lvni_trainer_numbers_begin(e);
    lvn_status s = e->deferred != NULL ? lvni_trainer_deferred_begin(e->deferred, e) : LVN_OK;
    if (s == LVN_OK) {
        s = e->graph != NULL ? lvni_trainer_graph_submit(e, r) : lvni_trainer_submit_step(e, r);
    }
    if (s != LVN_OK && e->deferred != NULL) {
        s = lvni_trainer_deferred_fail(e->deferred, e);
    }
    e->torn = false;
    for (int i = 0; i < e->n_phases && s != LVN_OK; i++) {
        e->torn = e->torn || r->phase[i].updated;
    }
    const lvni_plan *plan = &e->o.plan;
    if (e->prefetch != NULL && (s != LVN_OK || !e->more_steps)) {
        lvni_trainer_prefetch_drop(e->prefetch);
    }
    lvni_trainer_wave_release(e, plan->micro_batch_begin,
                              plan->micro_batch_end - plan->micro_batch_begin);
    e->loader = NULL;
    lvni_dist_comm_at(e->o.comm, LVNI_PLACE_BETWEEN, e->now.step);
    lvni_trainer_profile_at(LVNI_PART_REST);
    return s;
}

/* The loss scale follows what overflowed. */
static lvn_status check_overflow(lvni_trainer_engine *e, const lvni_trainer_step_result *r)
{
    bool overflow = false, updated = false;
    for (int i = 0; i < r->n_phases; i++) {
        overflow = overflow || r->phase[i].skipped;
        updated = updated || r->phase[i].updated;
    }
    return e->scaler.on && (overflow || updated)
               ? lvni_trainer_scaler_update(&e->scaler, overflow, !updated)
               : LVN_OK;
}

static void copy_phase(lvni_trainer_phase_result *to, const lvni_trainer_phase_result *from)
{
    lvni_nn_step_copy(&to->metrics, &from->metrics);
    to->grad_norm = from->grad_norm;
    to->lr = from->lr;
    to->clipped = from->clipped;
    to->skipped = from->skipped;
    to->updated = from->updated;
    to->left_out = from->left_out;
}

lvn_status lvni_trainer_engine_collect(lvni_trainer_engine *e, const lvni_trainer_step_record *r,
                                       lvni_trainer_step_result *result)
{
    result->after = r->before;
    result->samples = r->samples;
    result->lr = r->lr;
    result->n_phases = r->n_phases;
    for (int i = 0; i < r->n_phases; i++) {
        copy_phase(&result->phase[i], &r->phase[i]);
    }
    if (r->deferred >= 0) {
        lvni_dist_comm_at(e->o.comm, LVNI_PLACE_RESULT, r->before.step);
        lvni_trainer_profile_at(LVNI_PART_RESULT);
    }
    const lvn_status read =
        r->deferred < 0 ? LVN_OK : lvni_trainer_deferred_read(e->deferred, e, r, result);
    lvni_dist_comm_at(e->o.comm, LVNI_PLACE_BETWEEN, r->before.step);
    lvni_trainer_profile_at(LVNI_PART_REST);
    if (read != LVN_OK) {
        lvni_trainer_deferred_undo(e->deferred, e, r);
        return read;
    }
    lvni_nn_step_copy(&result->metrics, &result->phase[0].metrics);
    for (int i = 1; i < r->n_phases; i++) {
        LVN_TRY(lvni_nn_metrics_add(&result->metrics, &result->phase[i].metrics));
    }
    LVN_TRY(check_overflow(e, result)); /* the position stays with the weights */
    lvni_trainer_unused_report(e);
    result->scaler = e->scaler;
    result->after.step++;
    result->after.step_in_epoch++;
    result->after.samples_seen += r->samples;
    return LVN_OK;
}

bool lvni_trainer_engine_torn(const lvni_trainer_engine *e)
{
    return e->deferred != NULL ? lvni_trainer_deferred_torn(e->deferred, e) : e->torn;
}

void lvni_trainer_engine_discard(lvni_trainer_engine *e, const lvni_trainer_step_record *r)
{
    if (r->deferred >= 0) {
        lvni_trainer_deferred_undo(e->deferred, e, r);
    }
}
