/* One attempt of a trial (sweep_attempt.h): its command and environment, its log, its beats, and
 * what is made of its end. */
#include "sweep/sweep_attempt.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/machine.h"
#include "core/vfs.h"
#include "launch/env_vars.h"
#include "run/run_dir.h"
#include "sweep/sweep_asha.h"
#include "sweep/sweep_outcome.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- the command ---- */

/* What an earlier attempt has begun is continued. It may have been killed before it had anything in
 * its run folder. */
static lvn_status add_resume(const char *dir, char ***argv)
{
    static const char resume[] = "resume=true", overwrite[] = "overwrite=false";
    lvni_core_str run = {0};
    lvni_core_str_printf(&run, "%s/" LVNI_SWEEP_RUN, dir);
    lvn_status s = lvni_core_str_status(&run);
    const lvn_error before = *lvn_last_error();
    if (s == LVN_OK && lvni_run_dir_check_run(run.data) == LVN_OK) {
        s = lvni_sweep_texts_add(argv, overwrite, strlen(overwrite));
        s = s == LVN_OK ? lvni_sweep_texts_add(argv, resume, strlen(resume)) : s;
    }
    lvni_core_str_free(&run);
    if (s == LVN_OK) {
        lvni_core_error_restore(&before);
    }
    return s;
}

/* What a training needs besides. The end of a job is the worker's to see to: it has other trials,
 * whose checkpoints are needed, too. */
static lvn_status add_keys(const lvni_sweep_worker *w, const lvni_sweep_slot *slot, char ***out)
{
    static const char own[] = "auto_requeue=false";
    if (!w->plan->training) {
        return LVN_OK;
    }
    if (w->owner.job[0] != '\0') {
        LVN_TRY(lvni_sweep_texts_add(out, own, strlen(own)));
    }
    return slot->attempt > 1 ? add_resume(slot->dir.data, out) : LVN_OK;
}

/* The plan's command, with levin as this executable is found. */
static lvn_status add_plans(const lvni_sweep_worker *w, const lvni_sweep_slot *slot,
                            const lvni_sweep_trial *trial, char ***out)
{
    for (int i = 0; trial->argv[i] != NULL; i++) {
        const bool levin = i == 0 && w->o->levin != NULL && strcmp(trial->argv[i], "levin") == 0;
        const char *text = levin ? w->o->levin : trial->argv[i];
        LVN_TRY(lvni_sweep_texts_add(out, text, strlen(text)));
    }
    return add_keys(w, slot, out);
}

static lvn_status make_command(const lvni_sweep_worker *w, const lvni_sweep_slot *slot,
                               const lvni_sweep_trial *trial, char ***out)
{
    static char command[] = "{command}", *const plans[] = {command, NULL};
    char *const *words = w->o->words != NULL ? w->o->words : plans;
    bool whole = true; /* the words are all of it */
    *out = NULL;
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], command) == 0) {
            LVN_TRY(add_plans(w, slot, trial, out));
            whole = false;
        } else {
            LVN_TRY(lvni_sweep_texts_add(out, words[i], strlen(words[i])));
        }
    }
    if (*out == NULL) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s/sweep.json: the command is empty", w->plan->dir);
    }
    return whole ? add_keys(w, slot, out) : LVN_OK;
}

static lvn_status make_environment(const lvni_sweep_worker *w, const lvni_sweep_slot *slot,
                                   lvni_launch_variables *out)
{
    const long number = slot - w->slots;
    char attempt[24];
    lvni_core_str record = {0}, trial = {0};
    lvni_core_path_absolute(slot->dir.data, &record);
    lvni_core_str_append(&record, "/" LVNI_SWEEP_ERROR);
    lvni_launch_variables_copy(out, environ);
    lvni_launch_variables_set(out, "LEVIN_ERROR_FILE", lvni_core_str_text(&record));
    lvni_core_path_absolute(slot->dir.data, &trial);
    lvni_core_format(attempt, sizeof attempt, "%lld", (long long)slot->attempt);
    lvni_launch_variables_set(out, LVNI_SWEEP_TRIAL_NAME, lvni_core_str_text(&trial));
    lvni_launch_variables_set(out, LVNI_SWEEP_ATTEMPT_NAME, attempt);
    if (w->o->gpu_sets != NULL) {
        lvni_launch_variables_set(out, "CUDA_VISIBLE_DEVICES", w->o->gpu_sets[number]);
    }
    if (w->o->single) {
        lvni_launch_variables_set(out, "LEVIN_ENV", "single");
    }
    lvn_status s = lvni_core_str_status(&record);
    s = s == LVN_OK ? lvni_core_str_status(&trial) : s;
    lvni_core_str_free(&record);
    lvni_core_str_free(&trial);
    return s == LVN_OK ? lvni_launch_variables_status(out) : s;
}

