/* The thread of watchdog.h. Called by ranks.c. */
#include "run/watchdog.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/machine.h"
#include "core/signals.h"
#include "core/thread.h"
#include "core/training.h"
#include "dist/rank_progress.h"
#include "dist/transport.h"
#include "log/run_log.h"
#include "run/rank_impl.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Seconds: at most between two looks, for the other processes' answers beside that, and until a
 * process whose rank has not come back is ended: the one that is the cause, the others. */
static const double LOOK_S = 3.0, ANSWER_S = 2.0, CULPRIT_S = 1.5, OTHERS_S = 5.0;
/* ... and longer while a rank of the process saves what was learned before. */
static const double SAVING_S = 60.0;

/* In the counter "hang" of the store: ranks that found one, and questions about a late step. */
enum { LATE = 1 << 20 };

/* Where a rank is, as it is sent. */
typedef struct answer {
    int64_t there; /* 0: none came; else the round, of a late step from 2 on */
    int64_t rank, entered, waits, call, place, step;
    double waited_s;
} answer;

typedef struct verdict {
    int64_t rank; /* for which the others wait */
    char text[768];
} verdict;

struct lvni_run_watchdog {
    const lvni_run_ranks *ranks;
    lvni_control *control;
    int process;
    double timeout_s, period_s;
    answer *mine, *all; /* of this process; of all ranks */
    int64_t round;      /* of questions about a late step; the last that was answered */
    int64_t late_step;  /* that was reported; -1: none */
    int saves;          /* SIGUSR2 that were answered by where the ranks are */
    verdict verdict;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
};

/* Returns whether the ranks have ended meanwhile. */
static bool sleep_s(lvni_run_watchdog *w, double seconds)
{
    const struct timespec until =
        lvni_core_timespec(lvni_core_now_ns() + (uint64_t)(seconds * 1e9));
    int error = 0;
    pthread_mutex_lock(&w->lock);
    while (!w->stop && error == 0) {
        error = pthread_cond_timedwait(&w->changed, &w->lock, &until);
    }
    const bool stop = w->stop;
    pthread_mutex_unlock(&w->lock);
    return stop;
}

/* ---- where the ranks are ---- */

static bool is_stuck(const lvni_run_watchdog *w)
{
    bool stuck = false;
    for (int i = 0; i < w->ranks->n; i++) {
        const lvni_dist_progress p = lvni_dist_comm_progress(w->ranks->rank[i].comm);
        stuck = stuck || p.waited_s > w->timeout_s;
    }
    return stuck;
}

static void look(const lvni_run_watchdog *w, int64_t round)
{
    for (int i = 0; i < w->ranks->n; i++) {
        const lvni_dist_progress p = lvni_dist_comm_progress(w->ranks->rank[i].comm);
        w->mine[i] = (answer){.there = round,
                              .rank = w->ranks->rank[i].rank,
                              .entered = (int64_t)p.entered,
                              .waits = p.waits,
                              .call = p.call,
                              .place = p.place,
                              .step = p.step,
                              .waited_s = p.waited_s};
    }
}

static void take(const lvni_run_watchdog *w, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n / sizeof(answer); i++) {
        answer one;
        memcpy(&one, (const char *)bytes + i * sizeof one, sizeof one);
        if (one.rank >= 0 && one.rank < w->ranks->world && one.there == w->mine->there) {
            w->all[one.rank] = one;
        }
    }
}

static void key_of(const lvni_run_watchdog *w, int process, char out[32])
{
    snprintf(out, 32, "%s/%d", w->mine->there > 1 ? "late" : "hang", process);
}

/* Of all other processes; those that do not come in time are left out. */
static void collect(const lvni_run_watchdog *w)
{
    const uint64_t begun = lvni_core_now_ns();
    for (int r = 0; w->control != NULL && r < lvni_control_world(w->control); r++) {
        char key[32], *bytes = NULL;
        size_t n;
        const double left = w->period_s + ANSWER_S - lvni_core_seconds_since(begun);
        key_of(w, r, key);
        if (r != w->process &&
            lvni_control_get(w->control, key, left > 0.01 ? left : 0.01, &bytes, &n) == LVN_OK) {
            take(w, bytes, n);
            lvni_core_free(bytes);
        }
    }
}

/* ---- what they wait for ---- */

/* Smaller: rather the cause. A rank that waits for none; one without an answer; of ranks that all
 * wait the one that is behind. */
