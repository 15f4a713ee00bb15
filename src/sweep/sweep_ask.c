/* The program that is asked for trials (sweep_ask.h). */
#include "sweep/sweep_ask.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/machine.h"
#include "core/signals.h"
#include "core/vfs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ASK_S = 120, SLICE_MS = 100, LINE_MOST = 1 << 20, UNKNOWN = 0, KNOWN, ENDED };

struct lvni_sweep_asker {
    lvni_sweep_plan *plan;
    lvni_sweep_reader *reader;
    pid_t pid; /* 0: not started */
    int in, out;
    unsigned char *sent; /* of each trial: UNKNOWN, KNOWN, ENDED */
    int64_t room;
    lvni_core_str line, answer; /* reused */
    lvni_sweep_meanwhile *meanwhile;
    void *user;
    bool left; /* the worker did not wait for the answer */
};

/* ---- the program ---- */

static lvn_status spawn(lvni_sweep_asker *a, const int to[2], const int from[2])
{
    static char sh[] = "sh", c[] = "-c";
    char *const words[] = {sh, c, a->plan->strategy + strlen("exec:"), NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    posix_spawn_file_actions_adddup2(&files, to[0], 0);
    posix_spawn_file_actions_adddup2(&files, from[1], 1);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawnattr_setpgroup(&how, 0); /* Ctrl-C is the worker's */
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                       POSIX_SPAWN_SETPGROUP);
    const int error = posix_spawn(&a->pid, "/bin/sh", &files, &how, words, environ);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) {
        a->pid = 0;
        LVN_FAIL(LVN_ERR_IO, "strategy=%s: its program cannot be started: %s", a->plan->strategy,
                 strerror(error));
    }
    return LVN_OK;
}

static lvn_status start(lvni_sweep_asker *a)
{
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0) {
        LVN_FAIL(LVN_ERR_IO, "strategy=exec: no pipe: %s", strerror(errno));
    }
    if (pipe2(from, O_CLOEXEC) != 0) {
        close(to[0]);
        close(to[1]);
        LVN_FAIL(LVN_ERR_IO, "strategy=exec: no pipe: %s", strerror(errno));
    }
    const lvn_status s = spawn(a, to, from);
    close(to[0]);
    close(from[1]);
    a->in = to[1];
    a->out = from[0];
    fcntl(a->in, F_SETFL, O_NONBLOCK);
    return s;
}

static lvn_status broken(const lvni_sweep_asker *a, const char *what)
{
    LVN_FAIL(LVN_ERR_IO, "strategy=%s: %s", a->plan->strategy, what);
}

/* Until the descriptor is ready; from `begin` on a program has ASK_S. The worker goes on with its
 * beats and signals all the while, or its trials would be taken for dead. */
static lvn_status wait_for(lvni_sweep_asker *a, int fd, short events, uint64_t begin)
{
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        const int left = ASK_S * 1000 - (int)(1e3 * lvni_core_seconds_since(begin));
        const int n = left > 0 ? poll(&p, 1, left < SLICE_MS ? left : SLICE_MS) : 0;
        const int error = errno;
        if (n > 0) {
            return LVN_OK;
        }
        if (!a->meanwhile(a->user)) {
            a->left = true;
            return broken(a, "its answer is not waited for");
        }
        if (left <= 0) {
            LVN_FAIL(LVN_ERR_IO, "strategy=%s: its program did not answer within %d s",
                     a->plan->strategy, (int)ASK_S);
        }
        if (n < 0 && error != EINTR) {
            return broken(a, strerror(error));
        }
    }
}

/* The line that was put together. A program that answers before it has read all is not waited
 * for. */
static lvn_status send_line(lvni_sweep_asker *a, uint64_t begin)
{
    lvni_core_str_char(&a->line, '\n');
    LVN_TRY(lvni_core_str_status(&a->line));
    for (size_t at = 0; at < a->line.len;) {
        lvni_core_sigpipe sigpipe;
        lvni_core_sigpipe_block(&sigpipe);
        const ssize_t n = write(a->in, a->line.data + at, a->line.len - at);
        const int error = n < 0 ? errno : 0;
        lvni_core_sigpipe_unblock(&sigpipe);
        if (n >= 0) {
            at += (size_t)n;
        } else if (error == EAGAIN) {
            LVN_TRY(wait_for(a, a->in, POLLOUT, begin));
        } else if (error != EINTR) {
            return broken(a, "its program has ended, or closed its input");
        }
    }
    lvni_core_str_clear(&a->line);
    return LVN_OK;
}

/* One line, which is in a->answer without its end. */
static lvn_status read_line(lvni_sweep_asker *a, uint64_t begin)
{
    lvni_core_str_clear(&a->answer);
    for (;;) {
        char c;
        LVN_TRY(wait_for(a, a->out, POLLIN, begin));
        const ssize_t n = read(a->out, &c, 1);
        if (n == 0) {
            return broken(a, "its program has ended without an answer");
        }
        if (n < 0 && errno != EINTR) {
            return broken(a, strerror(errno));
        }
        if (n == 1 && c == '\n') {
            return lvni_core_str_status(&a->answer);
        }
        if (n == 1) {
            lvni_core_str_char(&a->answer, c);
        }
        if (a->answer.len > LINE_MOST) {
            return broken(a, "a line of its program has no end");
        }
    }
}

