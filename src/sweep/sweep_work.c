/* The loop of a worker (sweep_work.h): which trial it claims next, and what it does with signals,
 * beats and ends. One trial's attempt: sweep_attempt.c. */
#include "sweep/sweep_attempt.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/machine.h"
#include "core/signals.h"
#include "launch/env_vars.h"
#include "run/requeue.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000u
/* second signals closer than this to the first are the first: `timeout` sends to process and
 * group */
#define AT_LEAST_NS (50 * MS)

enum { ASKED_BY_FILE = -1, LONGEST_BEAT_S = 30, BEATS = 10, GRACE_S = 60 };
#define FOLLOW_NS (500 * (uint64_t)MS) /* between looks at what trainings have reached */

/* ---- what is left to do ---- */

/* What this worker knows of a trial for good. */
typedef enum known {
    OPEN,
    CLOSED, /* it has ended, or this worker has left it */
} known;

static uint64_t beat_ns(const lvni_sweep_worker *w)
{
    const uint64_t ns = (uint64_t)w->plan->dead_after_s * 1000 * MS / BEATS;
    const uint64_t longest = (uint64_t)LONGEST_BEAT_S * 1000 * MS;
    return ns < longest ? ns : longest;
}

/* Between two looks at trials of others. */
static uint64_t look_ns(const lvni_sweep_worker *w)
{
    const uint64_t ns = (uint64_t)w->plan->dead_after_s * 1000 * MS / (2 * BEATS);
    return ns < 200 * MS ? 200 * MS : ns > 5000 * MS ? 5000 * MS : ns;
}

static lvn_status grow(lvni_sweep_worker *w)
{
    if (w->plan->n_trials <= w->room) {
        return LVN_OK;
    }
    const int64_t room = w->plan->n_trials;
    unsigned char *more = lvni_core_realloc(LVNI_TAG_CORE, w->known, (size_t)room);
    if (more == NULL) {
        return LVN_ERR_MEMORY;
    }
    memset(more + w->room, OPEN, (size_t)(room - w->room));
    w->known = more;
    w->room = room;
    return LVN_OK;
}

static bool runs_here(const lvni_sweep_worker *w, int64_t trial)
{
    for (int i = 0; i < w->n_slots; i++) {
        if (w->slots[i].trial == trial) {
            return true;
        }
    }
    return false;
}

/* A damaged trial does not keep the others from running. */
static void set_aside(lvni_sweep_worker *w, int64_t trial)
{
    lvni_core_print(stderr, "levin sweep: trial %" PRId64 ": %s\n", trial,
                    lvn_last_error()->message);
    w->known[trial] = CLOSED;
    w->failed = true;
}

static int n_running(const lvni_sweep_worker *w)
{
    int n = 0;
    for (int i = 0; i < w->n_slots; i++) {
        n += w->slots[i].trial >= 0;
    }
    return n;
}

/* Another worker has it. It is waited for, as it may have to be taken over; `levin sweep trial`
 * only until it is known to be alive. */
static bool waits_for(lvni_sweep_worker *w, int64_t trial, const lvni_sweep_look *look)
{
    const uint64_t now = lvni_core_now_ns();
    w->watched_ns = w->watched_ns == 0 ? now : w->watched_ns;
    const bool beats = look->silent_s + 0.5 < 1e-9 * (double)(now - w->watched_ns);
    const bool leaves = w->o->only >= 0 && (look->there || beats);
    if (leaves || (!w->noted && !w->o->quiet && n_running(w) == 0)) {
        lvni_core_print(
            stderr, "levin sweep: trial %" PRId64 " runs on %s (process %" PRId64 "%s%s)%s\n",
            trial, look->owner.host, look->owner.pid, look->owner.job[0] != '\0' ? ", job " : "",
            look->owner.job,
            leaves ? "" : ": waiting, as it may have to be taken over; Ctrl-C ends this");
        w->noted = true;
    }
    if (leaves) {
        w->known[trial] = CLOSED;
    }
    return !leaves;
}

