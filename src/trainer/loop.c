/* The training loop: steps, and what happens between them. How a run is kept and stopped is in
 * checkpointing.c, validation in validate.c. */
#include "core/error.h"
#include "core/machine.h"
#include "core/signals.h"
#include "log/run_log.h"
#include "trainer/excerpt.h"
#include "trainer/loop_impl.h"
#include "trainer/profile.h"

#include <signal.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool finished_at(const lvni_trainer *t, const lvni_ckpt_position *at)
{
    const bool early = t->early.reason != LVNI_EARLY_GOES_ON && at->epoch >= t->o.min_epochs &&
                       at->step >= t->o.min_steps;
    return early || (t->o.max_epochs >= 0 && at->epoch >= t->o.max_epochs) ||
           (t->o.max_steps >= 0 && at->step >= t->o.max_steps);
}

static bool finished(const lvni_trainer *t)
{
    return finished_at(t, &t->at);
}

void lvni_trainer_end_reason(const lvni_trainer *t, char *text, size_t size)
{
    if (t->checkpointing.signal == LVNI_STOP_TIME) {
        snprintf(text, size, "max_time");
    } else if (t->o.max_steps >= 0 && t->at.step >= t->o.max_steps) {
        snprintf(text, size, "max_steps=%lld", (long long)t->o.max_steps);
    } else if (t->o.max_epochs >= 0 && t->at.epoch >= t->o.max_epochs) {
        snprintf(text, size, "max_epochs=%lld", (long long)t->o.max_epochs);
    } else {
        snprintf(text, size, "%s", finished(t) ? "early stopping" : "");
    }
}

/* Of the position's epoch. */
static int64_t steps_of(const lvni_trainer *t, const lvni_ckpt_position *at)
{
    return lvni_plan_steps_of(&t->o.plan, at->epoch);
}

/* The next step ends the run, unless a signal or an error does. */
static bool is_last_step(const lvni_trainer *t)
{
    return (t->o.max_steps >= 0 && t->at.step + 1 >= t->o.max_steps) ||
           (t->o.max_epochs >= 0 && t->at.epoch + 1 >= t->o.max_epochs &&
            t->at.step_in_epoch + 1 >= steps_of(t, &t->at));
}

static lvn_status start_loader(lvni_trainer *t)
{
    const lvni_data_loader_options o = {.dataset = t->o.train,
                                        .plan = &t->o.plan,
                                        .training = true,
                                        .whole_steps = t->engine->n_phases > 1,
                                        .seed = t->o.seed,
                                        .balanced = t->o.balanced,
                                        .order = t->o.order,
                                        .stream = t->o.stream,
                                        .workers = t->o.workers,
                                        .unreadable = t->unreadable,
                                        .step = t->at.step,
                                        .epoch = (uint32_t)t->at.epoch,
                                        .step_in_epoch = t->at.step_in_epoch,
                                        .max_epochs =
                                            t->o.max_epochs > 0 ? (uint32_t)t->o.max_epochs : 0};
    return lvni_data_loader_create(&o, &t->loader);
}

bool lvni_trainer_loop_epoch_done(const lvni_trainer *t)
{
    return t->at.step_in_epoch >= steps_of(t, &t->at);
}

lvn_status lvni_trainer_loop_begin(lvni_trainer *t)
{
    LVN_TRY(lvni_trainer_logging_open(&t->report, t->at.step, false));
    return t->loader != NULL || finished(t) ? LVN_OK : start_loader(t);
}

void lvni_trainer_loop_next_epoch(lvni_trainer *t)
{
    t->at.epoch++;
    t->at.step_in_epoch = 0;
    t->report.epoch_sum = (lvni_nn_step){0};
    t->engine->scaler.in_epoch = 0;
    t->at.finished = finished(t);
}

