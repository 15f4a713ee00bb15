/* Reading the files of a trial's folder (sweep_records.h): claims, ends, and whether an owner is
 * alive. Writing them: sweep_claim.c. Called by workers, and by `levin sweep status` and its
 * like. */
#include "sweep/sweep_records_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/machine.h"
#include "core/vfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { RECORD_MAX = 64 << 10, UNKNOWN_TIMES = 3 };

static const char *const state_names[LVNI_SWEEP_STATES] = {
    [LVNI_SWEEP_PENDING] = "pending", [LVNI_SWEEP_RUNNING] = "running",
    [LVNI_SWEEP_LOST] = "lost",       [LVNI_SWEEP_INTERRUPTED] = "interrupted",
    [LVNI_SWEEP_DONE] = "done",       [LVNI_SWEEP_DIVERGED] = "diverged",
    [LVNI_SWEEP_FAILED] = "failed",   [LVNI_SWEEP_PRUNED] = "pruned",
};

static const char *const end_names[LVNI_SWEEP_ENDS] = {
    [LVNI_SWEEP_END_ENDED] = "ended",
    [LVNI_SWEEP_END_RETRY] = "retry",
    [LVNI_SWEEP_END_INTERRUPTED] = "interrupted",
    [LVNI_SWEEP_END_LOST] = "lost",
};

const char *lvni_sweep_state_name(lvni_sweep_state state)
{
    return state_names[state];
}

const char *lvni_sweep_end_name(lvni_sweep_end why)
{
    return end_names[why];
}

/* ---- calls and paths ---- */

static int real_stat(const char *path, int64_t *links, int64_t *bytes)
{
    struct stat st;
    const int fd = lvni_core_vfs_get()->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    const int rc = fstat(fd, &st), error = errno;
    (void)lvni_core_vfs_get()->close(fd);
    errno = error;
    *links = rc == 0 ? (int64_t)st.st_nlink : 0;
    *bytes = rc == 0 ? (int64_t)st.st_size : 0;
    return rc;
}

static const lvni_sweep_calls real_calls = {.stat = real_stat};
static const lvni_sweep_calls *calls = &real_calls;

const lvni_sweep_calls *lvni_sweep_calls_get(void)
{
    return calls;
}

void lvni_sweep_calls_set(const lvni_sweep_calls *c)
{
    calls = c != NULL ? c : &real_calls;
}

void lvni_sweep_file(lvni_core_str *out, const char *dir, const char *name, int64_t attempt)
{
    lvni_core_str_clear(out);
    lvni_core_str_printf(out, "%s/%s", dir, name);
    if (attempt > 0) {
        lvni_core_str_printf(out, ".%" PRId64, attempt);
    }
}

void lvni_sweep_trial_path(const lvni_sweep_plan *plan, int64_t trial, lvni_core_str *out)
{
    lvni_core_str_printf(out, "%s/trials/%06" PRId64, plan->dir, trial);
}

/* false also where the answer is not known: then nothing is stopped. */
static bool is_there(const char *path)
{
    int64_t links, bytes;
    return calls->stat(path, &links, &bytes) == 0;
}

bool lvni_sweep_is_stopped(const lvni_sweep_plan *plan, int64_t trial)
{
    lvni_core_str path = {0};
    if (trial >= 0) {
        lvni_sweep_trial_path(plan, trial, &path);
        lvni_core_str_append(&path, "/stop");
    } else {
        lvni_sweep_file(&path, plan->dir, "stop", 0);
    }
    const bool stopped = lvni_core_str_status(&path) == LVN_OK && is_there(path.data);
    lvni_core_str_free(&path);
    return stopped;
}

/* ---- JSON of a record ---- */

static void copy_text(const json_t *object, const char *key, char *out, size_t room)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text != NULL) {
        const size_t n = lvni_core_utf8_cut(text, room - 1);
        memcpy(out, text, n);
        out[n] = '\0';
    }
}

static int64_t whole(const json_t *object, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(object, key));
}

/* What is not finite is a text: "nan", "inf". */
static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_string(value) ? lvni_core_strtod(json_string_value(value), NULL)
                                 : json_number_value(value);
}

static void read_owner(const json_t *object, lvni_sweep_owner *out)
{
    *out = (lvni_sweep_owner){.pid = whole(object, "pid"),
                              .started = whole(object, "started"),
                              .space = (uint64_t)whole(object, "space"),
                              .restarts = whole(object, "restarts")};
    copy_text(object, "host", out->host, sizeof out->host);
    copy_text(object, "boot", out->boot, sizeof out->boot);
    copy_text(object, "job", out->job, sizeof out->job);
    copy_text(object, "node", out->node, sizeof out->node);
}

