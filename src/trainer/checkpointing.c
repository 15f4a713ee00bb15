/* What a run leaves behind: checkpoints between steps, the best epoch, and where it can go on after
 * a signal or an error; and which signal ends it. Called by the loop (loop.c). */
#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/signals.h"
#include "core/str.h"
#include "core/training.h"
#include "kernels/flat.h"
#include "log/run_log.h"
#include "tensor/device.h"
#include "trainer/loop_impl.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* ---- the stop: a signal of this process, whose handlers are core/signals.c's, or the one that its
 * ranks agreed on, which is apart: a second Ctrl-C must be its own ---- */

void lvni_trainer_stop_install(void)
{
    lvni_core_training_get()->agreed = 0;
    lvni_core_signals_install();
}

int lvni_trainer_stop_signal(void)
{
    /* first: the launcher may send this process another one while it saves */
    const int of_all = lvni_core_training_get()->agreed;
    return of_all != 0 ? of_all : lvni_core_signals_asked();
}

void lvni_trainer_stop_record(int signal_number)
{
    if (signal_number != 0) {
        lvni_core_training_get()->agreed = signal_number;
    }
}

void lvni_trainer_stop_forget_time(void)
{
    if (lvni_core_training_get()->agreed == LVNI_STOP_TIME) {
        lvni_core_training_get()->agreed = 0;
    }
}

/* ---- checkpoints ---- */

/* Where x lies: squares in f64 do not overflow, so their sum is finite when all values are. */
static bool all_finite(const float *x, int64_t n, double *partial)
{
    lvni_kernels_flat_block_sumsq(x, n, partial);
    return isfinite(lvni_kernels_flat_sum_tree(partial, lvni_kernels_flat_blocks(n)));
}

/* The first buffer, else parameter, that is not finite; NULL: all are. */
static const char *find_not_finite(const lvni_nn_model *m, double *partial)
{
    if (all_finite(m->weights, m->n_values, partial)) {
        return NULL;
    }
    for (int i = 0; i < m->n_buffers; i++) {
        const lvn_buffer *b = m->buffers[i];
        if (!all_finite(m->weights + b->value_offset, b->numel, partial)) {
            return b->name;
        }
    }
    for (int i = 0; i < m->n_parameters; i++) {
        if (!all_finite(m->weights + m->offset[i], m->parameters[i].numel, partial)) {
            return m->parameters[i].name;
        }
    }
    return NULL;
}

/* A checkpoint that cannot be used must not take the place of one that can: the loss shows it only
 * one step later. */
lvn_status lvni_trainer_checkpointing_check_weights(const lvni_trainer *t)
{
    const lvni_nn_model *m = t->o.model;
    double *partial = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)lvni_kernels_flat_blocks(m->n_values),
                                       sizeof *partial);
    if (partial == NULL) {
        return LVN_ERR_MEMORY;
    }
    const char *name = find_not_finite(m, partial);
    lvni_core_free(partial);
    LVN_TRY(lvni_tensor_device_take_error());
    if (name != NULL) {
        LVN_FAIL(LVN_ERR_NON_FINITE,
                 "%s is not finite after step %lld (epoch %lld): try a smaller optim.lr or "
                 "gradient_clip_val=1",
                 name, (long long)t->at.step, (long long)t->at.epoch + 1);
    }
    return LVN_OK;
}

lvn_status lvni_trainer_checkpointing_save(lvni_trainer *t, bool best)
{
    LVN_TRY(lvni_trainer_checkpointing_check_weights(t));
    LVN_TRY(lvni_trainer_save_gather(t));
    return t->o.plan.rank == 0 ? lvni_trainer_save_start(t, best) : LVN_OK;
}

/* The state of now, on the disk when this returns; `started`: its save is running already. What
 * failed is tried once more: disks that were full or away may be back. */