/* The error may be that of the save before, whose room on the disk is there by now. */
static lvn_status save(lvni_trainer *t, bool best)
{
    t->checkpointing.saved_ns = lvni_core_now_ns();
    lvni_dist_comm_at(t->o.comm, LVNI_PLACE_SAVE, t->at.step);
    lvni_trainer_profile_at(LVNI_PART_SAVE);
    lvni_trainer_logging_halt(&t->report);
    const lvn_status s = lvni_trainer_checkpointing_save(t, best);
    lvni_trainer_logging_continue(&t->report);
    lvni_trainer_profile_at(LVNI_PART_REST);
    return s == LVN_OK ? s : lvni_trainer_checkpointing_save_on_error(t, s);
}

/* Has this epoch a validation? */
static bool validates(const lvni_trainer *t)
{
    const int64_t epochs = t->o.val_every_n_epochs > 0 ? t->o.val_every_n_epochs : 1;
    return t->o.val != NULL && (t->at.epoch + 1) % epochs == 0;
}

/* Of validation, after the step that was: after batch 12 where 10 was to be, of steps of 4. */
static bool is_turn(const lvni_trainer *t)
{
    const int64_t every = t->o.val_every_n_batches, step = t->at.step_in_epoch;
    if (t->o.val_every_s > 0.0) {
        return t->validation_asked;
    }
    return every == 0 ? lvni_trainer_loop_epoch_done(t)
                      : lvni_plan_batches_before(&t->o.plan, step) / every >
                            lvni_plan_batches_before(&t->o.plan, step - 1) / every;
}

/* After the step that was, unless it is the epoch's last; not done yet. */
static bool validation_is_due(const lvni_trainer *t)
{
    return validates(t) && t->at.step_in_epoch > 0 && !lvni_trainer_loop_epoch_done(t) &&
           is_turn(t) && t->validated_step != t->at.step;
}

/* *useful: some sample could be read. What ends the run meanwhile leaves the position before the
 * validation, where resuming begins. */
static lvn_status validate(lvni_trainer *t, bool *useful)
{
    const lvn_status s = lvni_trainer_loop_validate(t);
    if (s == LVN_ERR_CANCELLED && t->checkpointing.signal != 0) {
        return lvni_trainer_checkpointing_stop(t, t->checkpointing.signal, false);
    }
    if (s != LVN_OK) {
        return lvni_trainer_checkpointing_save_on_error(t, s);
    }
    *useful = t->report.last_val.n_metrics > 0;
    t->validated_step = t->at.step;
    t->validated_ns = lvni_core_now_ns();
    if (*useful && t->o.hooks.validation != NULL) {
        t->o.hooks.validation(t->o.hooks.user);
    }
    return LVN_OK;
}

/* The best, what is kept, the rate, the end. A metric that is not there is the user's mistake: what
 * was learned is kept, and the run that goes on begins with this decision. */
static lvn_status decide(lvni_trainer *t, unsigned news, bool useful, bool *best, bool *named)
{
    lvn_status s = lvni_trainer_choose(t, news, useful, best, named);
    if (s == LVN_OK) {
        s = lvni_trainer_loop_follow(t, news);
    }
    if (s == LVN_OK) {
        return s;
    }
    t->validated_step = -1;
    return lvni_trainer_checkpointing_save_on_error(t, s);
}

/* Within an epoch. What the metrics decide is decided now: a checkpoint has the decisions, and not
 * the metrics. */
static lvn_status validate_within_epoch(lvni_trainer *t, bool *saved)
{
    bool useful = false, best = false, named = false;
    LVN_TRY(validate(t, &useful));
    LVN_TRY(lvni_trainer_logging_within_epoch(&t->report, &t->at));
    LVN_TRY(decide(t, LVNI_NEWS_VALIDATION, useful, &best, &named));
    t->at.finished = finished(t);
    *saved = best || named || t->at.finished;
    return *saved ? save(t, best) : LVN_OK;
}

/* After an epoch's last step: validation, means, the checkpoint of the next epoch's beginning. What
 * ends the run during validation leaves the position between the two: all steps of the epoch done,
 * the epoch not; resuming begins here. periodic, asked: there is a checkpoint in any case. */