static int suspicion(const answer *a)
{
    return a->there && !a->waits ? 0 : !a->there ? 1 : 2;
}

static int find_cause(const lvni_run_watchdog *w)
{
    int found = 0;
    for (int r = 1; r < w->ranks->world; r++) {
        const answer *a = &w->all[r], *b = &w->all[found];
        const int of_a = suspicion(a), of_b = suspicion(b);
        found = of_a < of_b || (of_a == of_b && a->entered < b->entered) ? r : found;
    }
    return found;
}

/* The call that has waited longest. */
static const answer *find_waiting(const lvni_run_watchdog *w)
{
    const answer *longest = &w->all[0];
    for (int r = 1; r < w->ranks->world; r++) {
        longest = w->all[r].waited_s > longest->waited_s ? &w->all[r] : longest;
    }
    return longest;
}

static const char *host_of(const lvni_run_watchdog *w, int rank)
{
    const bool processes = w->control != NULL && lvni_control_world(w->control) == w->ranks->world;
    return processes                      ? lvni_control_members(w->control)[rank].host
           : w->control == NULL           ? "this process"
           : rank == w->ranks->rank->rank ? lvni_control_members(w->control)[w->process].host
                                          : "";
}

static void describe(const lvni_run_watchdog *w, int rank, int64_t k, lvni_core_str *out)
{
    const answer *a = &w->all[rank];
    const char *host = host_of(w, rank);
    lvni_core_str_printf(out, "\n  rank %d%s%s%s: ", rank, host[0] != '\0' ? " (" : "", host,
                         host[0] != '\0' ? ")" : "");
    if (!a->there) {
        lvni_core_str_append(out, "no answer");
        return;
    }
    lvni_core_str_printf(out, "%s collective %lld, ",
                         a->entered < k ? "has not entered" : "has entered", (long long)k);
    if (a->waits) {
        lvni_core_str_printf(out, "waits in %lld (%s) for %.1f s, ", (long long)a->entered,
                             lvni_dist_call_name((int)a->call), a->waited_s);
    }
    lvni_core_str_printf(out, "%s of step %lld", lvni_dist_place_name((int)a->place),
                         (long long)a->step);
}

static bool is_before(const lvni_run_watchdog *w, int rank, int64_t k)
{
    const answer *a = &w->all[rank];
    return !a->there || a->entered < k || !a->waits;
}

/* The sentence, then a line for each rank as far as there is room: those that are missing first. */
static void check_others(lvni_run_watchdog *w)
{
    enum { ROOM_FOR_A_LINE = 150, ROOM_FOR_THE_END = 130 };
    const answer *waiting = find_waiting(w);
    const int64_t k = waiting->entered;
    const int cause = find_cause(w);
    int left_out = 0;
    lvni_core_str s = {0};
    w->verdict = (verdict){.rank = cause};
    lvni_core_str_printf(
        &s, "rank %d %s collective %lld (%s), in which rank %d has waited for %.1f s", cause,
        w->all[cause].there && w->all[cause].entered >= k ? "does not end" : "has not entered",
        (long long)k, lvni_dist_call_name((int)waiting->call), (int)waiting->rank,
        waiting->waited_s);
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < w->ranks->world; r++) {
            const bool fits = s.len + ROOM_FOR_A_LINE < sizeof w->verdict.text - ROOM_FOR_THE_END;
            if (is_before(w, r, k) == (pass == 0)) {
                left_out += !fits;
                if (fits) {
                    describe(w, r, k, &s);
                }
            }
        }
    }
    if (left_out > 0) {
        lvni_core_str_printf(&s, "\n  and %d more", left_out);
    }
    lvni_core_str_printf(&s,
                         "\n  collective_timeout=%g is over: a larger one where a rank may take "
                         "longer, 0 to wait for ever",
                         w->timeout_s);
    snprintf(w->verdict.text, sizeof w->verdict.text, "%s", lvni_core_str_text(&s));
    lvni_core_str_free(&s);
}

/* ---- a late step, and SIGUSR2: a line for each rank, and the run goes on ---- */

/* Later than 60 s and 20 times the median, or, so that the warning comes before the end, half of
 * the time-out. Of the first rank: all of them take part in a step. */
static bool is_late(const lvni_run_watchdog *w, int64_t *step)
{
    const lvni_dist_progress p = lvni_dist_comm_progress(w->ranks->rank->comm);
    const double late_s = 20 * p.usual_s > 60.0 ? 20 * p.usual_s : 60.0,
                 half_s = 2 * p.usual_s > w->timeout_s / 2 ? 2 * p.usual_s : w->timeout_s / 2;
    *step = p.step;
    return w->process == 0 && p.step_s > (late_s < half_s ? late_s : half_s) &&
           p.step != w->late_step;
}