/* ---- what it gets ---- */

static lvn_status send_sweep(lvni_sweep_asker *a, uint64_t begin)
{
    const lvni_sweep_plan *plan = a->plan;
    lvni_core_str *s = &a->line;
    lvni_core_str_append(s, "{\"sweep\": ");
    lvni_core_str_json(s, plan->name);
    lvni_core_str_append(s, ", \"metric\": ");
    lvni_core_str_json(s, plan->metric);
    lvni_core_str_printf(s, ", \"mode\": \"%s\", \"seed\": %llu, \"trials\": %lld, \"space\": [",
                         plan->maximize ? "max" : "min", (unsigned long long)plan->seed,
                         (long long)plan->most);
    for (int64_t i = 0; plan->space != NULL && plan->space[i] != NULL; i += 2) {
        lvni_core_str_append(s, i > 0 ? ", [" : "[");
        lvni_core_str_json(s, plan->space[i]);
        lvni_core_str_append(s, ", ");
        lvni_core_str_json(s, plan->space[i + 1]);
        lvni_core_str_char(s, ']');
    }
    lvni_core_str_append(s, "]}");
    return send_line(a, begin);
}

static lvn_status send_trial(lvni_sweep_asker *a, int64_t index, const lvni_sweep_look *look,
                             bool ended, uint64_t begin)
{
    lvni_sweep_trial t;
    lvni_core_str *s = &a->line;
    const lvn_status status = lvni_sweep_trial_read(a->plan, index, &t);
    const bool damaged = status == LVN_ERR_CORRUPT || status == LVN_ERR_NOT_FOUND;
    if (damaged) { /* the worker reports it, and goes on with the others */
        lvn_clear_error();
        t = (lvni_sweep_trial){.index = index};
    }
    LVN_TRY(damaged ? LVN_OK : status);
    lvni_core_str_printf(s, "{\"trial\": %lld, \"parameters\": {", (long long)index);
    for (int64_t k = 0; t.names != NULL && t.names[k] != NULL; k++) {
        lvni_core_str_append(s, k > 0 ? ", " : "");
        lvni_core_str_json(s, t.names[k]);
        lvni_core_str_append(s, ": ");
        lvni_core_str_json(s, t.values[k]);
    }
    lvni_core_str_printf(s, "}, \"state\": \"%s\", \"value\": ",
                         damaged ? lvni_sweep_state_name(LVNI_SWEEP_FAILED)
                         : ended ? lvni_sweep_state_name(look->state)
                                 : "running");
    if (ended && look->state == LVNI_SWEEP_DONE && look->result.has_value) {
        lvni_core_str_double(s, look->result.value);
    } else {
        lvni_core_str_append(s, "null");
    }
    lvni_core_str_char(s, '}');
    lvni_sweep_trial_free(&t);
    return send_line(a, begin);
}

static lvn_status send_news(lvni_sweep_asker *a, uint64_t begin)
{
    for (int64_t i = 0; i < a->plan->n_trials; i++) {
        lvni_sweep_look look;
        if (a->sent[i] == ENDED) {
            continue;
        }
        LVN_TRY(lvni_sweep_reader_look(a->reader, i, &look));
        const bool ended = lvni_sweep_state_is_end(look.state);
        if (ended || a->sent[i] == UNKNOWN) {
            LVN_TRY(send_trial(a, i, &look, ended, begin));
            a->sent[i] = ended ? ENDED : KNOWN;
        }
    }
    return LVN_OK;
}

static lvn_status grow(lvni_sweep_asker *a)
{
    if (a->plan->n_trials < a->room) {
        return LVN_OK;
    }
    const int64_t room = 2 * a->plan->n_trials + 64;
    unsigned char *more = lvni_core_realloc(LVNI_TAG_CORE, a->sent, (size_t)room);
    if (more == NULL) {
        return LVN_ERR_MEMORY;
    }
    memset(more + a->room, UNKNOWN, (size_t)(room - a->room));
    a->sent = more;
    a->room = room;
    return LVN_OK;
}

/* ---- what it answers ---- */

/* The text of a value in a command; *absent: null. */
static lvn_status value_text(const lvni_sweep_asker *a, const json_t *value, lvni_core_str *out)
{
    if (json_is_string(value)) {
        lvni_core_str_append(out, json_string_value(value));
    } else if (json_is_real(value)) {
        lvni_core_str_double(out, json_real_value(value));
    } else if (json_is_object(value)) {
        return broken(a, "a parameter's value is a text, a number, true, false or a list");
    } else {
        lvni_core_json_print(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(17), out);
    }
    return lvni_core_str_status(out);
}