static lvn_status end_epoch(lvni_trainer *t, bool periodic, bool asked, bool *saved)
{
    const bool due = validates(t) && is_turn(t);
    bool validated = false, best = false, named = false;
    LVN_TRY(due ? validate(t, &validated) : LVN_OK);
    LVN_TRY(lvni_trainer_logging_epoch(&t->report, &t->at, &t->engine->scaler, validated));
    if (t->o.hooks.epoch != NULL) {
        t->o.hooks.epoch(t->o.hooks.user);
    }
    LVN_TRY(
        decide(t, LVNI_NEWS_EPOCH | (due ? LVNI_NEWS_VALIDATION : 0), validated, &best, &named));
    LVN_TRY(periodic && !named ? lvni_trainer_choose_periodic(t) : LVN_OK);
    *saved = lvni_trainer_choose_is_epoch(t) || best || named || periodic || asked;
    lvni_trainer_loop_next_epoch(t);
    *saved = *saved || t->at.finished;
    return *saved ? save(t, best || (t->at.finished && isnan(t->at.best_score))) : LVN_OK;
}

/* Rank 0 alone writes checkpoints; the launcher passes the signal on to all. Where each rank has a
 * part of the state, rank 0 has sent the request with its message of the step. timed: by the clock.
 */
static bool was_asked_to_save(const lvni_trainer *t, bool *timed)
{
    const bool sharded = t->engine->sharded != NULL,
               asked = sharded ? t->checkpointing.save_asked
                               : t->o.plan.rank == 0 && lvni_core_signals_take_save();
    *timed = sharded ? asked && t->engine->save_due : lvni_trainer_clock_save_is_due(t);
    if (t->o.plan.rank != 0 || !asked || *timed) {
        return asked || *timed;
    }
    lvni_log_line(LVNI_LOG_INFO, "SIGUSR2: a checkpoint of step %lld (epoch %lld)",
                  (long long)t->at.step, (long long)t->at.epoch + 1);
    return true;
}

/* What the oldest step under way computed; those after it never happened when it fails. */
static lvn_status collect(lvni_trainer *t, lvni_trainer_step_result *r)
{
    lvni_trainer_step_record *oldest = &t->open[t->first_open];
    const lvn_status s = lvni_trainer_engine_collect(t->engine, oldest, r);
    if (s != LVN_OK) {
        const lvn_error error = *lvn_last_error();
        while (--t->n_open > 0) {
            lvni_trainer_engine_discard(
                t->engine, &t->open[(t->first_open + t->n_open) % LVNI_DEFERRED_STEPS]);
        }
        t->at = oldest->before;
        return lvni_core_error_collect(s, &error, "the step");
    }
    t->first_open = (t->first_open + 1) % LVNI_DEFERRED_STEPS;
    t->n_open--;
    return lvni_trainer_logging_add(&t->report, r);
}

static lvn_status submit(lvni_trainer *t)
{
    lvni_trainer_step_record *record = &t->open[(t->first_open + t->n_open) % LVNI_DEFERRED_STEPS];
    const lvn_status s = lvni_trainer_engine_submit(t->engine, t->loader, &t->at, record);
    t->checkpointing.signal = record->signal;
    t->checkpointing.save_asked = record->save;
    t->validation_asked = record->validate;
    LVN_TRY(s);
    lvni_trainer_unreadable_report(t, t->unreadable);
    t->n_open++;
    t->at.step++;
    t->at.step_in_epoch++;
    t->at.samples_seen += record->samples;
    return LVN_OK;
}

lvn_status lvni_trainer_step(lvni_trainer *t, lvni_trainer_step_result *r)
{
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    lvn_status s = submit(t);
    if (s == LVN_OK) {
        s = collect(t, r);
    }
    lvni_tensor_fp_leave(before);
    return s;
}

static lvn_status collect_and_report(lvni_trainer *t)
{
    lvni_trainer_step_result r;
    LVN_TRY(collect(t, &r));
    lvni_trainer_profile_at(LVNI_PART_LOG);
    t->report.waited_ns = lvni_data_loader_get_stats(t->loader).wait_ns;
    LVN_TRY(lvni_trainer_logging_step(&t->report, &r,
                                      r.after.step_in_epoch >= steps_of(t, &r.after) ||
                                          finished_at(t, &r.after)));
    lvni_trainer_profile_at(LVNI_PART_REST);
    if (t->o.hooks.step != NULL) {
        t->o.hooks.step(t->o.hooks.user, &r);
    }
    return LVN_OK;
}

