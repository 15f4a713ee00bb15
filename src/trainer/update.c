/* From the summed gradient of a phase to new weights: divide, skip or clip, update; and what a step
 * does once, after its last phase. Called by the step (step.c). */
#include "core/math.h"
#include "kernels/flat.h"
#include "tensor/device.h"
#include "trainer/loop_impl.h"
#include "trainer/phases.h"

#include <math.h>

static double norm_of(const lvni_trainer *t, const lvni_nn_set *total)
{
    const int64_t begin = t->o.model->trained_begin, end = t->o.model->trained_end;
    return t->gradient_sync != NULL
               ? lvni_optim_norm_of_blocks(
                     t->optim, lvni_trainer_gradient_sync_blocks(t->gradient_sync), begin, end)
               : lvni_optim_gradient_norm(t->optim, total->data, begin, end);
}

double lvni_trainer_loss_factor(const lvni_trainer *t)
{
    const int64_t micro_batches = t->o.plan.micro_batches,
                  largest = (t->o.plan.effective_batch + micro_batches - 1) / micro_batches;
    return t->scaler.on ? t->scaler.scale / (double)largest : 1.0;
}

lvn_status lvni_trainer_update(lvni_trainer *t, const lvni_nn_set *total,
                               lvni_trainer_step_result *r)
{
    lvni_nn_model *model = t->o.model;
    const double divisor = total->weight * lvni_trainer_loss_factor(t),
                 clip = t->o.gradient_clip_val;
    const char *name = lvni_trainer_phases_name(model, t->phase);
    lvni_trainer_phase_result *p = &r->phase[t->phase];
    r->lr =
        t->o.optim.lr * lvni_optim_schedule_factor(&t->o.schedule, t->at.step - t->scaler.skipped);
    p->grad_norm = norm_of(t, total) / divisor;
    /* errors of the merge and the norm; the kernels below run asynchronously, and theirs are
     * reported by the next step */
    LVN_TRY(lvni_tensor_device_take_error());
    p->skipped = t->scaler.on && !isfinite(p->grad_norm);
    p->updated = !p->skipped;
    if (p->skipped) {
        return LVN_OK; /* weights, statistics, averages stay as they are */
    }
    if (!isfinite(p->grad_norm)) {
        LVN_FAIL(LVN_ERR_NON_FINITE,
                 "the gradient's norm is %g at step %lld (epoch %lld%s%s): try a smaller optim.lr",
                 lvni_core_unsigned_nan(p->grad_norm), (long long)t->at.step,
                 (long long)t->at.epoch + 1, name[0] != '\0' ? ", phase " : "", name);
    }
    double scale = 1.0 / divisor;
    p->clipped = clip > 0.0 && p->grad_norm > clip;
    if (p->clipped) {
        scale *= clip / (p->grad_norm + 1e-6);
    }
    for (int i = 0; i < model->n_parameters; i++) {
        t->optim->idle[i] = !t->graded[i];
    }
    lvni_optim_step(t->optim, t->phase, model->weights, total->data, r->lr, scale);
    if (t->o.precision == LVNI_PRECISION_BF16_TRUE) {
        lvni_kernels_flat_round_bf16(model->weights, model->n_weights);
    }
    lvni_nn_model_apply_records(model, total);
    lvni_trainer_phases_touch(model, t->phase);
    return LVN_OK;
}

/* No fewer steps moved the average: those of the phase that was skipped least. */
static int64_t updates_of(const lvni_trainer *t)
{
    int64_t most = 0;
    for (int i = 0; i < t->n_phases; i++) {
        most = t->optim->steps[i] > most ? t->optim->steps[i] : most;
    }
    return most;
}

lvn_status lvni_trainer_end_updates(lvni_trainer *t, const lvni_trainer_step_result *r)
{
    bool overflow = false, updated = false;
    for (int i = 0; i < t->n_phases; i++) {
        overflow = overflow || r->phase[i].skipped;
        updated = updated || r->phase[i].updated;
    }
    if (updated && t->ema != NULL) {
        lvni_optim_ema_update(t->ema, t->o.model->weights, updates_of(t) - 1);
    }
    return t->scaler.on && (overflow || updated)
               ? lvni_trainer_scaler_update(&t->scaler, overflow, !updated)
               : LVN_OK;
}