/* false: this is not one. */
static bool read_result(const json_t *object, lvni_sweep_result *out)
{
    const char *state = json_string_value(json_object_get(object, "state"));
    int s = LVNI_SWEEP_DONE;
    while (s < LVNI_SWEEP_STATES && (state == NULL || strcmp(state, state_names[s]) != 0)) {
        s++;
    }
    *out = (lvni_sweep_result){.state = (lvni_sweep_state)s,
                               .attempt = whole(object, "attempt"),
                               .exit_code = (int)whole(object, "exit_code"),
                               .has_value = json_object_get(object, "value") != NULL,
                               .value = number(object, "value"),
                               .last = number(object, "last"),
                               .step = whole(object, "step"),
                               .epoch = whole(object, "epoch"),
                               .epochs = whole(object, "epochs"),
                               .seconds = number(object, "seconds")};
    copy_text(object, "error", out->error, sizeof out->error);
    copy_text(object, "checkpoint", out->checkpoint, sizeof out->checkpoint);
    return s < LVNI_SWEEP_STATES;
}

/* *out NULL: there is no such file. An empty object where it holds something else: an owner of
 * whom nothing is known. */
static lvn_status read_record(const char *path, json_t **out)
{
    char *text = NULL;
    size_t n = 0;
    const lvn_error before = *lvn_last_error();
    *out = NULL;
    const lvn_status s = lvni_core_file_read(path, RECORD_MAX, &text, &n);
    if (s == LVN_ERR_NOT_FOUND) {
        lvni_core_error_restore(&before);
        return LVN_OK;
    }
    LVN_TRY(s);
    json_t *value = lvni_core_json_try(text, LVNI_JSON_FILE);
    lvni_core_free(text);
    if (!json_is_object(value)) {
        json_decref(value);
        value = json_object();
    }
    *out = value;
    if (value == NULL) {
        LVN_FAIL(LVN_ERR_MEMORY, "out of memory while reading %s", path);
    }
    return LVN_OK;
}

static lvn_status damaged(const char *path)
{
    LVN_FAIL(LVN_ERR_CORRUPT,
             "%s: not a record of a sweep; remove the trial's folder to have the trial planned and "
             "run again (levin sweep plan --extend)",
             path);
}

/* ---- a look ---- */

typedef struct memory {
    int64_t attempt; /* the highest claim that was seen; claims stay, so looking begins here */
    int64_t bytes;   /* of its beat; -1: not looked at */
    uint64_t since_ns;
} memory;

struct lvni_sweep_reader {
    const lvni_sweep_plan *plan;
    lvni_sweep_ask *ask;
    void *user;
    uint64_t (*now_ns)(void);
    memory *trials;
    int64_t room;
    lvni_core_str dir, path;
};

lvn_status lvni_sweep_reader_create(const lvni_sweep_plan *plan, lvni_sweep_ask *ask, void *user,
                                    uint64_t (*now_ns)(void), lvni_sweep_reader **out)
{
    lvni_sweep_reader *r = LVNI_NEW(LVNI_TAG_CORE, lvni_sweep_reader);
    if (r == NULL) {
        return LVN_ERR_MEMORY;
    }
    *r = (lvni_sweep_reader){.plan = plan,
                             .ask = ask,
                             .user = user,
                             .now_ns = now_ns != NULL ? now_ns : lvni_core_now_ns};
    *out = r;
    return LVN_OK;
}

void lvni_sweep_reader_destroy(lvni_sweep_reader *r)
{
    if (r != NULL) {
        lvni_core_free(r->trials);
        lvni_core_str_free(&r->dir);
        lvni_core_str_free(&r->path);
        lvni_core_free(r);
    }
}

static lvn_status remember(lvni_sweep_reader *r, int64_t trial, memory **out)
{
    LVN_ARG(trial >= 0, "trial %" PRId64 ": the first one is 0", trial);
    if (trial >= r->room) {
        const int64_t room = trial + 1 > r->plan->n_trials ? trial + 1 : r->plan->n_trials;
        memory *more = lvni_core_realloc(LVNI_TAG_CORE, r->trials, (size_t)room * sizeof *more);
        if (more == NULL) {
            return LVN_ERR_MEMORY;
        }
        for (int64_t i = r->room; i < room; i++) {
            more[i] = (memory){.bytes = -1};
        }
        r->trials = more;
        r->room = room;
    }
    *out = &r->trials[trial];
    return LVN_OK;
}

static lvn_status open_record(lvni_sweep_reader *r, const char *name, int64_t attempt, json_t **out)
{
    lvni_sweep_file(&r->path, r->dir.data, name, attempt);
    LVN_TRY(lvni_core_str_status(&r->path));
    return read_record(r->path.data, out);
}

static bool has_record(lvni_sweep_reader *r, const char *name, int64_t attempt)
{
    lvni_sweep_file(&r->path, r->dir.data, name, attempt);
    return lvni_core_str_status(&r->path) == LVN_OK && is_there(r->path.data);
}