/* From here on the host knows all that the device does, and `at` is what the weights are. */
static lvn_status drain(lvni_trainer *t)
{
    while (t->n_open > 0) {
        LVN_TRY(collect_and_report(t));
    }
    return LVN_OK;
}

/* Of two errors that of the earlier step counts. */
static lvn_status save_on_error(lvni_trainer *t, lvn_status failed)
{
    const lvn_error error = *lvn_last_error();
    const lvn_status earlier = drain(t);
    return lvni_trainer_checkpointing_save_on_error(
        t, earlier != LVN_OK ? earlier : lvni_core_error_collect(failed, &error, "the step"));
}

static lvn_status stop(lvni_trainer *t)
{
    const lvn_status s = drain(t);
    return s != LVN_OK ? lvni_trainer_checkpointing_save_on_error(t, s)
                       : lvni_trainer_checkpointing_stop(t, t->checkpointing.signal,
                                                         t->checkpointing.saved_step == t->at.step);
}

/* Submits a step, then reads: the one before it where steps are read late. */
static lvn_status step(lvni_trainer *t)
{
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    lvn_status s = submit(t);
    if (s == LVN_OK && (t->engine->deferred == NULL || t->n_open == LVNI_DEFERRED_STEPS)) {
        s = collect_and_report(t);
    }
    lvni_tensor_fp_leave(before);
    return s;
}

/* Within an epoch, unless this step is saved already. */
static lvn_status save_between(lvni_trainer *t, bool periodic)
{
    t->at.finished = finished(t);
    LVN_TRY(periodic ? lvni_trainer_choose_periodic(t) : LVN_OK);
    return save(t, t->at.finished && isnan(t->at.best_score));
}

/* What comes between this step and the next one. */
typedef struct due {
    bool validation; /* within the epoch */
    bool epoch_end, run_end;
    bool asked, periodic; /* a checkpoint: a rank was asked for it; by steps or by time */
} due;

static due find_due(lvni_trainer *t)
{
    const int64_t every = t->o.keep.every_n_steps;
    bool timed;
    due now = {.asked = was_asked_to_save(t, &timed), .validation = validation_is_due(t)};
    now.periodic = timed || (every > 0 && t->at.step % every == 0);
    now.epoch_end = lvni_trainer_loop_epoch_done(t);
    now.run_end = finished(t);
    return now;
}

/* Anything that is due, or a stop, needs to know all steps that were submitted. */
static lvn_status read_steps(lvni_trainer *t, const due *now)
{
    const bool all = now->validation || now->epoch_end || now->run_end || now->asked ||
                     now->periodic || t->checkpointing.signal != 0;
    LVN_TRY(all ? drain(t) : LVN_OK);
    return lvni_trainer_save_poll(t);
}

/* Unless the run is at its end, or an early stop has just ended it. saved: this step is. */
static lvn_status stop_if_asked(lvni_trainer *t, bool saved)
{
    if (t->o.comm == NULL) {
        t->checkpointing.signal = lvni_trainer_stop_signal(); /* it may have come after the step */
    }
    if (t->checkpointing.signal == 0 || finished(t)) {
        return LVN_OK;
    }
    return saved ? lvni_trainer_checkpointing_stop(t, t->checkpointing.signal, true) : stop(t);
}

/* Between two steps, in this order: results of steps and the save that runs, samples that could not
 * be read, validation within the epoch, the end of the epoch or else a checkpoint, a stop. */