static void answer_late(lvni_run_watchdog *w, int64_t round)
{
    char key[32];
    w->round = round;
    look(w, 1 + round);
    key_of(w, w->process, key);
    (void)lvni_control_set(w->control, key, w->mine, (size_t)w->ranks->n * sizeof *w->mine);
}

/* Of all ranks; false: the run is over. */
static bool ask_all(lvni_run_watchdog *w, lvni_core_str *out)
{
    enum { MOST = 2000 };
    memset(w->all, 0, (size_t)w->ranks->world * sizeof *w->all);
    look(w, 1 + ++w->round);
    take(w, w->mine, (size_t)w->ranks->n * sizeof *w->mine);
    if (w->control != NULL) {
        int64_t n;
        if (lvni_control_add(w->control, "hang", LATE, &n) != LVN_OK ||
            sleep_s(w, w->period_s + 0.1)) {
            return false;
        }
        collect(w);
    }
    const int64_t k = find_waiting(w)->entered;
    for (int r = 0; r < w->ranks->world && out->len < MOST; r++) {
        describe(w, r, k, out);
    }
    memset(w->all, 0, (size_t)w->ranks->world * sizeof *w->all);
    return true;
}

static void report_late(lvni_run_watchdog *w, int64_t step)
{
    lvni_core_str s = {0};
    w->late_step = step;
    if (ask_all(w, &s)) {
        lvni_log_line(LVNI_LOG_WARNING, "step %lld is late, %.1f s after it began:%-s",
                      (long long)step, lvni_dist_comm_progress(w->ranks->rank->comm).step_s,
                      lvni_core_str_text(&s));
    }
    lvni_core_str_free(&s);
}

/* The launcher and srun pass the signal to all: process 0 answers it. */
static void report_state(lvni_run_watchdog *w)
{
    lvni_core_str s = {0};
    w->saves = lvni_core_signals_saves();
    if (ask_all(w, &s)) {
        lvni_log_line(LVNI_LOG_INFO, "SIGUSR2: where the ranks are:%-s", lvni_core_str_text(&s));
    }
    lvni_core_str_free(&s);
}

/* ---- the end ---- */

static bool has(const lvni_run_watchdog *w, int64_t rank)
{
    bool found = false;
    for (int i = 0; i < w->ranks->n; i++) {
        found = found || w->ranks->rank[i].rank == rank;
    }
    return found;
}

static void report(const lvni_run_watchdog *w)
{
    if (w->control == NULL) {
        lvni_dist_comm_abort_for(w->ranks->rank->comm, (int)w->verdict.rank, w->verdict.text);
        return;
    }
    lvni_control_cause cause = {.kind = LVNI_CAUSE_PEER, .step = -1, .named = true};
    snprintf(cause.message, sizeof cause.message, "%s", w->verdict.text);
    lvni_control_fail(w->control, &cause);
}

static bool is_saving(const lvni_run_watchdog *w)
{
    bool saving = false;
    for (int i = 0; i < w->ranks->n; i++) {
        const lvni_dist_progress p = lvni_dist_comm_progress(w->ranks->rank[i].comm);
        saving = saving || p.place == LVNI_PLACE_SAVE;
    }
    return saving;
}

/* Its threads do not come back: nothing else of it is waited for. */
static void leave_without(lvni_run_watchdog *w, bool culprit)
{
    if (culprit) { /* a launcher may stop this process once it sees others end */
        (void)lvn_error_set(LVN_ERR_TIMEOUT, __FILE__, __LINE__, "%-s", w->verdict.text);
        (void)lvni_core_error_record_write(lvn_last_error(), LVNI_EXIT_PEER);
        report(w);
    }
    bool over = sleep_s(w, culprit ? CULPRIT_S : OTHERS_S);
    const uint64_t saving_ns = lvni_core_now_ns();
    while (!over && is_saving(w) && lvni_core_seconds_since(saving_ns) < SAVING_S) {
        over = sleep_s(w, 0.1);
    }
    if (over || lvni_core_training_get()->hosted) {
        return; /* a host program ends itself */
    }
    if (w->control == NULL) { /* no other process reports it */
        lvni_core_print(stderr, "error: %-s\n", w->verdict.text);
    }
    _exit(LVNI_EXIT_PEER);
}

