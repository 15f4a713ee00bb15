/* From the summed gradient of a phase to new weights: divide, skip or clip, update; the average
 * after the last phase; and which parameters a step gives a gradient. Called by the step
 * (step.c). */
#include "core/alloc.h"
#include "core/math.h"
#include "core/str.h"
#include "kernels/flat.h"
#include "log/run_log.h"
#include "trainer/engine.h"
#include "trainer/phases.h"
#include "trainer/stages.h"

#include <math.h>

static double norm_of(const lvni_trainer_engine *e)
{
    const double *blocks = e->stages != NULL ? lvni_trainer_stages_blocks(e->stages)
                                             : lvni_trainer_gradient_sync_blocks(e->gradient_sync);
    return lvni_optim_norm_of_blocks(e->optim, blocks, e->o.model->trained_begin,
                                     e->o.model->trained_end);
}

lvn_status lvni_trainer_fail_norm(const lvni_trainer_engine *e, int phase, double norm,
                                  const lvni_ckpt_position *before)
{
    const char *name = lvni_trainer_phases_name(e->o.model, phase);
    LVN_FAIL(LVN_ERR_NON_FINITE,
             "the gradient's norm is %g at step %lld (epoch %lld%s%s): try a smaller optim.lr; "
             "detect_anomaly=true names the op that made it",
             lvni_core_unsigned_nan(norm), (long long)before->step, (long long)before->epoch + 1,
             name[0] != '\0' ? ", phase " : "", name);
}

/* Norm, clipping, overflow: by what the step multiplies gradients; 0: it is skipped. */
static lvn_status check_gradient(const lvni_trainer_engine *e, double divisor,
                                 const lvni_ckpt_position *before, lvni_trainer_phase_result *p,
                                 double *scale)
{
    const double clip = lvni_trainer_clip_of(e, e->now.phase);
    p->grad_norm = norm_of(e) / divisor;
    p->skipped = e->scaler.on && !isfinite(p->grad_norm);
    p->updated = !p->skipped;
    *scale = p->skipped ? 0.0 : 1.0 / divisor;
    if (p->updated && !isfinite(p->grad_norm)) {
        p->updated = false;
        return lvni_trainer_fail_norm(e, e->now.phase, p->grad_norm, before);
    }
    p->clipped = p->updated && clip > 0.0 && p->grad_norm > clip;
    if (p->clipped) {
        *scale *= clip / (p->grad_norm + 1e-6);
    }
    return LVN_OK;
}

lvni_trainer_rates lvni_trainer_rates_at(const lvni_trainer_engine *e, int phase, int64_t skipped)
{
    const int64_t t = e->now.step - skipped;
    const lvni_trainer_phase_options *own = &e->o.phase[phase];
    const lvni_optim_schedule *schedule = own->has_schedule ? &own->schedule : &e->o.schedule;
    const double momentum = lvni_optim_schedule_momentum(schedule, t),
                 lr = own->lr > 0.0 ? own->lr : e->o.optim.lr;
    return (lvni_trainer_rates){
        .schedule = schedule,
        .lr = lr * lvni_optim_schedule_factor(schedule, t) *
              (own->has_schedule ? 1.0 : e->plateau.factor),
        .decay = e->o.weight_decay.steps > 0 && e->o.optim.weight_decay > 0.0
                     ? lvni_optim_curve_at(&e->o.weight_decay, t) / e->o.optim.weight_decay
                     : 1.0,
        .momentum = momentum > 0.0 ? momentum : 0.0};
}

double lvni_trainer_clip_of(const lvni_trainer_engine *e, int phase)
{
    return e->o.phase[phase].has_clip ? e->o.phase[phase].clip : e->o.gradient_clip_val;
}

bool lvni_trainer_phase_runs(const lvni_trainer_engine *e, int phase)
{
    const int64_t every = e->o.phase[phase].every;
    return every <= 1 || e->now.step % every == every - 1;
}

bool lvni_trainer_in_last_phase(const lvni_trainer_engine *e)
{
    for (int i = e->now.phase + 1; i < e->n_phases; i++) {
        if (lvni_trainer_phase_runs(e, i)) {
            return false;
        }
    }
    return true;
}

static lvn_status step_weights(const lvni_trainer_engine *e, const float *gradient, double lr,
                               double scale)
{
    if (e->sharded != NULL) {
        return lvni_trainer_sharded_step(e->sharded, e->optim, e->now.phase, e->o.model, gradient,
                                         lr, scale);
    }
    lvni_optim_step(e->optim, e->now.phase, e->o.model->weights, gradient, lr, scale);
    return LVN_OK;
}