static lvn_status after_step(lvni_trainer *t)
{
    const due now = find_due(t);
    bool saved = false;
    const lvn_status s = read_steps(t, &now);
    if (s != LVN_OK) {
        return save_on_error(t, s);
    }
    LVN_TRY(now.epoch_end || now.run_end ? lvni_trainer_unreadable_check_rest(t) : LVN_OK);
    LVN_TRY(now.validation ? validate_within_epoch(t, &saved) : LVN_OK);
    if (now.epoch_end) {
        LVN_TRY(end_epoch(t, now.periodic, now.asked, &saved));
    } else if (!saved && (finished(t) || now.periodic || now.asked)) {
        LVN_TRY(save_between(t, now.periodic));
        saved = true;
    }
    return stop_if_asked(t, saved);
}

/* Where ranks have a control channel they agree over it on the step to stop at:
 * t->checkpointing.signal is set when that is here. (A step's message could carry the signal, as it
 * does between threads; but then the host would have to read every message of a device before it
 * begins the next step.) */
lvn_status lvni_trainer_loop_begin_step(lvni_trainer *t)
{
    const int own = lvni_trainer_stop_signal();
    bool stop = false;
    t->engine->more_steps = !is_last_step(t);
    if (t->o.control == NULL) {
        return LVN_OK;
    }
    if (own != 0 && !t->checkpointing.stop_asked) {
        lvni_control_request_stop(t->o.control, own);
        t->checkpointing.stop_asked = true;
    }
    LVN_TRY(lvni_control_boundary(t->o.control, t->at.step, &stop));
    if (stop) {
        t->checkpointing.signal = lvni_control_stop_reason(t->o.control);
        lvni_trainer_stop_record(t->checkpointing.signal);
    }
    return LVN_OK;
}

/* What a run that is taken up has left undone. */
static lvn_status catch_up(lvni_trainer *t)
{
    bool saved;
    lvni_trainer_clock_begin(t);
    if (lvni_trainer_loop_epoch_done(t)) {
        return end_epoch(t, false, false, &saved);
    }
    return validation_is_due(t) ? validate_within_epoch(t, &saved) : LVN_OK;
}

/* Steps and epochs of an excerpt; steps 0: all of the run. skipped: steps of the run so far that
 * are not in it. */
typedef struct excerpt {
    int64_t steps, epochs, skipped;
} excerpt;
enum { EXCERPT_LAST = 2 }; /* steps at the end of its epochs, and behind them */

/* An epoch of fewer steps than those behind the others has no such place: there as many steps count
 * as the first epoch would have had. */
static bool excerpt_ends(const lvni_trainer *t, const excerpt *part)
{
    const bool behind = t->at.epoch > part->epochs && t->at.step >= part->steps + EXCERPT_LAST;
    return part->steps > 0 && t->at.epoch >= part->epochs &&
           (behind || t->at.step_in_epoch >= EXCERPT_LAST);
}

/* Past the steps that are not in the excerpt, to an even one of the run: on a device batches lie in
 * two places in turn, and so what follows finds the free memory that it finds in the run. */
static lvn_status skip_steps(lvni_trainer *t, excerpt *part)
{
    const int64_t here = t->at.step_in_epoch, begin = t->at.step + part->skipped - here;
    int64_t last = steps_of(t, &t->at) - EXCERPT_LAST;
    last -= (begin + last) % 2;
    if (part->steps == 0 || here != part->steps || here >= last) {
        return LVN_OK;
    }
    const lvn_status s = drain(t);
    if (s != LVN_OK) {
        return save_on_error(t, s);
    }
    lvni_trainer_skip_to(t, last);
    part->skipped += last - here;
    return lvni_trainer_loop_begin(t);
}

static lvn_status loop(lvni_trainer *t, excerpt *part)
{
    if (t->at.step > 0) { /* of a run that is resumed: it makes no step when its time is over */
        lvni_trainer_clock_look_at_max_time(t);
    }
    LVN_TRY(lvni_trainer_checkpointing_agree_stop(t));
    if (t->checkpointing.signal != 0) { /* it came while the run was made ready */
        return lvni_trainer_checkpointing_stop(t, t->checkpointing.signal,
                                               t->checkpointing.saved_step == t->at.step);
    }
    LVN_TRY(catch_up(t));
    LVN_TRY(finished(t) ? LVN_OK : lvni_trainer_loop_check_validation(t));
    LVN_TRY(lvni_trainer_loop_begin(t));
    while (!finished(t) && !excerpt_ends(t, part)) {
        lvni_trainer_clock_look(t);
        lvn_status s = lvni_trainer_loop_begin_step(t);
        if (t->checkpointing.signal != 0) {
            return stop(t);
        }
        if (s == LVN_OK) {
            s = step(t);
        }
        if (s != LVN_OK) {
            return save_on_error(t, s);
        }
        LVN_TRY(after_step(t));
        LVN_TRY(finished(t) ? LVN_OK : skip_steps(t, part));
    }
    return drain(t);
}

