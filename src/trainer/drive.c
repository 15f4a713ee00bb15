/* Training that a caller drives (trainer.h): single steps, and between them validation, checkpoints
 * at any path, and going on from one. What fit does in one call is in loop.c. */
#include "core/machine.h"
#include "core/math.h"
#include "log/run_log.h"
#include "tensor/ctx.h"
#include "trainer/loop_impl.h"

#include <string.h>

static lvn_status end_epoch(lvni_trainer *t)
{
    LVN_TRY(lvni_trainer_unreadable_check_rest(t));
    LVN_TRY(lvni_trainer_logging_epoch(&t->report, &t->at, &t->engine->scaler, false));
    LVN_TRY(lvni_trainer_loop_follow(t, LVNI_NEWS_EPOCH));
    lvni_trainer_loop_next_epoch(t);
    return LVN_OK;
}

/* No validation follows a step, so its metrics cannot move the rate as they do in fit. */
static lvn_status check_monitor(const lvni_trainer *t)
{
    if (t->o.schedule.kind == LVNI_SCHEDULE_PLATEAU &&
        strncmp(t->o.plateau.monitor, "val/", 4) == 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "scheduler=plateau follows scheduler.monitor=%s, and single steps do not "
                 "validate: give a metric of the training, as train/loss, or use lvn_trainer_fit",
                 t->o.plateau.monitor);
    }
    if (t->o.early.monitor != NULL && strncmp(t->o.early.monitor, "val/", 4) == 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "early_stopping.monitor=%s: single steps do not validate: give a metric of the "
                 "training, as train/loss, or use lvn_trainer_fit",
                 t->o.early.monitor);
    }
    return LVN_OK;
}

static lvn_status advance(lvni_trainer *t, lvni_trainer_step_result *r)
{
    if (lvni_trainer_ends_at(t, &t->at)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "the run is at its end: step %lld, %lld epoch%s done; a larger max_epochs or "
                 "max_steps trains on",
                 (long long)t->at.step, (long long)t->at.epoch,
                 lvni_core_plural(t->at.epoch, " is", "s are"));
    }
    LVN_TRY(check_monitor(t));
    if (lvni_trainer_loop_epoch_done(t)) { /* of a run that ended during its validation */
        LVN_TRY(lvni_trainer_loop_follow(t, LVNI_NEWS_EPOCH));
        lvni_trainer_loop_next_epoch(t);
    }
    LVN_TRY(lvni_trainer_loop_begin(t));
    LVN_TRY(lvni_trainer_loop_begin_step(t));
    const int agreed =
        t->checkpointing.signal; /* over the control channel; else in the step's message */
    LVN_TRY(lvni_trainer_step(t, r));
    t->checkpointing.signal = agreed != 0 ? agreed : t->checkpointing.signal;
    t->report.waited_ns = lvni_data_loader_get_stats(t->loader).wait_ns;
    const bool done = lvni_trainer_loop_epoch_done(t);
    LVN_TRY(lvni_trainer_logging_step(&t->report, r, done || lvni_trainer_ends_at(t, &t->at)));
    LVN_TRY(done ? end_epoch(t) : LVN_OK);
    t->at.finished = lvni_trainer_finished(t);
    return LVN_OK;
}

lvn_status lvni_trainer_advance(lvni_trainer *t, lvni_trainer_step_result *r)
{
    return t->report.ended = advance(t, r);
}

lvn_status lvni_trainer_validate(lvni_trainer *t)
{
    LVN_TRY(lvni_trainer_loop_begin(t));
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    const lvn_status s = lvni_trainer_loop_validate(t);
    lvni_tensor_fp_leave(before);
    LVN_TRY(s);
    return lvni_trainer_logging_validation(&t->report, &t->at);
}

lvn_status lvni_trainer_save_as(lvni_trainer *t, const char *path)
{
    if (t->engine->sharded != NULL) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "strategy=sharded: this rank alone has not all of the optimizer's state; use "
                 "strategy=ddp");
    }
    LVN_TRY(lvni_trainer_checkpointing_check_weights(t));
    return lvni_trainer_save_at(t, path);
}

/* The loader begins again at the new position. */
static void drop_batches(lvni_trainer *t)
{
    if (t->engine->prefetch != NULL) {
        lvni_trainer_prefetch_drop(t->engine->prefetch); /* batches of steps that will not be */
    }
    lvni_data_loader_destroy(t->loader);
    t->loader = NULL;
}

void lvni_trainer_skip_to(lvni_trainer *t, int64_t step_in_epoch)
{
    t->at.step_in_epoch = step_in_epoch;
    drop_batches(t);
}

lvn_status lvni_trainer_load(lvni_trainer *t, const lvni_ckpt *ckpt)
{
    LVN_TRY(lvni_trainer_save_wait(t));
    LVN_TRY(lvni_trainer_restore(t, ckpt));
    drop_batches(t);
    t->report.samples = t->report.logged_at = 0;
    t->report.logged_at_step = t->at.step;
    t->report.start_ns = lvni_core_now_ns();
    t->checkpointing.saved_step = -1; /* the run directory's last is of another state */
    lvni_trainer_logging_close(&t->report);
    return LVN_OK;
}