static lvn_status save_now(lvni_trainer *t, bool started)
{
    lvn_status s = lvni_trainer_save_wait(t);
    if (s != LVN_OK) {
        lvni_log_line(LVNI_LOG_WARNING, "%s; trying again", lvn_last_error()->message);
    }
    if (s != LVN_OK || !started) {
        const bool only = t->checkpointing.signal == LVNI_STOP_TIME && isnan(t->at.best_score);
        s = lvni_trainer_checkpointing_save(t, only || t->at.best_step == t->at.step);
        if (s == LVN_OK) {
            s = lvni_trainer_save_wait(t);
        }
    }
    return s;
}

/* A signal asked for the end: save, and report where the run can go on. */
lvn_status lvni_trainer_checkpointing_stop(lvni_trainer *t, int signal_number, bool saved)
{
    const bool time = signal_number == LVNI_STOP_TIME;
    const char *name = time                        ? "max_time is over"
                       : t->checkpointing.at_limit ? "the job's time limit"
                                                   : lvni_core_signal_name(signal_number);
    lvni_trainer_stop_record(signal_number);
    lvn_status s = save_now(t, saved);
    if (t->o.comm != NULL) {
        /* all wait for rank 0's checkpoint: launchers give the others only seconds once the
         * first is gone */
        s = lvni_dist_comm_agree_status(t->o.comm, s, "the checkpoint");
    }
    if (s == LVN_ERR_PEER || (s != LVN_OK && (signal_number == SIGUSR1 || time))) {
        return s; /* the exit code promises a checkpoint */
    }
    if (s != LVN_OK) {
        LVN_FAIL(LVN_ERR_CANCELLED,
                 "%s after step %lld (epoch %lld), but the checkpoint could not be saved: %s", name,
                 (long long)t->at.step, (long long)t->at.epoch + 1, lvn_last_error()->message);
    }
    LVN_FAIL(
        LVN_ERR_CANCELLED,
        "%s after step %lld (epoch %lld); the checkpoint is saved: resume=true goes on from there",
        name, (long long)t->at.step, (long long)t->at.epoch + 1);
}

/* Some weights are ahead of the others: a run that went on from them would be another one. */
static void keep_none(lvni_trainer *t)
{
    if (lvni_trainer_save_wait(t) != LVN_OK) {
        lvni_log_line(LVNI_LOG_WARNING, "%s", lvn_last_error()->message);
    }
    const char *none = t->engine->sharded != NULL
                           ? "; with strategy=sharded rank 0 alone has not all of the state: "
                             "nothing can be saved"
                       : t->engine->n_phases > 1
                           ? "; between two phases of a step nothing can be saved"
                           : "; the device has done a part of the step: nothing can be saved";
    if (t->checkpointing.saved_step >= 0) {
        snprintf(t->checkpointing.kept, sizeof t->checkpointing.kept,
                 "%s: %s/checkpoints/last.safetensors keeps step %lld", none, t->o.out,
                 (long long)t->checkpointing.saved_step);
    } else {
        snprintf(t->checkpointing.kept, sizeof t->checkpointing.kept,
                 "%s, and no checkpoint was written before", none);
    }
}

/* Other ranks may have failed, and their parts of the optimizer's state do not come any more. */
static bool has_all_state(const lvni_trainer *t)
{
    return t->engine->sharded == NULL || t->checkpointing.gathered_step == t->at.step ||
           t->checkpointing.saved_step == t->at.step;
}

bool lvni_trainer_checkpointing_comes_again(lvn_status failed)
{
    return failed == LVN_ERR_SHAPE || failed == LVN_ERR_DTYPE || failed == LVN_ERR_UNSUPPORTED ||
           failed == LVN_ERR_USAGE || failed == LVN_ERR_DEVICE_MEMORY;
}