static void list_parameters(const lvni_sweep_trial *trial, lvni_core_str *out)
{
    for (int i = 0; trial->names != NULL && trial->names[i] != NULL; i++) {
        lvni_core_str_printf(out, " %s=%s", trial->names[i], trial->values[i]);
    }
}

/* Opened to append, with a line that begins this attempt. */
static lvn_status open_log(const lvni_sweep_worker *w, lvni_sweep_slot *slot, char *const *argv,
                           int *fd)
{
    lvni_core_str path = {0}, head = {0};
    char now[32];
    struct tm parts;
    struct stat st;
    const time_t t = time(NULL);
    lvn_status s;
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &parts));
    lvni_core_str_printf(&path, "%s/" LVNI_SWEEP_LOG, slot->dir.data);
    lvni_core_str_printf(&head,
                         "== attempt %" PRId64 " on %s, process %" PRId64 ", %s:", slot->attempt,
                         w->owner.host, w->owner.pid, now);
    for (int i = 0; argv[i] != NULL; i++) {
        lvni_core_str_char(&head, ' ');
        lvni_core_shell_quote(&head, argv[i]);
    }
    lvni_core_str_char(&head, '\n');
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, lvni_core_str_status(&head));
    LVNI_TRY_DONE(s, lvni_core_append_open(path.data, false, fd));
    s = lvni_core_append_write(*fd, path.data, head.data, head.len);
    slot->log_from = fstat(*fd, &st) == 0 ? (int64_t)st.st_size : 0;
    if (s != LVN_OK) {
        (void)lvni_core_vfs_get()->close(*fd);
    }
done:
    lvni_core_str_free(&path);
    lvni_core_str_free(&head);
    return s;
}

/* {trial_dir} of other programs is there when they begin; a training makes its own. */
static lvn_status make_folder(const lvni_sweep_worker *w, const lvni_sweep_slot *slot)
{
    lvni_core_str path = {0};
    lvni_core_str_printf(&path, "%s/" LVNI_SWEEP_RUN, slot->dir.data);
    lvn_status s = lvni_core_str_status(&path);
    if (s == LVN_OK && !w->plan->training) {
        s = lvni_core_mkdirs(path.data);
    }
    lvni_core_str_free(&path);
    return s;
}

static void remove_record(const lvni_sweep_slot *slot)
{
    lvni_core_str path = {0};
    lvni_core_str_printf(&path, "%s/" LVNI_SWEEP_ERROR, slot->dir.data);
    if (lvni_core_str_status(&path) == LVN_OK) {
        (void)lvni_core_vfs_get()->unlink(path.data);
    }
    lvni_core_str_free(&path);
}

/* ---- what is printed ---- */

static void print_begin(const lvni_sweep_worker *w, const lvni_sweep_slot *slot,
                        const lvni_sweep_trial *trial)
{
    lvni_core_str text = {0};
    if (w->o->quiet) {
        return;
    }
    list_parameters(trial, &text);
    if (slot->attempt > 1) {
        lvni_core_str_printf(&text, " (attempt %" PRId64 ")", slot->attempt);
    }
    lvni_core_print(stderr, "levin sweep: trial %" PRId64 " begins:%s\n", slot->trial,
                    lvni_core_str_text(&text));
    lvni_core_str_free(&text);
}

