/* Validation after an epoch. Called by the loop (loop.c). */
#include "core/alloc.h"
#include "core/math.h"
#include "core/error.h"
#include "log/run_log.h"
#include "tensor/ctx.h"
#include "trainer/loop_impl.h"
#include "trainer/profile.h"

#include <math.h>
#include <string.h>

bool lvni_trainer_metric_exists(const lvni_nn_step *step, const char *name)
{
    for (int i = 0; i < step->n_metrics; i++) {
        if (strcmp(step->metric[i].name, name) == 0 && step->metric[i].weight != 0.0) {
            return true;
        }
    }
    return false;
}

/* Does the run come to a validation? */
static bool validates(const lvni_trainer_options *o)
{
    const int64_t epochs = o->val_every_n_epochs > 0 ? o->val_every_n_epochs : 1,
                  within = (o->val_every_n_batches + o->plan.accumulate - 1) / o->plan.accumulate,
                  first = lvni_plan_steps_before(&o->plan, epochs - 1) +
                          (within > 0 ? within : lvni_plan_steps_of(&o->plan, epochs - 1));
    if (o->val_every_s > 0.0 || o->max_epochs == 0) {
        return o->val != NULL;
    }
    return o->val != NULL && (o->max_epochs < 0 || o->max_epochs >= epochs) &&
           (o->max_steps < 0 || o->max_steps >= first);
}

int64_t lvni_trainer_validation_length(const lvni_trainer_options *o)
{
    const int64_t n = validates(o) ? o->val->cls->length(o->val) : 0,
                  most = o->evaluation.output != NULL ? 0 : o->val_chunks * o->plan.eval_batch_size;
    return most > 0 && most < n ? most : n;
}

static lvn_status make_loader(const lvni_trainer *t, int64_t chunks, lvni_data_loader **out)
{
    const lvni_data_loader_options o = {.dataset = t->o.val,
                                        .plan = &t->o.plan,
                                        .seed = t->o.seed,
                                        .in_turn = t->o.evaluation.output != NULL,
                                        .workers = t->o.workers,
                                        .max_chunks = chunks,
                                        .unreadable = t->val_unreadable};
    return lvni_data_loader_create(&o, out);
}

/* Made, and turned back, only now: its threads would decode at the expense of training. */
static lvn_status start_validation(lvni_trainer *t)
{
    const int64_t chunks = t->o.evaluation.output != NULL ? 0 : t->o.val_chunks;
    return t->val_loader != NULL ? lvni_data_loader_rewind(t->val_loader)
                                 : make_loader(t, chunks, &t->val_loader);
}

static void begin_preview(lvni_trainer *t)
{
    const lvni_trainer_preview *p = &t->o.preview;
    t->previews = p->images != NULL && p->is_due(p->user, t->o.model->root, &t->o.plan, &t->at);
}

static void end_preview(lvni_trainer *t, bool taken)
{
    const lvni_trainer_preview *p = &t->o.preview;
    if (taken && t->images.values != NULL) {
        p->take(p->user, t->images.values, t->images.shape, t->at.step);
    }
    lvni_core_free(t->images.values);
    t->images.values = NULL;
    t->previews = false;
}

lvn_status lvni_trainer_loop_check_validation(lvni_trainer *t)
{
    const bool resumed = t->at.step > 0;
    const int64_t most = t->o.val_chunks,
                  n = resumed ? 1
                      : t->o.sanity_chunks < 0 || (most > 0 && t->o.sanity_chunks > most)
                          ? most
                          : t->o.sanity_chunks;
    lvni_data_loader *loader;
    lvni_nn_step result;
    if (t->o.sanity_chunks == 0 || lvni_trainer_validation_length(&t->o) == 0 ||
        (resumed &&
         (t->report.last_val.n_metrics > 0 || !lvni_trainer_loop_monitors_validation(t)))) {
        return LVN_OK;
    }
    lvni_trainer_profile_at(LVNI_PART_VALIDATE);
    lvni_trainer_logging_halt(&t->report);
    LVN_TRY(make_loader(t, n, &loader));
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    lvni_trainer_show_average(t, true);
    begin_preview(t);
    const lvn_status s = lvni_trainer_evaluate_within(t, loader, &result);
    end_preview(t, false);
    lvni_trainer_show_average(t, false);
    lvni_tensor_fp_leave(before);
    lvni_data_loader_destroy(loader);
    lvni_trainer_logging_continue(&t->report);
    lvni_trainer_profile_at(LVNI_PART_REST);
    if (s == LVN_ERR_CANCELLED) { /* the loop finds the signal by itself */
        lvn_clear_error();
        return LVN_OK;
    }
    LVN_TRY(s);
    lvni_trainer_unreadable_report(t, t->val_unreadable);
    return lvni_trainer_loop_check_names(t, &result);
}

/* What the module makes of it; its own mistakes end the run. */
static lvn_status call_validated(lvni_trainer *t)
{
    const lvn_module *root = t->o.model->root;
    if (root->cls->validated == NULL || t->report.last_val.n_metrics == 0) {
        return LVN_OK;
    }
    lvn_clear_error();
    t->report.last_val.now.step = t->at.step;
    const uint64_t before = lvn_last_error()->serial;
    lvn_status s =
        lvni_core_error_of_callback(root->cls->validated(root, &t->report.last_val.now), before,
                                    "validated() of the module class %s", root->cls->name);
    s = s == LVN_OK ? lvn_last_error()->code : s; /* of lvn_log_number */
    lvni_nn_model_touch(t->o.model);
    return s;
}

lvn_status lvni_trainer_loop_validate(lvni_trainer *t)
{
    lvni_dist_comm_at(t->o.comm, LVNI_PLACE_VALIDATION, t->at.step);
    const lvni_trainer_part before = lvni_trainer_profile_at(LVNI_PART_VALIDATE);
    lvni_trainer_logging_halt(&t->report);
    LVN_TRY(start_validation(t));
    lvni_trainer_show_average(t, true);
    begin_preview(t);
    const lvn_status s = lvni_trainer_evaluate_within(t, t->val_loader, &t->report.last_val);
    end_preview(t, s == LVN_OK);
    lvni_trainer_show_average(t, false);
    lvni_trainer_logging_continue(&t->report);
    lvni_trainer_profile_at(before);
    t->checkpointing.signal =
        s == LVN_ERR_CANCELLED ? lvni_trainer_stop_signal() : t->checkpointing.signal;
    LVN_TRY(s);
    lvni_trainer_unreadable_report(t, t->val_unreadable);
    LVN_TRY(call_validated(t));
    const double loss = lvni_trainer_metric_mean(&t->report.last_val, "loss");
    if (lvni_trainer_metric_exists(&t->report.last_val, "loss") && !isfinite(loss)) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "the validation loss is %g after step %lld (epoch %lld): a smaller optim.lr "
                      "or gradient_clip_val=1 may help, and early_stopping.monitor=val/loss ends "
                      "such a run",
                      lvni_core_unsigned_nan(loss), (long long)t->at.step,
                      (long long)t->at.epoch + 1);
    }
    return LVN_OK;
}