static void agree_here(lvni_run_watchdog *w)
{
    take(w, w->mine, (size_t)w->ranks->n * sizeof *w->mine);
    collect(w);
    check_others(w);
    const bool culprit = has(w, w->verdict.rank);
    if (w->control != NULL && !culprit) {
        (void)lvni_control_set(w->control, "hang/verdict", &w->verdict, sizeof w->verdict);
        const bool answers = w->all[w->verdict.rank].there != 0;
        /* the rank that is the cause reports it itself, if it still can */
        for (int i = 0; i < 20 && answers && !lvni_control_get_cause(w->control, NULL); i++) {
            (void)sleep_s(w, 0.1);
        }
        report(w);
    }
    leave_without(w, culprit);
}

static void agree_with_others(lvni_run_watchdog *w)
{
    char key[32], *bytes = NULL;
    size_t n;
    key_of(w, w->process, key);
    if (lvni_control_set(w->control, key, w->mine, (size_t)w->ranks->n * sizeof *w->mine) !=
            LVN_OK ||
        lvni_control_get(w->control, "hang/verdict", 2 * (w->period_s + ANSWER_S), &bytes, &n) !=
            LVN_OK) {
        return;
    }
    if (n == sizeof w->verdict) {
        memcpy(&w->verdict, bytes, n);
        leave_without(w, has(w, w->verdict.rank));
    }
    lvni_core_free(bytes);
}

static void agree(lvni_run_watchdog *w, bool first)
{
    look(w, 1);
    if (first) {
        agree_here(w);
    } else {
        agree_with_others(w);
    }
}

static void *watch(void *user)
{
    lvni_run_watchdog *w = user;
    lvni_core_thread_name("watchdog", -1);
    while (!sleep_s(w, w->period_s)) {
        const bool stuck = is_stuck(w);
        int64_t n = stuck, step;
        if (w->control != NULL && lvni_control_add(w->control, "hang", stuck, &n) != LVN_OK) {
            break; /* the run is over */
        }
        if (n % LATE > 0) {
            agree(w, stuck && n % LATE == 1);
            break;
        }
        if (n / LATE > w->round) {
            answer_late(w, n / LATE);
        } else if (is_late(w, &step)) {
            report_late(w, step);
        } else if (w->process == 0 && lvni_core_signals_saves() != w->saves) {
            report_state(w);
        }
    }
    return NULL;
}

lvn_status lvni_run_watchdog_start(const lvni_core_config *config, const lvni_run_ranks *ranks,
                                   lvni_control *control, int process, lvni_run_watchdog **out)
{
    *out = NULL;
    const double timeout_s = lvni_core_config_has(config, "collective_timeout")
                                 ? lvni_core_config_float(config, "collective_timeout")
                                 : 0.0;
    if (timeout_s <= 0.0 || ranks->world < 2) {
        return LVN_OK;
    }
    lvni_run_watchdog *w = LVNI_NEW(LVNI_TAG_DIST, lvni_run_watchdog);
    if (w == NULL) {
        return LVN_ERR_MEMORY;
    }
    w->ranks = ranks;
    w->control = control;
    w->process = process;
    w->late_step = -1;
    w->saves = lvni_core_signals_saves();
    w->timeout_s = timeout_s;
    w->period_s = timeout_s / 8 < LOOK_S ? timeout_s / 8 : LOOK_S;
    w->mine = lvni_core_calloc(LVNI_TAG_DIST, (size_t)ranks->n, sizeof *w->mine);
    w->all = lvni_core_calloc(LVNI_TAG_DIST, (size_t)ranks->world, sizeof *w->all);
    pthread_mutex_init(&w->lock, NULL);
    lvni_core_cond_init(&w->changed);
    if (w->mine == NULL || w->all == NULL || lvni_core_thread_start(&w->thread, watch, w) != 0) {
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->lock);
        const bool memory = w->mine == NULL || w->all == NULL;
        lvni_core_free(w->mine);
        lvni_core_free(w->all);
        lvni_core_free(w);
        if (memory) {
            return LVN_ERR_MEMORY;
        }
        LVN_FAIL(LVN_ERR_RESOURCE, "cannot start the thread that watches the ranks");
    }
    *out = w;
    return LVN_OK;
}

void lvni_run_watchdog_stop(lvni_run_watchdog *w)
{
    if (w == NULL) {
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    lvni_core_free(w->mine);
    lvni_core_free(w->all);
    lvni_core_free(w);
}