static lvn_status take_parameters(lvni_sweep_asker *a, json_t *parameters, bool *taken)
{
    char **names = NULL, **values = NULL;
    lvni_core_str text = {0};
    lvn_status s = LVN_OK;
    for (void *at = json_object_iter(parameters); at != NULL;
         at = json_object_iter_next(parameters, at)) {
        const char *name = json_object_iter_key(at);
        if (json_is_null(json_object_iter_value(at))) {
            continue;
        }
        lvni_core_str_clear(&text);
        LVNI_TRY_DONE(s, value_text(a, json_object_iter_value(at), &text));
        LVNI_TRY_DONE(s, lvni_sweep_texts_add(&names, name, strlen(name)));
        LVNI_TRY_DONE(s, lvni_sweep_texts_add(&values, lvni_core_str_text(&text), text.len));
    }
    s = names == NULL ? broken(a, "its answer has no parameters")
                      : lvni_sweep_trial_add(a->plan, names, values, taken);
done:
    lvni_core_str_free(&text);
    lvni_sweep_texts_free(names);
    lvni_sweep_texts_free(values);
    return s;
}

static lvn_status take_answer(lvni_sweep_asker *a, lvni_sweep_answer *answer)
{
    json_t *j = lvni_core_json_try(lvni_core_str_text(&a->answer), LVNI_JSON_INNER);
    json_t *parameters = json_object_get(j, "parameters");
    lvn_status s = LVN_OK;
    bool taken; /* another worker's program was first; there is one more in any case */
    if (json_is_object(parameters)) {
        *answer = LVNI_SWEEP_ANSWER_TRIAL;
        s = take_parameters(a, parameters, &taken);
    } else if (json_is_true(json_object_get(j, "stop"))) {
        *answer = LVNI_SWEEP_ANSWER_STOP;
    } else if (json_is_true(json_object_get(j, "wait"))) {
        *answer = LVNI_SWEEP_ANSWER_WAIT;
    } else {
        s = lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__,
                          "strategy=%s: its program answered `%.200s`; expected is "
                          "{\"parameters\": {...}}, {\"stop\": true} or {\"wait\": true}",
                          a->plan->strategy, lvni_core_str_text(&a->answer));
    }
    json_decref(j);
    return s;
}

/* ---- from outside ---- */

lvn_status lvni_sweep_asker_create(lvni_sweep_plan *plan, lvni_sweep_reader *reader,
                                   lvni_sweep_asker **out)
{
    *out = LVNI_NEW(LVNI_TAG_CORE, lvni_sweep_asker);
    if (*out == NULL) {
        return LVN_ERR_MEMORY;
    }
    **out = (lvni_sweep_asker){.plan = plan, .reader = reader, .in = -1, .out = -1};
    return LVN_OK;
}

static lvn_status ask(lvni_sweep_asker *a, uint64_t begin)
{
    LVN_TRY(grow(a));
    if (a->pid == 0) {
        LVN_TRY(start(a));
        LVN_TRY(send_sweep(a, begin));
    }
    LVN_TRY(send_news(a, begin));
    lvni_core_str_printf(&a->line, "{\"ask\": %lld}", (long long)a->plan->n_trials);
    LVN_TRY(send_line(a, begin));
    return read_line(a, begin);
}

lvn_status lvni_sweep_asker_next(lvni_sweep_asker *a, lvni_sweep_meanwhile *meanwhile, void *user,
                                 lvni_sweep_answer *answer)
{
    const int64_t before = a->plan->n_trials;
    const uint64_t begin = lvni_core_now_ns();
    LVN_TRY(lvni_sweep_plan_count(a->plan));
    *answer = LVNI_SWEEP_ANSWER_TRIAL;
    if (a->plan->n_trials > before) {
        return LVN_OK;
    }
    if ((a->plan->most > 0 && a->plan->n_trials >= a->plan->most) ||
        a->plan->n_trials >= LVNI_SWEEP_MOST_TRIALS) {
        *answer = LVNI_SWEEP_ANSWER_STOP;
        return LVN_OK;
    }
    a->meanwhile = meanwhile;
    a->user = user;
    const lvn_status s = ask(a, begin);
    if (a->left) {
        *answer = LVNI_SWEEP_ANSWER_STOP;
        return LVN_OK;
    }
    return s == LVN_OK ? take_answer(a, answer) : s;
}

void lvni_sweep_asker_destroy(lvni_sweep_asker *a)
{
    if (a == NULL) {
        return;
    }
    if (a->in >= 0) {
        close(a->in);
        close(a->out);
    }
    if (a->pid > 0) {
        int status;
        for (int i = 0; i < 100 && waitpid(a->pid, &status, WNOHANG) == 0; i++) {
            poll(NULL, 0, 10); /* its input has ended */
        }
        kill(-a->pid, SIGKILL);
        while (waitpid(a->pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    lvni_core_free(a->sent);
    lvni_core_str_free(&a->line);
    lvni_core_str_free(&a->answer);
    lvni_core_free(a);
}
