/* The training loop: steps, and what happens between them. */
#include "core/alloc.h"
#include "core/str.h"
#include "log/run_log.h"
#include "trainer/trainer.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static bool finished(const lvni_trainer *t)
{
    return (t->o.max_epochs >= 0 && t->at.epoch >= t->o.max_epochs) ||
           (t->o.max_steps >= 0 && t->at.step >= t->o.max_steps);
}

static lvn_status start_loader(lvni_trainer *t)
{
    const lvni_loader_options o = {.dataset = t->o.train,
                                   .plan = &t->o.plan,
                                   .training = true,
                                   .seed = t->o.seed,
                                   .workers = t->o.workers,
                                   .skip_unreadable = t->o.skip_unreadable,
                                   .epoch = (uint32_t)t->at.epoch,
                                   .step_in_epoch = t->at.step_in_epoch,
                                   .max_epochs = t->o.max_epochs > 0 ? (uint32_t)t->o.max_epochs : 0};
    return lvni_loader_create(&o, &t->loader);
}

static void tell_unreadable(lvni_loader *loader)
{
    lvni_str text = {0};
    if (lvni_loader_report(loader, &text)) {
        lvni_log_line(LVNI_LOG_WARNING, "%s", lvni_str_text(&text));
    }
    lvni_str_free(&text);
}

/* Is this epoch the best so far? By val/acc, then val/loss, then train/loss, whichever the module reports
 * first. */
static bool improved(lvni_trainer *t, bool validated)
{
    double score = validated ? lvni_metric_mean(&t->last_val, "acc") : (double)NAN;
    if (isnan(score) && validated) {
        score = -lvni_metric_mean(&t->last_val, "loss");
    } else if (isnan(score)) {
        score = -lvni_metric_mean(&t->epoch_sum, "loss");
    }
    if (isnan(score) || (!isnan(t->at.best_score) && score <= t->at.best_score)) {
        return false;
    }
    t->at.best_score = score;
    t->at.best_step = t->at.step;
    return true;
}

static bool all_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return false;
        }
    }
    return true;
}

/* A checkpoint that cannot be used must not take the place of one that can: the loss tells only one step
 * later. */
static lvn_status check_weights(const lvni_trainer *t)
{
    const lvni_model *m = t->o.model;
    const char *name = NULL;
    for (int i = 0; i < m->n_buffers && name == NULL; i++) {
        const lvn_tensor *b = m->buffers[i]->tensor;
        name = b->dtype == LVN_F32 && !all_finite(b->data, lvn_numel(b)) ? m->buffers[i]->name : NULL;
    }
    for (int i = 0; i < m->n_parameters && name == NULL; i++) {
        const lvn_tensor *p = m->parameters[i].tensor;
        name = all_finite(p->data, lvn_numel(p)) ? NULL : m->parameters[i].name;
    }
    if (name != NULL) {
        LVN_FAIL(
            LVN_ERR_NON_FINITE,
            "%s is not finite after step %lld (epoch %lld): try a smaller optim.lr or gradient_clip_val=1",
            name, (long long)t->at.step, (long long)t->at.epoch);
    }
    return LVN_OK;
}

static lvn_status save(lvni_trainer *t, bool best)
{
    LVN_TRY(check_weights(t));
    LVN_TRY(lvni_trainer_save(t, "last"));
    t->saved_step = t->at.step;
    if (best) {
        LVN_TRY(lvni_trainer_link_best(t));
    }
    if (t->o.export_model != NULL) {
        LVN_TRY(t->o.export_model(t->o.user, "last"));
    }
    return best && t->o.export_model != NULL ? t->o.export_model(t->o.user, "best") : LVN_OK;
}