/* Looks at one trial; *claimed: it is this worker's, and `look` what was found before. */
static lvn_status try_trial(lvni_sweep_worker *w, int64_t trial, lvni_sweep_look *look,
                            bool *claimed)
{
    bool won;
    LVN_TRY(lvni_sweep_reader_look(w->reader, trial, look));
    if (lvni_sweep_state_is_end(look->state)) {
        w->known[trial] = CLOSED;
        return LVN_OK;
    }
    if (look->state == LVNI_SWEEP_RUNNING) {
        w->waits = waits_for(w, trial, look) || w->waits;
        return LVN_OK;
    }
    if (lvni_sweep_is_stopped(w->plan, trial)) {
        return LVN_OK; /* as long as the file is there */
    }
    lvni_core_str_clear(&w->dir);
    lvni_sweep_trial_path(w->plan, trial, &w->dir);
    LVN_TRY(lvni_core_str_status(&w->dir));
    if (look->state == LVNI_SWEEP_LOST) {
        LVN_TRY(lvni_sweep_leave(w->dir.data, look->attempt, LVNI_SWEEP_END_LOST, &w->owner, NULL,
                                 &won));
        if (!won) { /* by whom, and why, is for the next look */
            w->again = true;
            return LVN_OK;
        }
        lvni_core_print(stderr,
                        "levin sweep: trial %" PRId64 ": attempt %" PRId64
                        " on %s (process %" PRId64 ") is dead and taken over\n",
                        trial, look->attempt, look->owner.host, look->owner.pid);
    }
    const uint64_t begin = lvni_core_now_ns();
    LVN_TRY(lvni_sweep_claim(w->dir.data, look->attempt + 1, &w->owner, claimed));
    if (*claimed && w->o->claimed != NULL) {
        w->o->claimed(lvni_core_seconds_since(begin), w->o->user);
    }
    w->again = w->again || !*claimed;
    return LVN_OK;
}

/* The next trial from w->next on. -1: there is none in this pass. */
static lvn_status claim_next(lvni_sweep_worker *w, int64_t *trial, lvni_sweep_look *look)
{
    *trial = -1;
    while (w->next < w->plan->n_trials) {
        const int64_t i = w->o->only >= 0 ? w->o->only : (w->first + w->next) % w->plan->n_trials;
        bool claimed = false;
        w->next = w->o->only >= 0 ? w->plan->n_trials : w->next + 1;
        if (w->known[i] == CLOSED || runs_here(w, i)) {
            continue;
        }
        const lvn_status s = try_trial(w, i, look, &claimed);
        if (s == LVN_ERR_CORRUPT || s == LVN_ERR_NOT_FOUND) {
            set_aside(w, i);
        } else if (s != LVN_OK) {
            return s;
        } else if (claimed) {
            *trial = i;
            return LVN_OK;
        }
    }
    return LVN_OK;
}

/* ---- stopping ---- */

static void stop(lvni_sweep_worker *w, int signal_number, uint64_t now)
{
    const bool again = w->stopping;
    if (again && now - w->stop_ns < AT_LEAST_NS) {
        return;
    }
    w->stopping = true;
    w->signal = again ? w->signal : signal_number;
    w->stop_ns = now;
    for (int i = 0; i < w->n_slots; i++) {
        if (w->slots[i].trial >= 0) {
            lvni_sweep_attempt_stop(w, &w->slots[i],
                                    again                            ? SIGKILL
                                    : signal_number == ASKED_BY_FILE ? SIGTERM
                                                                     : signal_number);
        }
    }
}