static void keep_step(lvni_trainer *t, lvn_status failed)
{
    const bool waited = lvni_trainer_save_wait(t) == LVN_OK; /* first: it sets saved_step */
    if (save_now(t, waited && t->checkpointing.saved_step == t->at.step) == LVN_OK) {
        snprintf(t->checkpointing.kept, sizeof t->checkpointing.kept,
                 lvni_trainer_checkpointing_comes_again(failed) ||
                         lvni_data_unreadable_is_over(t->unreadable) ||
                         lvni_data_unreadable_is_over(t->val_unreadable)
                     ? "; step %lld (epoch %lld) is saved, and a run resumed without a change of "
                       "what is wrong would end here again"
                     : "; step %lld (epoch %lld) is saved: resume=true goes on from there",
                 (long long)t->at.step, (long long)t->at.epoch + 1);
        return;
    }
    char last[64] = "";
    if (t->checkpointing.saved_step >= 0) {
        snprintf(last, sizeof last, "; the last saved step is %lld",
                 (long long)t->checkpointing.saved_step);
    }
    snprintf(t->checkpointing.kept, sizeof t->checkpointing.kept,
             "; and saving step %lld failed: %.640s%s", (long long)t->at.step,
             lvn_last_error()->message, last);
}

/* A sample, a file or the user's code failed after the last step: what was learned up to there is
 * good, and is saved; t->keeper.kept: where the run can go on. */
lvn_status lvni_trainer_checkpointing_save_on_error(lvni_trainer *t, lvn_status failed)
{
    lvni_trainer_checkpointing_report_ranks(t, failed);
    const lvn_error error = *lvn_last_error();
    if (failed == LVN_ERR_NON_FINITE || failed == LVN_ERR_INTERNAL || t->o.out == NULL ||
        t->at.step == 0) {
        return failed;
    }
    if (lvni_trainer_engine_torn(t->engine) || !has_all_state(t)) {
        keep_none(t);
    } else {
        lvni_dist_comm_at(t->o.comm, LVNI_PLACE_SAVE, t->at.step);
        keep_step(t, failed);
        lvni_dist_comm_at(t->o.comm, LVNI_PLACE_END, t->at.step);
    }
    return lvni_core_error_collect(failed, &error, "the training");
}

lvn_status lvni_trainer_checkpointing_agree_stop(lvni_trainer *t)
{
    int32_t signal_number = lvni_trainer_stop_signal();
    if (t->o.comm != NULL) {
        LVN_TRY(lvni_dist_comm_all_reduce(t->o.comm, &signal_number, &signal_number, 1, LVN_I32,
                                          LVNI_REDUCE_MAX));
    }
    lvni_trainer_stop_record(signal_number);
    t->checkpointing.signal = signal_number;
    return LVN_OK;
}

/* With the place of it: step, phase, micro-batch. */
void lvni_trainer_checkpointing_report_ranks(lvni_trainer *t, lvn_status failed)
{
    const bool own = failed != LVN_OK && failed != LVN_ERR_PEER &&
                     (failed != LVN_ERR_CANCELLED || t->checkpointing.signal == 0);
    if (own && t->o.comm != NULL) {
        const lvn_error error = *lvn_last_error();
        char why[sizeof error.message];
        const char *place = error.n_frames > 0 ? error.frames[error.n_frames - 1] : "";
        snprintf(why, sizeof why, place[0] != '\0' ? "%s (in %s)" : "%s%s", error.message, place);
        lvni_dist_comm_abort(t->o.comm, why);
        lvn_error_adopt(&error);
    }
}

/* After a value that is not finite: what is left to go on from. */
void lvni_trainer_checkpointing_report_last_good(lvni_trainer *t)
{
    if (t->checkpointing.saved_step >= 0 && t->o.out != NULL) {
        snprintf(t->checkpointing.kept, sizeof t->checkpointing.kept,
                 "; %s/checkpoints/last.safetensors keeps step %lld", t->o.out,
                 (long long)t->checkpointing.saved_step);
    } else {
        snprintf(t->checkpointing.kept, sizeof t->checkpointing.kept,
                 "; no checkpoint was written before");
    }
}