static bool reports(const lvn_step *step, const char *name)
{
    for (int i = 0; i < step->n_metrics; i++) {
        if (strcmp(step->metric[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Made, and turned back, only now: its threads would decode at the expense of training. */
static lvn_status start_validation(lvni_trainer *t)
{
    if (t->val_loader != NULL) {
        return lvni_loader_rewind(t->val_loader);
    }
    const lvni_loader_options o = {.dataset = t->o.val,
                                   .plan = &t->o.plan,
                                   .seed = t->o.seed,
                                   .workers = t->o.workers,
                                   .skip_unreadable = t->o.skip_unreadable};
    return lvni_loader_create(&o, &t->val_loader);
}

static lvn_status validate(lvni_trainer *t)
{
    LVN_TRY(start_validation(t));
    LVN_TRY(lvni_evaluate(t->o.model, t->val_loader, t->lanes, &t->last_val));
    tell_unreadable(t->val_loader);
    const double loss = lvni_metric_mean(&t->last_val, "loss");
    if (reports(&t->last_val, "loss") && !isfinite(loss)) {
        LVN_FAIL(LVN_ERR_NON_FINITE,
                 "the validation loss is %g after step %lld (epoch %lld): try a smaller optim.lr or "
                 "gradient_clip_val=1",
                 loss, (long long)t->at.step, (long long)t->at.epoch);
    }
    return LVN_OK;
}

/* A signal asked for the end: save, and say where the run can go on. */
static lvn_status stop(lvni_trainer *t, int signal_number, bool saved)
{
    const char *name = signal_number == SIGINT ? "Ctrl-C" : signal_number == SIGTERM ? "SIGTERM" : "SIGUSR1";
    const lvn_status s = saved ? LVN_OK : save(t, false);
    if (s != LVN_OK && signal_number == SIGUSR1) {
        return s; /* its exit code promises a checkpoint */
    }
    if (s != LVN_OK) {
        LVN_FAIL(LVN_ERR_CANCELLED,
                 "stopped by %s after step %lld (epoch %lld), but the checkpoint could not be saved: %s",
                 name, (long long)t->at.step, (long long)t->at.epoch, lvn_last_error()->message);
    }
    LVN_FAIL(
        LVN_ERR_CANCELLED,
        "stopped by %s after step %lld (epoch %lld); the checkpoint is saved: resume=true goes on from there",
        name, (long long)t->at.step, (long long)t->at.epoch);
}

/* A sample, a file or the user's code failed after the last step: what was learned up to there is good, and is saved. Adds to the
 * error where the run can go on. */
static lvn_status keep(lvni_trainer *t, lvn_status failed)
{
    lvn_error error = *lvn_last_error();
    const size_t n = strlen(error.message);
    if (failed == LVN_ERR_NON_FINITE || failed == LVN_ERR_INTERNAL || t->o.out == NULL || t->at.step == 0) {
        return failed;
    }
    const bool saved = t->saved_step == t->at.step || save(t, false) == LVN_OK;
    if (saved) {
        snprintf(error.message + n, sizeof error.message - n,
                 "; step %lld (epoch %lld) is saved: resume=true goes on from there", (long long)t->at.step, (long long)t->at.epoch);
    } else {
        snprintf(error.message + n, sizeof error.message - n, "; and saving step %lld failed: %s", (long long)t->at.step,
                 lvn_last_error()->message);
    }
    return lvn_error_adopt(&error);
}

static bool epoch_done(const lvni_trainer *t)
{
    return t->at.step_in_epoch >= t->o.plan.steps_per_epoch;
}

/* After an epoch's last step: validation, means, the checkpoint of the next epoch's beginning. What ends the run during validation leaves
 * the position between the two: all steps of the epoch done, the epoch not; resuming begins here. */
static lvn_status end_epoch(lvni_trainer *t)
{
    const lvn_status s = t->o.val != NULL ? validate(t) : LVN_OK;
    if (s == LVN_ERR_CANCELLED && lvni_stop_signal() != 0) {
        return stop(t, lvni_stop_signal(), false);
    }
    if (s != LVN_OK) {
        return keep(t, s);
    }
    const bool validated =
        t->o.val != NULL && t->last_val.n_metrics > 0; /* else no sample of it could be read */
    LVN_TRY(lvni_report_epoch(t, validated));
    const bool best = improved(t, validated);
    t->at.epoch++;
    t->at.step_in_epoch = 0;
    t->epoch_sum = (lvn_step){0};
    t->at.finished = finished(t);
    return save(t, best);
}

/* With on_error=skip: a run that learned nothing must not end as if it had. */
static lvn_status check_readable(const lvni_trainer *t)
{
    if (lvni_loader_get_stats(t->loader).unreadable == t->o.plan.n_samples || t->at.samples_seen == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "none of the training samples read in %lld steps (of %lld samples in all) could be used: "
                 "see the warnings for their names",
                 (long long)t->at.step, (long long)t->o.plan.n_samples);
    }
    return LVN_OK;
}

/* Between two steps: end of the epoch, periodic checkpoint, a signal. */
static lvn_status after_step(lvni_trainer *t)
{
    const int64_t every = t->o.save_every_n_steps;
    bool saved = false;
    if (epoch_done(t) || finished(t)) {
        LVN_TRY(check_readable(t));
    }
    if (epoch_done(t)) {
        LVN_TRY(end_epoch(t));
        saved = true;
    } else if (finished(t) || (every > 0 && t->at.step % every == 0)) {
        t->at.finished = finished(t);
        LVN_TRY(save(t, t->at.finished && isnan(t->at.best_score)));
        saved = true;
    }
    const int signal_number = lvni_stop_signal();
    return signal_number == 0 || finished(t) ? LVN_OK : stop(t, signal_number, saved);
}

static lvn_status loop(lvni_trainer *t)
{
    if (epoch_done(t)) {
        LVN_TRY(end_epoch(t)); /* resumed where the validation is missing */
    }
    LVN_TRY(finished(t) ? LVN_OK : start_loader(t));
    while (!finished(t)) {
        lvni_step_result result;
        const lvn_status s = lvni_trainer_step(t, &result);
        if (s != LVN_OK) {
            return keep(t, s);
        }
        tell_unreadable(t->loader);
        LVN_TRY(lvni_report_step(t, &result, epoch_done(t) || finished(t)));
        LVN_TRY(after_step(t));
    }
    return LVN_OK;
}

/* After a value that is not finite: what is left to go on from. */
static void tell_last_good(const lvni_trainer *t)
{
    const lvn_error *e = lvn_last_error();
    if (t->saved_step >= 0 && t->o.out != NULL) {
        lvn_error_set(e->code, e->file, e->line, "%s; %s/checkpoints/last.safetensors keeps step %lld",
                      e->message, t->o.out, (long long)t->saved_step);
    } else {
        lvn_error_set(e->code, e->file, e->line, "%s; no checkpoint was written before", e->message);
    }
}

lvn_status lvni_trainer_fit(lvni_trainer *t)
{
    if (finished(t) && !epoch_done(t)) {
        lvni_log_line(
            LVNI_LOG_INFO,
            "nothing to do: the run is at step %lld, epoch %lld; a larger max_epochs or max_steps trains on",
            (long long)t->at.step, (long long)t->at.epoch);
        return LVN_OK;
    }
    LVN_TRY(lvni_report_open(t));
    const lvn_status s = loop(t);
    if (s == LVN_ERR_NON_FINITE) {
        tell_last_good(t);
    }
    lvni_progress_finish(&t->progress);
    return s;
}