static void print_end(const lvni_sweep_worker *w, const lvni_sweep_slot *slot, const char *what,
                      const lvni_sweep_result *r)
{
    lvni_core_str text = {0};
    if (w->o->quiet && r->state != LVNI_SWEEP_FAILED) {
        return;
    }
    if (r->has_value) {
        lvni_core_str_printf(&text, " %s=", w->plan->metric);
        lvni_core_str_double(&text, r->value);
    }
    if (r->exit_code != LVNI_EXIT_OK) {
        lvni_core_str_printf(&text, " exit code %d", r->exit_code);
    }
    if (r->error[0] != '\0') {
        lvni_core_str_printf(&text, ": %s", r->error);
    }
    lvni_core_print(stderr, "levin sweep: trial %" PRId64 " %s after %.1f s%s\n", slot->trial, what,
                    r->seconds, lvni_core_str_text(&text));
    lvni_core_str_free(&text);
}

/* On the screen, and in the trial's log. */
static void print_refused(const lvni_sweep_worker *w, const lvni_sweep_slot *slot)
{
    lvni_core_str line = {0}, path = {0};
    int fd;
    lvni_core_str_printf(&line,
                         "levin sweep: trial %" PRId64 ": attempt %" PRId64
                         " was taken over, as its owner (%s, process %" PRId64
                         ") did not beat: its result is refused\n",
                         slot->trial, slot->attempt, w->owner.host, w->owner.pid);
    lvni_core_print(stderr, "%-s", lvni_core_str_text(&line));
    lvni_core_str_printf(&path, "%s/" LVNI_SWEEP_LOG, slot->dir.data);
    if (lvni_core_str_status(&line) == LVN_OK && lvni_core_str_status(&path) == LVN_OK &&
        lvni_core_append_open(path.data, false, &fd) == LVN_OK) {
        (void)lvni_core_append_write(fd, path.data, line.data, line.len);
        (void)lvni_core_vfs_get()->close(fd);
    }
    lvni_core_str_free(&line);
    lvni_core_str_free(&path);
}

/* ---- the end of an attempt ---- */

/* The same command would fail again. */
static bool is_hopeless(const lvni_sweep_worker *w, int code)
{
    return code == LVNI_EXIT_NO_PROGRAM || code == LVNI_EXIT_NOT_EXECUTABLE ||
           (code == LVNI_EXIT_USAGE && w->plan->training);
}

/* Asked to stop by this worker, by Slurm, or by hand: a training that has written its checkpoint
 * goes on later. */
static bool was_interrupted(const lvni_sweep_worker *w, const lvni_sweep_slot *slot, int code)
{
    const bool by_signal = code == LVNI_EXIT_SIGTERM || code == LVNI_EXIT_SIGINT ||
                           code == LVNI_EXIT_SIGHUP || code == LVNI_EXIT_REQUEUE ||
                           code == LVNI_EXIT_NO_REQUEUE;
    return code != LVNI_EXIT_OK && (slot->asked || (w->plan->training && by_signal));
}

static lvn_status leave(lvni_sweep_worker *w, lvni_sweep_slot *slot, lvni_sweep_end why,
                        const lvni_sweep_result *result, lvni_sweep_after *after)
{
    static const char *const words[LVNI_SWEEP_ENDS] = {
        [LVNI_SWEEP_END_RETRY] = "failed, and is tried again,",
        [LVNI_SWEEP_END_INTERRUPTED] = "is interrupted"};
    bool won;
    const lvn_status s = lvni_sweep_leave(slot->dir.data, slot->attempt, why, &w->owner,
                                          why == LVNI_SWEEP_END_INTERRUPTED ? NULL : result, &won);
    if (s == LVN_OK && !won) {
        print_refused(w, slot);
        *after = LVNI_SWEEP_AFTER_AGAIN; /* to see what the other makes of it */
    } else if (s == LVN_OK) {
        print_end(w, slot,
                  why == LVNI_SWEEP_END_ENDED ? lvni_sweep_state_name(result->state) : words[why],
                  result);
        w->interrupted += why == LVNI_SWEEP_END_INTERRUPTED;
        w->ended[result->state] += why == LVNI_SWEEP_END_ENDED;
        w->failed =
            w->failed || (why == LVNI_SWEEP_END_ENDED && result->state == LVNI_SWEEP_FAILED);
        *after = why == LVNI_SWEEP_END_RETRY ? LVNI_SWEEP_AFTER_AGAIN : LVNI_SWEEP_AFTER_DONE;
    }
    slot->trial = -1;
    return s;
}