static void on_signals(lvni_sweep_worker *w)
{
    struct signalfd_siginfo info;
    while (read(w->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        const int number = (int)info.ssi_signo;
        if (number == SIGUSR2) {
            for (int i = 0; i < w->n_slots && w->plan->training; i++) {
                if (w->slots[i].trial >= 0) {
                    kill(-w->slots[i].pid, number);
                }
            }
        } else if (number != SIGCHLD) {
            if (!w->stopping) {
                lvni_core_print(stderr, "levin sweep: %s: its trials are asked to stop%s\n",
                                lvni_core_signal_name(number),
                                number == SIGINT ? "; once more kills them" : "");
            }
            stop(w, number, lvni_core_now_ns());
        }
    }
}

static lvn_status take_signals(lvni_sweep_worker *w)
{
    static const int ours[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        struct sigaction now;
        const bool ignored = sigaction(ours[i], NULL, &now) == 0 && now.sa_handler == SIG_IGN;
        if (ours[i] != SIGHUP || !ignored) { /* nohup */
            sigaddset(&set, ours[i]);
        }
    }
    sigprocmask(SIG_BLOCK, &set, &w->mask);
    w->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (w->signal_fd < 0) {
        LVN_FAIL(LVN_ERR_IO, "no file for signals: %s (ulimit -n)", strerror(errno));
    }
    return LVN_OK;
}

/* ---- the loop ---- */

static void see_stop_files(lvni_sweep_worker *w, uint64_t now)
{
    if (!w->stopping && lvni_sweep_is_stopped(w->plan, -1)) {
        lvni_core_print(stderr,
                        "levin sweep: stopped: %s/stop is there; `levin sweep resume` goes "
                        "on\n",
                        w->plan->dir);
        stop(w, ASKED_BY_FILE, now);
    }
    for (int i = 0; i < w->n_slots; i++) {
        lvni_sweep_slot *slot = &w->slots[i];
        if (slot->trial >= 0 && !slot->asked && lvni_sweep_is_stopped(w->plan, slot->trial)) {
            lvni_sweep_attempt_stop(w, slot, SIGTERM);
        }
    }
}

static void beat_all(lvni_sweep_worker *w, uint64_t now)
{
    if (now - w->beat_ns < beat_ns(w)) {
        return;
    }
    w->beat_ns = now;
    for (int i = 0; i < w->n_slots; i++) {
        if (w->slots[i].trial >= 0) {
            lvni_sweep_attempt_beat(&w->slots[i]);
        }
    }
    see_stop_files(w, now);
}

/* One that does not end when it is asked is killed. */
static void kill_late(lvni_sweep_worker *w, uint64_t now)
{
    for (int i = 0; i < w->n_slots; i++) {
        const lvni_sweep_slot *slot = &w->slots[i];
        if (slot->trial >= 0 && slot->asked &&
            now - slot->asked_ns > (uint64_t)GRACE_S * 1000 * MS) {
            kill(-slot->pid, SIGKILL);
        }
    }
}

static lvn_status reap(lvni_sweep_worker *w, uint64_t now)
{
    for (int i = 0; i < w->n_slots; i++) {
        lvni_sweep_slot *slot = &w->slots[i];
        int code;
        if (slot->trial < 0 || !lvni_sweep_process_ended(&w->guard, slot->pid, &code)) {
            continue;
        }
        const int64_t trial = slot->trial;
        lvni_sweep_after after;
        LVN_TRY(lvni_sweep_attempt_end(w, slot, code, &after));
        w->known[trial] = after == LVNI_SWEEP_AFTER_AGAIN ? OPEN : CLOSED;
        w->next = after == LVNI_SWEEP_AFTER_AGAIN ? 0 : w->next;
        if (after == LVNI_SWEEP_AFTER_JOB_ENDS) {
            stop(w, SIGUSR1, now);
        }
        if (w->failed && w->o->fail_fast && !w->stopping) {
            lvni_core_print(stderr,
                            "levin sweep: stopped: a trial failed, and --fail-fast is on\n");
            stop(w, ASKED_BY_FILE, now);
        }
    }
    return LVN_OK;
}

/* While its program is asked. false: this worker stops. */
static bool go_on(void *user)
{
    lvni_sweep_worker *w = user;
    on_signals(w);
    w->reaped = reap(w, lvni_core_now_ns());
    beat_all(w, lvni_core_now_ns());
    kill_late(w, lvni_core_now_ns());
    return !w->stopping && w->reaped == LVN_OK;
}

/* Of a strategy that makes trials while they run: *more, there is one more that may be claimed. */
static lvn_status ask_for_more(lvni_sweep_worker *w, bool *more)
{
    lvni_sweep_answer answer;
    *more = false;
    if (w->asker == NULL) {
        return LVN_OK;
    }
    LVN_TRY(lvni_sweep_asker_next(w->asker, go_on, w, &answer));
    LVN_TRY(w->reaped);
    w->is_to_wait = answer == LVNI_SWEEP_ANSWER_WAIT;
    *more = answer == LVNI_SWEEP_ANSWER_TRIAL;
    if (answer == LVNI_SWEEP_ANSWER_STOP) {
        lvni_sweep_asker_destroy(w->asker);
        w->asker = NULL;
    }
    return grow(w);
}

/* Fills free slots. */
static lvn_status claim_all(lvni_sweep_worker *w)
{
    if (w->stopping || (w->o->function != NULL && lvni_sweep_is_stopped(w->plan, -1))) {
        return LVN_OK;
    }
    for (int i = 0; i < w->n_slots; i++) {
        int64_t trial;
        lvni_sweep_look look;
        lvni_sweep_after after = LVNI_SWEEP_AFTER_DONE;
        if (w->slots[i].trial >= 0) {
            continue;
        }
        if (w->next < w->plan->n_trials && w->o->function == NULL) {
            see_stop_files(w, lvni_core_now_ns());
        }
        LVN_TRY(w->stopping ? LVN_OK : claim_next(w, &trial, &look));
        if (w->stopping) {
            return LVN_OK;
        }
        if (trial < 0) {
            bool more;
            LVN_TRY(ask_for_more(w, &more));
            if (!more) {
                return LVN_OK;
            }
            i--;
            continue;
        }
        const lvn_status s = lvni_sweep_attempt_begin(w, &w->slots[i], trial, &look, &after);
        if (s == LVN_ERR_CORRUPT || s == LVN_ERR_NOT_FOUND) {
            set_aside(w, trial);
            i--;
            continue;
        }
        LVN_TRY(s);
        if (w->slots[i].trial < 0) { /* it is over at once */
            w->known[trial] = after == LVNI_SWEEP_AFTER_AGAIN ? OPEN : CLOSED;
            w->next = after == LVNI_SWEEP_AFTER_AGAIN ? 0 : w->next;
            i--;
        }
    }
    return LVN_OK;
}

/* When nothing more can be claimed in this pass: begins the next one when it is time. false: there
 * is nothing to wait for. */
static bool next_pass(lvni_sweep_worker *w, uint64_t now)
{
    if (w->stopping) {
        return n_running(w) > 0;
    }
    if (w->next < w->plan->n_trials) {
        return true;
    }
    if (w->again || (w->waits && now - w->pass_ns >= look_ns(w))) {
        w->next = 0;
        w->again = w->waits = false;
        w->pass_ns = now;
        return true;
    }
    return w->waits || n_running(w) > 0;
}

static bool follows(const lvni_sweep_worker *w)
{
    return w->plan->training && lvni_sweep_plan_prunes(w->plan) && n_running(w) > 0;
}

static lvn_status follow_all(lvni_sweep_worker *w, uint64_t now)
{
    if (!follows(w) || now - w->rungs_ns < FOLLOW_NS) {
        return LVN_OK;
    }
    w->rungs_ns = now;
    for (int i = 0; i < w->n_slots; i++) {
        if (w->slots[i].trial >= 0) {
            LVN_TRY(lvni_sweep_attempt_follow(w, &w->slots[i]));
        }
    }
    return LVN_OK;
}

static int wait_ms(const lvni_sweep_worker *w, uint64_t now)
{
    if (!w->stopping && w->next < w->plan->n_trials && n_running(w) < w->n_slots) {
        return 0;
    }
    uint64_t at = n_running(w) > 0 ? w->beat_ns + beat_ns(w) : now + look_ns(w);
    if (!w->stopping && w->waits && w->pass_ns + look_ns(w) < at) {
        at = w->pass_ns + look_ns(w);
    }
    if (follows(w) && w->rungs_ns + FOLLOW_NS < at) {
        at = w->rungs_ns + FOLLOW_NS;
    }
    return at <= now ? 1 : (int)((at - now) / MS) + 1;
}

/* Its program waits for trials, and there are none that it could wait for. */
static void note_wait(lvni_sweep_worker *w)
{
    if (w->is_to_wait && !w->stopping) {
        lvni_core_print(stderr,
                        "levin sweep: strategy=%s: its program answered {\"wait\": true} while no "
                        "trial runs, so that nothing would change: this worker ends; "
                        "{\"stop\": true} ends a sweep\n",
                        w->plan->strategy);
        w->failed = true;
    }
}

static lvn_status serve(lvni_sweep_worker *w)
{
    for (;;) {
        LVN_TRY(claim_all(w));
        uint64_t now = lvni_core_now_ns();
        if (!next_pass(w, now)) {
            note_wait(w);
            return LVN_OK;
        }
        struct pollfd wait = {.fd = w->signal_fd, .events = POLLIN};
        if (poll(&wait, 1, wait_ms(w, now)) < 0 && errno != EINTR) {
            LVN_FAIL(LVN_ERR_IO, "cannot wait for trials: %s", strerror(errno));
        }
        on_signals(w);
        now = lvni_core_now_ns();
        LVN_TRY(reap(w, now));
        beat_all(w, now);
        LVN_TRY(follow_all(w, now));
        kill_late(w, now);
    }
}

/* What went wrong with the sweep's files ends this worker: its trials are interrupted, and others
 * may have them. */
static void end_all(lvni_sweep_worker *w)
{
    const lvn_error error = *lvn_last_error();
    stop(w, SIGTERM, lvni_core_now_ns());
    while (n_running(w) > 0) {
        struct pollfd wait = {.fd = w->signal_fd, .events = POLLIN};
        (void)poll(&wait, 1, 100);
        on_signals(w);
        kill_late(w, lvni_core_now_ns());
        for (int i = 0; i < w->n_slots; i++) {
            lvni_sweep_after after;
            int code;
            if (w->slots[i].trial >= 0 &&
                lvni_sweep_process_ended(&w->guard, w->slots[i].pid, &code)) {
                (void)lvni_sweep_attempt_end(w, &w->slots[i], code, &after);
                w->slots[i].trial = -1;
            }
        }
    }
    lvni_core_error_restore(&error);
}

/* ---- beginning and end ---- */

static void print_summary(const lvni_sweep_worker *w)
{
    lvni_core_str text = {0};
    for (int s = LVNI_SWEEP_DONE; s < LVNI_SWEEP_STATES; s++) {
        if (w->ended[s] > 0) {
            lvni_core_str_printf(&text, "%s%" PRId64 " %s", text.len > 0 ? ", " : "", w->ended[s],
                                 lvni_sweep_state_name((lvni_sweep_state)s));
        }
    }
    if (w->interrupted > 0) {
        lvni_core_str_printf(&text, "%s%" PRId64 " interrupted", text.len > 0 ? ", " : "",
                             w->interrupted);
    }
    if (!w->o->quiet) {
        lvni_core_print(stderr, "levin sweep: %s; levin sweep show %s\n",
                        text.len > 0 ? text.data : "nothing was left to run", w->plan->dir);
    }
    lvni_core_str_free(&text);
}

static lvn_status open_worker(lvni_sweep_worker *w)
{
    w->slots = lvni_core_calloc(LVNI_TAG_CORE, (size_t)w->n_slots, sizeof *w->slots);
    if (w->slots == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < w->n_slots; i++) {
        w->slots[i].trial = -1;
    }
    lvni_sweep_owner_self(&w->owner);
    LVN_TRY(grow(w));
    LVN_TRY(lvni_sweep_reader_create(w->plan, w->o->ask != NULL ? w->o->ask : lvni_sweep_ask_host,
                                     w->o->user, NULL, &w->reader));
    LVN_TRY(take_signals(w));
    if (lvni_sweep_plan_asks(w->plan) && w->o->only < 0) {
        w->first = 0; /* numbers are added behind those that there are */
        LVN_TRY(lvni_sweep_asker_create(w->plan, w->reader, &w->asker));
    }
    return w->o->function != NULL ? LVN_OK : lvni_sweep_guard_start(&w->guard);
}

static void close_worker(lvni_sweep_worker *w)
{
    lvni_sweep_guard_end(&w->guard);
    lvni_sweep_asker_destroy(w->asker);
    for (int i = 0; w->slots != NULL && i < w->n_slots; i++) {
        lvni_core_str_free(&w->slots[i].dir);
    }
    lvni_core_free(w->slots);
    lvni_core_free(w->known);
    lvni_core_str_free(&w->dir);
    lvni_sweep_reader_destroy(w->reader);
    if (w->signal_fd >= 0) {
        close(w->signal_fd);
        sigprocmask(SIG_SETMASK, &w->mask, NULL);
    }
}

/* Do other workers of this job still run a trial? */
static bool job_has_others(lvni_sweep_worker *w)
{
    for (int64_t i = 0; i < w->plan->n_trials; i++) {
        lvni_sweep_look look;
        if (w->known[i] == OPEN && lvni_sweep_reader_look(w->reader, i, &look) == LVN_OK &&
            look.state == LVNI_SWEEP_RUNNING && strcmp(look.owner.job, w->owner.job) == 0) {
            return true;
        }
    }
    return false;
}

/* As for a training that is a job: queued again once all checkpoints are written. Of the workers of
 * a step the first one does it. */
static lvn_status queue_again(lvni_sweep_worker *w)
{
    const lvni_run_rank alone = {.world = 1};
    const char *number = lvni_launch_env_get(environ, "SLURM_PROCID");
    if (!w->plan->training || w->owner.job[0] == '\0' ||
        (w->o->single && number != NULL && strcmp(number, "0") != 0)) {
        return LVN_OK;
    }
    for (int i = 0; i < GRACE_S && w->o->single && job_has_others(w); i++) {
        sleep(1);
    }
    return lvni_run_requeue(&alone, NULL, true, 0, w->advanced);
}

lvn_status lvni_sweep_work(lvni_sweep_plan *plan, const lvni_sweep_work_options *options,
                           int *exit_code)
{
    LVN_ARG(options->only < plan->n_trials,
            "trial %" PRId64 ": the sweep %s has %" PRId64 " trial%s, the first one is 0",
            options->only, plan->dir, plan->n_trials, lvni_core_plural(plan->n_trials, "", "s"));
    lvni_sweep_worker w = {.plan = plan,
                           .o = options,
                           .signal_fd = -1,
                           .guard = {.fd = -1},
                           .n_slots =
                               options->only >= 0 || options->parallel < 1 ? 1 : options->parallel,
                           .first = options->first};
    lvn_status s = open_worker(&w);
    if (s == LVN_OK) {
        s = serve(&w);
        if (s != LVN_OK) {
            end_all(&w);
        } else {
            print_summary(&w);
        }
    }
    if (s == LVN_OK && w.signal == SIGUSR1) {
        s = queue_again(&w);
    }
    *exit_code = s != LVN_OK           ? (int)lvni_core_exit_of_status(s)
                 : w.signal == SIGUSR1 ? LVNI_EXIT_REQUEUE
                 : w.signal > 0        ? lvni_core_exit_of_signal(w.signal)
                 : w.failed            ? LVNI_EXIT_FAILURE
                                       : LVNI_EXIT_OK;
    const lvn_error error = *lvn_last_error();
    close_worker(&w);
    lvni_core_error_restore(&error);
    return s;
}