bool lvni_trainer_finished(const lvni_trainer *t)
{
    return finished(t) && !lvni_trainer_loop_epoch_done(t);
}

bool lvni_trainer_ends_at(const lvni_trainer *t, const lvni_ckpt_position *at)
{
    lvni_ckpt_position next = *at;
    next.epoch += next.step_in_epoch >= steps_of(t, &next);
    return finished_at(t, &next);
}

/* The first error counts. */
static lvn_status finish_saving(lvni_trainer *t, lvn_status s)
{
    const lvn_error error = *lvn_last_error();
    lvni_trainer_profile_at(LVNI_PART_SAVE);
    const lvn_status saved = lvni_trainer_save_wait(t);
    return s == LVN_OK ? saved : lvni_core_error_collect(s, &error, "the training");
}

static lvn_status measure_untrained(lvni_trainer *t)
{
    bool useful = false, best = false, named = false;
    LVN_TRY(lvni_trainer_logging_open(&t->report, 0, true));
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    lvn_status s = validate(t, &useful);
    lvni_tensor_fp_leave(before);
    LVN_TRY(s);
    LVN_TRY(lvni_trainer_logging_within_epoch(&t->report, &t->at));
    return decide(t, LVNI_NEWS_VALIDATION, useful, &best, &named);
}

/* max_epochs=0: the model as it begins is what the run leaves, and measures. */
static lvn_status save_untrained(lvni_trainer *t)
{
    LVN_TRY(t->o.val != NULL ? measure_untrained(t) : LVN_OK);
    t->at.finished = true;
    return finish_saving(t, save(t, true));
}

static lvn_status fit(lvni_trainer *t, excerpt *part)
{
    if (t->o.max_epochs == 0 && t->at.step == 0 && t->checkpointing.saved_step < 0) {
        return save_untrained(t);
    }
    if (lvni_trainer_finished(t)) {
        lvni_trainer_loop_report_finished(t);
        return LVN_OK;
    }
    lvni_trainer_profile profile;
    const int64_t first = t->at.step;
    LVN_TRY(lvni_trainer_logging_open(&t->report, t->at.step,
                                      lvni_trainer_loop_epoch_done(t) || validation_is_due(t)));
    if (t->o.profiles) {
        lvni_trainer_profile_begin(&profile);
    }
    t->checkpointing.timed = true;
    lvn_status s = finish_saving(t, loop(t, part));
    t->checkpointing.timed = false;
    lvni_dist_comm_at(t->o.comm, LVNI_PLACE_END, t->at.step);
    if (s == LVN_ERR_CANCELLED && t->checkpointing.signal == LVNI_STOP_TIME) {
        lvni_log_line(LVNI_LOG_INFO, "%s", lvn_last_error()->message);
        lvn_clear_error();
        s = LVN_OK;
    }
    t->report.ended = s;
    lvni_trainer_checkpointing_report_ranks(t, s);
    if (s == LVN_ERR_NON_FINITE) {
        lvni_trainer_checkpointing_report_last_good(t);
    }
    lvni_log_progress_finish(&t->report.progress);
    lvni_trainer_profile_end(t->at.step - first);
    return s;
}

lvn_status lvni_trainer_fit(lvni_trainer *t)
{
    return fit(t, &(excerpt){0});
}

lvn_status lvni_trainer_fit_excerpt(lvni_trainer *t, int64_t steps, int64_t epochs)
{
    return fit(t, &(excerpt){.steps = steps, .epochs = epochs});
}