static lvn_status end_with(lvni_sweep_worker *w, lvni_sweep_slot *slot, lvni_sweep_result *result,
                           lvni_sweep_after *after)
{
    result->attempt = slot->attempt;
    result->seconds = lvni_core_seconds_since(slot->begin_ns);
    const bool again = result->state == LVNI_SWEEP_FAILED && slot->failed < w->o->retries &&
                       !is_hopeless(w, result->exit_code) && !w->stopping;
    return leave(w, slot, again ? LVNI_SWEEP_END_RETRY : LVNI_SWEEP_END_ENDED, result, after);
}

/* A training that has ended well may have reached rungs since it was followed last. */
static lvn_status end_at_rung(lvni_sweep_worker *w, lvni_sweep_slot *slot, int code, bool *pruned)
{
    bool stop;
    if (!w->plan->training || !lvni_sweep_plan_prunes(w->plan)) {
        return LVN_OK;
    }
    if (code == LVNI_EXIT_OK) {
        LVN_TRY(lvni_sweep_asha_follow(w->plan, slot->trial, slot->attempt, &w->owner, &slot->rung,
                                       &stop));
    }
    *pruned = (code == LVNI_EXIT_OK || was_interrupted(w, slot, code)) &&
              lvni_sweep_was_pruned(slot->dir.data, slot->attempt);
    return LVN_OK;
}

lvn_status lvni_sweep_attempt_end(lvni_sweep_worker *w, lvni_sweep_slot *slot, int code,
                                  lvni_sweep_after *after)
{
    lvni_sweep_result result = {.attempt = slot->attempt};
    *after = LVNI_SWEEP_AFTER_DONE;
    if (slot->robbed) {
        print_refused(w, slot);
        *after = LVNI_SWEEP_AFTER_AGAIN;
        slot->trial = -1;
        return LVN_OK;
    }
    bool pruned = false;
    LVN_TRY(end_at_rung(w, slot, code, &pruned));
    if (pruned) {
        code = LVNI_EXIT_OK; /* it ended as it was asked to */
    } else if (was_interrupted(w, slot, code)) {
        const bool job_ends = !slot->asked && code == LVNI_EXIT_REQUEUE;
        w->advanced = w->advanced || lvni_sweep_steps(slot->dir.data) > slot->steps;
        result.seconds = lvni_core_seconds_since(slot->begin_ns);
        const lvn_status s = leave(w, slot, LVNI_SWEEP_END_INTERRUPTED, &result, after);
        *after = job_ends ? LVNI_SWEEP_AFTER_JOB_ENDS : *after;
        return s;
    }
    w->advanced = true;
    lvni_sweep_outcome(w->plan, slot->dir.data, code, slot->log_from, &result);
    return end_with(w, slot, &result, after);
}

/* ---- its beginning ---- */

/* The program cannot be started: 126 or 127, as from a shell. */
static lvn_status end_unstarted(lvni_sweep_worker *w, lvni_sweep_slot *slot, const char *program,
                                int error, lvni_sweep_after *after)
{
    lvni_sweep_result result = {.state = LVNI_SWEEP_FAILED,
                                .exit_code = error == ENOENT ? LVNI_EXIT_NO_PROGRAM
                                                             : LVNI_EXIT_NOT_EXECUTABLE};
    char why[128];
    snprintf(result.error, sizeof result.error, "cannot start %s: %s", program,
             strerror_r(error, why, sizeof why));
    return end_with(w, slot, &result, after);
}

static lvn_status start_program(lvni_sweep_worker *w, lvni_sweep_slot *slot,
                                const lvni_sweep_trial *trial, lvni_sweep_after *after)
{
    lvni_launch_variables environment = {.n = 0};
    char **argv = NULL;
    int log = -1, error = 0;
    lvn_status s;
    remove_record(slot);
    LVNI_TRY_DONE(s, make_folder(w, slot));
    LVNI_TRY_DONE(s, make_command(w, slot, trial, &argv));
    LVNI_TRY_DONE(s, make_environment(w, slot, &environment));
    LVNI_TRY_DONE(s, open_log(w, slot, argv, &log));
    s = lvni_sweep_process_start(&w->guard, argv, environment.list, log, &slot->pid, &error);
    if (s == LVN_OK && error != 0) {
        s = end_unstarted(w, slot, argv[0], error, after);
    }
done:
    if (log >= 0) {
        (void)lvni_core_vfs_get()->close(log);
    }
    lvni_launch_variables_free(&environment);
    lvni_sweep_texts_free(argv);
    return s;
}

