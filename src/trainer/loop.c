/* The training loop: steps, and what happens between them. */
#include "core/alloc.h"
#include "core/str.h"
#include "log/run_log.h"
#include "trainer/trainer.h"

#include <math.h>
#include <signal.h>

static bool finished(const lvni_trainer *t)
{
    return (t->o.max_epochs >= 0 && t->at.epoch >= t->o.max_epochs) || (t->o.max_steps >= 0 && t->at.step >= t->o.max_steps);
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

/* Is this epoch the best so far? By val/acc, then val/loss, then train/loss, whichever the module reports first. */
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

static lvn_status save(lvni_trainer *t, bool best)
{
    LVN_TRY(lvni_trainer_save(t, "last"));
    if (best) {
        LVN_TRY(lvni_trainer_link_best(t));
    }
    if (t->o.export_model != NULL) {
        LVN_TRY(t->o.export_model(t->o.user, "last"));
    }
    return best && t->o.export_model != NULL ? t->o.export_model(t->o.user, "best") : LVN_OK;
}

static lvn_status validate(lvni_trainer *t)
{
    LVN_TRY(lvni_evaluate(t->o.model, t->val_loader, t->lanes, &t->last_val));
    tell_unreadable(t->val_loader);
    return lvni_loader_rewind(t->val_loader);
}

/* After an epoch's last step: validation, means, the checkpoint of the next epoch's beginning. */
static lvn_status end_epoch(lvni_trainer *t)
{
    const bool validated = t->val_loader != NULL;
    if (validated) {
        LVN_TRY(validate(t));
    }
    LVN_TRY(lvni_report_epoch(t, validated));
    const bool best = improved(t, validated);
    t->at.epoch++;
    t->at.step_in_epoch = 0;
    t->epoch_sum = (lvn_step){0};
    t->at.finished = finished(t);
    return save(t, best);
}

/* Between two steps: end of the epoch, periodic checkpoint, a signal. */
static lvn_status after_step(lvni_trainer *t)
{
    const int64_t every = t->o.save_every_n_steps;
    bool saved = false;
    if (t->at.step_in_epoch == t->o.plan.steps_per_epoch) {
        LVN_TRY(end_epoch(t));
        saved = true;
    } else if (finished(t) || (every > 0 && t->at.step % every == 0)) {
        t->at.finished = finished(t);
        LVN_TRY(save(t, t->at.finished && isnan(t->at.best_score)));
        saved = true;
    }
    const int signal_number = lvni_stop_signal();
    if (signal_number == 0) {
        return LVN_OK;
    }
    if (!saved) {
        LVN_TRY(save(t, false));
    }
    LVN_FAIL(LVN_ERR_CANCELLED, "stopped by %s after step %lld (epoch %lld); the checkpoint is saved: resume=true goes on from there",
             signal_number == SIGINT ? "Ctrl-C" : signal_number == SIGTERM ? "SIGTERM" : "SIGUSR1", (long long)t->at.step,
             (long long)t->at.epoch);
}

static lvn_status loop(lvni_trainer *t)
{
    while (!finished(t)) {
        lvni_step_result result;
        LVN_TRY(lvni_trainer_step(t, &result));
        tell_unreadable(t->loader);
        LVN_TRY(lvni_report_step(t, &result, t->at.step_in_epoch == t->o.plan.steps_per_epoch || finished(t)));
        LVN_TRY(after_step(t));
    }
    return LVN_OK;
}

lvn_status lvni_trainer_fit(lvni_trainer *t)
{
    if (finished(t)) {
        lvni_log_line(LVNI_LOG_INFO, "nothing to do: the run is at step %lld, epoch %lld; a larger max_epochs or max_steps trains on",
                 (long long)t->at.step, (long long)t->at.epoch);
        return LVN_OK;
    }
    LVN_TRY(lvni_report_open(t));
    lvn_status s = start_loader(t);
    if (s == LVN_OK) {
        s = loop(t);
    }
    lvni_progress_finish(&t->progress);
    return s;
}