/* The state of a claim that was not left: alive, or silent for long enough. */
static lvn_status look_at_owner(lvni_sweep_reader *r, memory *m, lvni_sweep_look *out)
{
    int64_t links, bytes;
    json_t *claim;
    LVN_TRY(open_record(r, "claim", m->attempt, &claim));
    read_owner(claim, &out->owner);
    json_decref(claim);
    lvni_sweep_file(&r->path, r->dir.data, "beat", m->attempt);
    LVN_TRY(lvni_core_str_status(&r->path));
    if (calls->stat(r->path.data, &links, &bytes) != 0) {
        bytes = 0; /* none yet, or none that could be seen */
    }
    const uint64_t now = r->now_ns();
    if (bytes != m->bytes) {
        m->bytes = bytes;
        m->since_ns = now;
    }
    const double silent_s = 1e-9 * (double)(now - m->since_ns);
    const double dead_s = (double)r->plan->dead_after_s;
    const lvni_sweep_alive alive = r->ask(&out->owner, r->user);
    const bool lost = alive == LVNI_SWEEP_DEAD ||
                      (alive == LVNI_SWEEP_GONE && silent_s >= dead_s) ||
                      (alive == LVNI_SWEEP_UNKNOWN && silent_s >= UNKNOWN_TIMES * dead_s);
    out->state = lost ? LVNI_SWEEP_LOST : LVNI_SWEEP_RUNNING;
    out->silent_s = silent_s;
    out->there = alive == LVNI_SWEEP_THERE;
    return LVN_OK;
}

static int end_of(const json_t *left)
{
    const char *why = json_string_value(json_object_get(left, "why"));
    int end = 0;
    while (end < LVNI_SWEEP_ENDS && (why == NULL || strcmp(why, end_names[end]) != 0)) {
        end++;
    }
    return end;
}

/* Attempts that failed since the trial was last asked for by hand. */
static lvn_status count_failed(lvni_sweep_reader *r, lvni_sweep_look *out)
{
    for (int64_t k = out->attempt; k > 0; k--) {
        json_t *left;
        LVN_TRY(open_record(r, "left", k, &left));
        const int end = end_of(left);
        json_decref(left);
        if (end == LVNI_SWEEP_END_ENDED) {
            return LVN_OK;
        }
        out->failed += end == LVNI_SWEEP_END_RETRY;
    }
    return LVN_OK;
}

/* What left.K makes of the trial. */
static lvn_status look_at_end(lvni_sweep_reader *r, const json_t *left, lvni_sweep_look *out)
{
    switch (end_of(left)) {
    case LVNI_SWEEP_END_RETRY:
    case LVNI_SWEEP_END_LOST: out->state = LVNI_SWEEP_PENDING; return count_failed(r, out);
    case LVNI_SWEEP_END_INTERRUPTED:
        out->state = LVNI_SWEEP_INTERRUPTED;
        return count_failed(r, out);
    case LVNI_SWEEP_END_ENDED:
        if (!read_result(left, &out->result)) {
            return damaged(r->path.data);
        }
        out->state = has_record(r, "failed", out->attempt) ? LVNI_SWEEP_PENDING : out->result.state;
        return LVN_OK;
    default: return damaged(r->path.data);
    }
}

/* The result of the trial, where it has one. */
static lvn_status look_at_result(lvni_sweep_reader *r, lvni_sweep_look *out)
{
    json_t *result;
    LVN_TRY(open_record(r, "result", 0, &result));
    if (result == NULL) {
        return LVN_OK;
    }
    const bool good = read_result(result, &out->result);
    json_decref(result);
    if (!good) {
        return damaged(r->path.data);
    }
    out->state = out->result.state;
    out->attempt = out->result.attempt;
    return LVN_OK;
}

lvn_status lvni_sweep_reader_look(lvni_sweep_reader *r, int64_t trial, lvni_sweep_look *out)
{
    memory *m = NULL;
    *out = (lvni_sweep_look){.state = LVNI_SWEEP_PENDING};
    LVN_TRY(remember(r, trial, &m));
    lvni_core_str_clear(&r->dir);
    lvni_sweep_trial_path(r->plan, trial, &r->dir);
    LVN_TRY(lvni_core_str_status(&r->dir));
    LVN_TRY(look_at_result(r, out));
    if (lvni_sweep_state_is_end(out->state)) {
        return LVN_OK;
    }
    while (has_record(r, "claim", m->attempt + 1)) {
        *m = (memory){.attempt = m->attempt + 1, .bytes = -1};
    }
    out->attempt = m->attempt;
    if (m->attempt == 0) {
        return LVN_OK;
    }
    json_t *left;
    LVN_TRY(open_record(r, "left", m->attempt, &left));
    const lvn_status s = left == NULL ? look_at_owner(r, m, out) : look_at_end(r, left, out);
    json_decref(left);
    return s;
}