static lvn_status run_function(lvni_sweep_worker *w, lvni_sweep_slot *slot,
                               const lvni_sweep_trial *trial, lvni_sweep_after *after)
{
    lvni_sweep_result result = {.exit_code = w->o->function(trial, w->o->user)};
    result.state = result.exit_code == LVNI_EXIT_OK ? LVNI_SWEEP_DONE : LVNI_SWEEP_FAILED;
    return end_with(w, slot, &result, after);
}

lvn_status lvni_sweep_attempt_begin(lvni_sweep_worker *w, lvni_sweep_slot *slot, int64_t trial,
                                    const lvni_sweep_look *look, lvni_sweep_after *after)
{
    lvni_sweep_trial t = {0};
    lvni_core_str dir = slot->dir;
    lvni_core_str_clear(&dir);
    lvni_sweep_trial_path(w->plan, trial, &dir);
    *slot = (lvni_sweep_slot){.trial = trial,
                              .attempt = look->attempt + 1,
                              .failed = look->failed,
                              .dir = dir,
                              .begin_ns = lvni_core_now_ns()};
    lvn_status s = lvni_core_str_status(&dir);
    if (s == LVN_OK) {
        s = lvni_sweep_trial_read(w->plan, trial, &t);
    }
    if (s == LVN_OK && w->plan->training && slot->attempt > 1) {
        slot->steps = lvni_sweep_steps(slot->dir.data);
    }
    if (s == LVN_OK) {
        print_begin(w, slot, &t);
        s = w->o->function != NULL ? run_function(w, slot, &t, after)
                                   : start_program(w, slot, &t, after);
    }
    if (s != LVN_OK && slot->trial >= 0) { /* others may have it */
        const lvn_error error = *lvn_last_error();
        bool won;
        (void)lvni_sweep_leave(slot->dir.data, slot->attempt, LVNI_SWEEP_END_INTERRUPTED, &w->owner,
                               NULL, &won);
        slot->trial = -1;
        lvni_core_error_restore(&error);
    }
    lvni_sweep_trial_free(&t);
    return s;
}

/* ---- while it runs ---- */

void lvni_sweep_attempt_stop(const lvni_sweep_worker *w, lvni_sweep_slot *slot, int signal_number)
{
    const int number = signal_number == SIGUSR1 && !w->plan->training ? SIGTERM : signal_number;
    if (!slot->asked) {
        slot->asked_ns = lvni_core_now_ns();
    }
    slot->asked = true;
    kill(-slot->pid, number);
}

lvn_status lvni_sweep_attempt_follow(lvni_sweep_worker *w, lvni_sweep_slot *slot)
{
    bool stop = false;
    if (slot->asked || slot->robbed) {
        return LVN_OK;
    }
    LVN_TRY(
        lvni_sweep_asha_follow(w->plan, slot->trial, slot->attempt, &w->owner, &slot->rung, &stop));
    if (stop) {
        lvni_sweep_attempt_stop(w, slot, SIGUSR1);
    }
    return LVN_OK;
}

void lvni_sweep_attempt_beat(lvni_sweep_slot *slot)
{
    bool left = false;
    if (lvni_sweep_beat(slot->dir.data, slot->attempt, &left) != LVN_OK && !slot->mute) {
        slot->mute = true;
        lvni_core_print(stderr,
                        "levin sweep: warning: trial %" PRId64
                        ": %s; if this lasts, another worker "
                        "takes it over\n",
                        slot->trial, lvn_last_error()->message);
    }
    if (left && !slot->robbed) {
        slot->robbed = true; /* another attempt has begun in the same folder */
        kill(-slot->pid, SIGKILL);
    }
}
