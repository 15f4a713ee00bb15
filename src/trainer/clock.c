/* What is due by the clock: a validation, a checkpoint, the end of the run by max_time or by the
 * job's limit. Rank 0 has the clock of the run. Called by the loop (loop.c) and by validations
 * (evaluate.c); a checkpoint keeps the times (save.c, state.c). */
#include "core/machine.h"
#include "trainer/loop_impl.h"
#include "trainer/state_impl.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

void lvni_trainer_clock_begin(lvni_trainer *t)
{
    const uint64_t now = lvni_core_now_ns(), before = t->unvalidated_ns;
    t->checkpointing.saved_ns = now;
    t->validated_ns = now > before ? now - before : 0;
    t->unvalidated_ns = 0;
}

bool lvni_trainer_clock_save_is_due(const lvni_trainer *t)
{
    return t->o.keep.every_s > 0.0 && t->o.plan.rank == 0 &&
           (double)(lvni_core_now_ns() - t->checkpointing.saved_ns) >= t->o.keep.every_s * 1e9;
}

/* The job may have got more time meanwhile. */
static void look_at_limit(lvni_trainer *t)
{
    if (t->o.stop_ns == 0 || lvni_trainer_stop_signal() != 0 ||
        lvni_core_now_ns() + 2 * t->checkpointing.longest_ns < t->o.stop_ns) {
        return;
    }
    const uint64_t later = t->o.stop_later != NULL ? t->o.stop_later() : 0;
    t->checkpointing.at_limit = later == 0;
    t->o.stop_ns = later > 0 ? later : t->o.stop_ns;
    if (later == 0) {
        lvni_trainer_stop_record(SIGUSR1);
    }
}

void lvni_trainer_clock_look_at_max_time(const lvni_trainer *t)
{
    if (t->o.max_time_s > 0.0 && t->o.plan.rank == 0 && lvni_trainer_stop_signal() == 0 &&
        lvni_trainer_logging_seconds(&t->report) >= t->o.max_time_s) {
        lvni_trainer_stop_record(LVNI_STOP_TIME);
    }
}

void lvni_trainer_clock_look(lvni_trainer *t)
{
    t->engine->validation_due =
        t->o.val_every_s > 0.0 &&
        (double)(lvni_core_now_ns() - t->validated_ns) >= t->o.val_every_s * 1e9;
    t->engine->save_due = t->engine->sharded != NULL && lvni_trainer_clock_save_is_due(t);
    lvni_trainer_clock_look_at_max_time(t);
    look_at_limit(t);
}

/* Other processes learn of it over the control channel, as of a stop before a step. */
void lvni_trainer_clock_look_within(lvni_trainer *t)
{
    if (!t->checkpointing.timed) {
        return;
    }
    lvni_trainer_clock_look_at_max_time(t);
    look_at_limit(t);
    if (t->o.control == NULL) {
        return;
    }
    const int own = lvni_trainer_stop_signal();
    if (own != 0 && !t->checkpointing.stop_asked) {
        lvni_control_request_stop(t->o.control, own);
        t->checkpointing.stop_asked = true;
    }
    lvni_trainer_stop_record(lvni_control_stop_reason(t->o.control));
}

/* ---- in a checkpoint ---- */

void lvni_trainer_clock_print(const lvni_trainer *t, char *text, size_t size)
{
    text[0] = '\0';
    if (t->o.max_time_s > 0.0 || t->o.val_every_s > 0.0) {
        snprintf(text, size, "trained_ns=%" PRIu64 " unvalidated_ns=%" PRIu64,
                 (uint64_t)(lvni_trainer_logging_seconds(&t->report) * 1e9),
                 lvni_core_now_ns() - t->validated_ns);
    }
}

/* A run that takes up such keys has its log's time, and no validation before. */
lvn_status lvni_trainer_clock_read(const lvni_ckpt *ckpt, lvni_trainer_clock *out)
{
    const char *text = lvni_ckpt_st_meta_get(ckpt->file, LVNI_STATE_CLOCK);
    int end = 0;
    *out = (lvni_trainer_clock){0};
    if (text != NULL && (sscanf(text, "trained_ns=%" SCNu64 " unvalidated_ns=%" SCNu64 "%n",
                                &out->trained_ns, &out->unvalidated_ns, &end) != 2 ||
                         text[end] != '\0')) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: its metadata " LVNI_STATE_CLOCK
                 " is %.200s, not trained_ns=NUMBER unvalidated_ns=NUMBER",
                 ckpt->path, text);
    }
    return LVN_OK;
}