lvn_status lvni_trainer_update(lvni_trainer_engine *e, const lvni_nn_set *total,
                               lvni_trainer_step_record *r)
{
    lvni_nn_model *model = e->o.model;
    const double divisor = total->weight * e->now.loss_factor;
    double scale = 0.0;
    const lvni_trainer_rates rates = lvni_trainer_rates_at(e, e->now.phase, e->scaler.skipped);
    r->lr = r->phase[e->now.phase].lr = rates.lr;
    lvni_optim_set_rates(e->optim, e->now.phase, e->now.step, rates.schedule, rates.decay,
                         rates.momentum);
    if (total->weight == 0.0) {
        return LVN_OK; /* nothing to learn from */
    }
    for (int i = 0; i < model->n_parameters; i++) {
        e->optim->idle[i] = !e->graded[i];
    }
    lvni_trainer_phase_result *p = &r->phase[e->now.phase];
    if (e->deferred != NULL) { /* the device judges, and kernels read what it found */
        p->updated = true;
        lvni_trainer_deferred_decide(e->deferred, e, total->weight);
    } else {
        LVN_TRY(check_gradient(e, divisor, &r->before, p, &scale));
    }
    if (p->skipped) {
        return LVN_OK; /* weights, statistics, averages stay as they are */
    }
    LVN_TRY(step_weights(e, total->data, r->lr, scale));
    if (e->o.precision == LVNI_PRECISION_BF16_TRUE) {
        lvni_kernels_flat_round_bf16(model->weights, model->n_weights);
    }
    lvni_trainer_phases_touch(model, e->now.phase);
    return lvni_trainer_move_buffers(e, total);
}

/* No fewer steps moved the average: those of the phase that was skipped least. */
static int64_t updates_of(const lvni_trainer_engine *e)
{
    int64_t most = 0;
    for (int i = 0; i < e->n_phases; i++) {
        most = e->optim->steps[i] > most ? e->optim->steps[i] : most;
    }
    return most;
}

void lvni_trainer_update_average(lvni_trainer_engine *e, const lvni_trainer_step_record *r)
{
    int last = -1; /* that updates: after a failure on the device, none */
    for (int i = 0; i < e->n_phases; i++) {
        last = r->phase[i].updated ? i : last;
    }
    if (last >= 0 && e->ema != NULL) {
        lvni_optim_ema_update(e->ema, e->o.model->weights, updates_of(e) - 1,
                              e->deferred == NULL ? NULL : &e->deferred->block->average);
    }
}

/* ---- parameters without a gradient: those that the first step gives none are reported once, as
 * they are more often a mistake than meant ---- */

enum { NAMED = 3 };

lvn_status lvni_trainer_unused_begin(lvni_trainer_engine *e)
{
    e->graded =
        lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)e->o.model->n_parameters, sizeof *e->graded);
    if (e->graded == NULL || e->o.plan.rank > 0) { /* all ranks know of all micro-batches */
        return e->graded == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    e->used = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)e->o.model->n_parameters, sizeof *e->used);
    return e->used == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

void lvni_trainer_unused_record(lvni_trainer_engine *e, const lvni_nn_set *set)
{
    for (int i = 0; i < e->o.model->n_parameters; i++) {
        e->graded[i] = e->graded[i] || set->gradients.written[i] == LVNI_GRADIENT_THERE;
    }
}

void lvni_trainer_unused_end_phase(lvni_trainer_engine *e)
{
    for (int i = 0; e->used != NULL && i < e->o.model->n_parameters; i++) {
        e->used[i] = e->used[i] || e->graded[i];
    }
}

void lvni_trainer_unused_report(lvni_trainer_engine *e)
{
    const lvni_nn_model *m = e->o.model;
    lvni_core_str names = {0};
    int n = 0, seen = 0;
    for (int i = 0; e->used != NULL && i < m->n_parameters; i++) {
        seen += e->used[i] ? 1 : 0;
        if (!e->used[i] && m->parameters[i].phase >= 0 && m->parameters[i].thaw == 0 &&
            e->o.phase[m->parameters[i].phase].every <= 1) {
            lvni_core_str_printf(&names,
                                 n > 0 && n < NAMED ? ", %s"
                                 : n == 0           ? "%s"
                                                    : "",
                                 m->parameters[i].name);
            n++;
        }
    }
    if (seen == 0) {
        lvni_core_str_free(&names);
        return; /* its samples could not be read, or it has reported before */
    }
    if (n > NAMED) {
        lvni_core_str_printf(&names, " and %d more", n - NAMED);
    }
    if (n > 0) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "the loss does not depend on %s: %s without a gradient stay%s as %s; "
                      "if that is intended, give freeze=PATTERN",
                      lvni_core_str_text(&names), lvni_core_plural(n, "a parameter", "parameters"),
                      lvni_core_plural(n, "s", ""), lvni_core_plural(n, "it is", "they are"));
    }
    lvni_core_str_free(&names);
    lvni_core_free(e->used);
    e->used = NULL;
}
