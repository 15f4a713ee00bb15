/* logger=exec:COMMAND: a program of the user that reads JSON lines on its standard input
 * (docs/logging.md has them). Lines go through a pipe that is never waited for: what the program
 * does not read in time stands in a buffer, and when that is full the program has failed. Called
 * through the table of loggers.c. */
#include "core/alloc.h"
#include "core/machine.h"
#include "core/signals.h"
#include "core/vfs.h"
#include "log/logger_class.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PIPE_BYTES = 1 << 20, /* asked for; the system may give less */
    WAITING_BYTES = 1 << 20,
    FINISH_S = 10, /* for a program that still works at the end of the run */
    STOP_S = 2     /* and of a run that was stopped or has failed */
};

typedef struct program {
    int pipe; /* -1: closed */
    pid_t pid;
    bool ended;
    int wait_status;
    lvni_core_str line; /* reused */
    char *waiting;      /* n bytes that the pipe had no room for */
    size_t n;
} program;

/* ---- the pipe ---- */

/* write() without the signal SIGPIPE, which is the host program's. */
static ssize_t write_quietly(int fd, const char *data, size_t n)
{
    lvni_core_sigpipe sigpipe;
    lvni_core_sigpipe_block(&sigpipe);
    const ssize_t done = write(fd, data, n);
    lvni_core_sigpipe_unblock(&sigpipe);
    return done;
}

static bool has_ended(program *p)
{
    if (!p->ended) {
        const pid_t got = waitpid(p->pid, &p->wait_status, WNOHANG);
        p->ended = got == p->pid || (got < 0 && errno == ECHILD);
    }
    return p->ended;
}

static lvn_status fail_ended(program *p)
{
    /* it closed its input: its end is a moment away, if it comes */
    for (int i = 0; i < 100 && !has_ended(p); i++) {
        poll(NULL, 0, 5);
    }
    if (!p->ended) {
        LVN_FAIL(LVN_ERR_IO, "its program has closed its standard input");
    }
    if (WIFSIGNALED(p->wait_status)) {
        LVN_FAIL(LVN_ERR_IO, "its program was ended by signal %d", WTERMSIG(p->wait_status));
    }
    LVN_FAIL(LVN_ERR_IO, "its program has ended with exit code %d; logger.log has its output",
             WEXITSTATUS(p->wait_status));
}

/* As much as the pipe takes. */
static lvn_status push(program *p)
{
    size_t at = 0;
    while (at < p->n) {
        const ssize_t done = write_quietly(p->pipe, p->waiting + at, p->n - at);
        if (done >= 0) {
            at += (size_t)done;
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            return fail_ended(p);
        }
    }
    memmove(p->waiting, p->waiting + at, p->n - at);
    p->n -= at;
    return LVN_OK;
}

/* The line that was put together. */
static lvn_status send_line(program *p)
{
    lvni_core_str_char(&p->line, '\n');
    LVN_TRY(lvni_core_str_status(&p->line));
    if (p->line.len > WAITING_BYTES - p->n) {
        LVN_TRY(push(p));
    }
    if (p->line.len > WAITING_BYTES - p->n) {
        LVN_FAIL(LVN_ERR_IO, "its program does not read: %zu bytes wait for it", p->n);
    }
    memcpy(p->waiting + p->n, p->line.data, p->line.len);
    p->n += p->line.len;
    return push(p);
}

static void begin_line(program *p, const char *event)
{
    lvni_core_str_clear(&p->line);
    lvni_core_str_printf(&p->line, "{\"event\":\"%s\"", event);
}

static void put_text(program *p, const char *key, const char *text)
{
    lvni_core_str_printf(&p->line, ",\"%s\":", key);
    if (text == NULL) {
        lvni_core_str_append(&p->line, "null");
    } else {
        lvni_core_str_json(&p->line, text);
    }
}

static void put_number(program *p, const char *key, double value)
{
    lvni_core_str_printf(&p->line, ",\"%s\":", key);
    lvni_core_str_double(&p->line, value);
}

static void put_step(program *p, int64_t step)
{
    lvni_core_str_printf(&p->line, ",\"step\":%lld", (long long)step);
}

/* ---- the lines ---- */

static lvn_status send_start(program *p, const lvni_log_loggers_options *o)
{
    lvni_core_str dir = {0};
    lvni_core_path_absolute(o->dir, &dir);
    lvn_status s = lvni_core_str_status(&dir);
    if (s == LVN_OK) {
        begin_line(p, "start");
        put_step(p, o->step);
        put_text(p, "dir", lvni_core_str_text(&dir));
        put_text(p, "run_id", o->run_id);
        lvni_core_str_printf(&p->line, ",\"config\":%s}",
                             o->config_json == NULL ? "{}" : o->config_json);
        s = send_line(p);
    }
    lvni_core_str_free(&dir);
    return s;
}

static lvn_status send_metrics(void *logger, const lvni_log_point *point)
{
    program *p = logger;
    begin_line(p, "metrics");
    lvni_core_str_append(&p->line, ",\"metrics\":");
    lvni_log_metrics_format(&p->line, point->step, point->epoch, point->time_s, point->value,
                            point->n);
    lvni_core_str_char(&p->line, '}');
    return send_line(p);
}

static lvn_status send_image(void *logger, int64_t step, const lvni_log_image *image)
{
    program *p = logger;
    lvni_core_str path = {0};
    lvni_core_path_absolute(image->path, &path);
    lvn_status s = lvni_core_str_status(&path);
    if (s == LVN_OK) {
        begin_line(p, "image");
        put_step(p, step);
        put_text(p, "name", image->name);
        put_text(p, "path", lvni_core_str_text(&path));
        lvni_core_str_char(&p->line, '}');
        s = send_line(p);
    }
    lvni_core_str_free(&path);
    return s;
}

static void put_list(program *p, const char *key, const double *value, int n)
{
    lvni_core_str_printf(&p->line, ",\"%s\":", key);
    for (int i = 0; i < n; i++) {
        lvni_core_str_char(&p->line, i == 0 ? '[' : ',');
        lvni_core_str_double(&p->line, value[i]);
    }
    lvni_core_str_append(&p->line, n == 0 ? "[]" : "]");
}

static lvn_status send_histogram(void *logger, int64_t step, const lvni_log_histogram *h)
{
    program *p = logger;
    begin_line(p, "histogram");
    put_step(p, step);
    put_text(p, "name", h->name);
    put_number(p, "min", h->min);
    put_number(p, "max", h->max);
    put_list(p, "limits", h->limit, h->n_buckets);
    put_list(p, "counts", h->count, h->n_buckets);
    lvni_core_str_char(&p->line, '}');
    return send_line(p);
}

static lvn_status send_text(void *logger, int64_t step, const char *name, const char *text)
{
    program *p = logger;
    begin_line(p, "text");
    put_step(p, step);
    put_text(p, "name", name);
    put_text(p, "text", text);
    lvni_core_str_char(&p->line, '}');
    return send_line(p);
}

/* ---- beginning and end ---- */

static void destroy_program(void *logger)
{
    program *p = logger;
    if (p->pipe >= 0) {
        close(p->pipe);
    }
    if (p->pid > 0) {
        has_ended(p); /* else it goes on for itself, with nothing more to read */
    }
    lvni_core_str_free(&p->line);
    lvni_core_free(p->waiting);
    lvni_core_free(p);
}

/* This process's variables without those by which a process proves that it belongs to the run; the
 * texts are borrowed. NULL: no memory. */
static char **make_environment(void)
{
    extern char **environ;
    static const char *const secrets[] = {"LEVIN_TOKEN=", "LEVIN_RUN_KEY="};
    size_t n = 0, kept = 0;
    while (environ != NULL && environ[n] != NULL) {
        n++;
    }
    char **list = lvni_core_calloc(LVNI_TAG_CORE, n + 1, sizeof *list);
    for (size_t i = 0; list != NULL && i < n; i++) {
        if (strncmp(environ[i], secrets[0], strlen(secrets[0])) != 0 &&
            strncmp(environ[i], secrets[1], strlen(secrets[1])) != 0) {
            list[kept++] = environ[i];
        }
    }
    return list;
}

/* Out of the terminal's process group, so that Ctrl-C lets it read to the end; its output goes to a
 * file, not between the lines of the run. */
static int start(const char *command, int input, int output, char *const *environment, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    char shell[] = "sh", option[] = "-c";
    union {
        const char *in;
        char *out;
    } text = {command}; /* posix_spawn changes nothing */
    char *const argument[] = {shell, option, text.out, NULL};
    const int error = posix_spawn(pid, "/bin/sh", &actions, &attributes, argument, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static lvn_status launch(program *p, const char *dir, const char *command)
{
    int ends[2], output = -1;
    char *path = lvni_log_path(dir, "logger.log");
    lvn_status s = path == NULL ? LVN_ERR_MEMORY : lvni_core_append_open(path, false, &output);
    lvni_core_free(path);
    LVN_TRY(s);
    char **environment = make_environment();
    if (environment == NULL) {
        lvni_core_vfs_get()->close(output);
        return LVN_ERR_MEMORY;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        const int error = errno;
        lvni_core_free(environment);
        lvni_core_vfs_get()->close(output);
        LVN_FAIL(LVN_ERR_IO, "no pipe for %s: %s", command, strerror(error));
    }
    p->pipe = ends[1];
    fcntl(p->pipe, F_SETPIPE_SZ, PIPE_BYTES); /* less where the system's limit is lower */
    fcntl(p->pipe, F_SETFL, O_NONBLOCK);
    const int error = start(command, ends[0], output, environment, &p->pid);
    lvni_core_free(environment);
    lvni_core_vfs_get()->close(ends[0]);
    lvni_core_vfs_get()->close(output);
    if (error != 0) {
        p->pid = 0;
        LVN_FAIL(LVN_ERR_IO, "cannot start %s: %s", command, strerror(error));
    }
    return LVN_OK;
}

static lvn_status create_program(const lvni_log_loggers_options *o, const char *argument,
                                 void **out)
{
    program *p = LVNI_NEW(LVNI_TAG_CORE, program);
    if (p == NULL) {
        return LVN_ERR_MEMORY;
    }
    p->pipe = -1;
    p->waiting = lvni_core_alloc(LVNI_TAG_CORE, WAITING_BYTES);
    lvn_status s = p->waiting == NULL ? LVN_ERR_MEMORY : launch(p, o->dir, argument);
    s = s == LVN_OK ? send_start(p, o) : s;
    if (s == LVN_ERR_IO && p->pid > 0) {
        lvn_clear_error(); /* it has ended already: the next line is a warning */
        s = LVN_OK;
    }
    if (s != LVN_OK) {
        destroy_program(p);
        return s;
    }
    *out = p;
    return LVN_OK;
}

/* The rest of the lines, then the end of its input; the program may work a while longer. */
static lvn_status end_program(void *logger, lvni_log_end end)
{
    static const char *const text[] = {"finished", "stopped", "failed"};
    program *p = logger;
    const double limit_s = end == LVNI_LOG_FINISHED ? FINISH_S : STOP_S;
    const uint64_t start_ns = lvni_core_now_ns();
    begin_line(p, "end");
    put_text(p, "status", text[end]);
    lvni_core_str_char(&p->line, '}');
    LVN_TRY(send_line(p));
    while (p->n > 0 && lvni_core_seconds_since(start_ns) < limit_s) {
        struct pollfd writable = {.fd = p->pipe, .events = POLLOUT};
        poll(&writable, 1, 100);
        LVN_TRY(push(p));
    }
    if (p->n > 0) {
        LVN_FAIL(LVN_ERR_IO, "its program does not read: %zu bytes wait for it", p->n);
    }
    close(p->pipe);
    p->pipe = -1;
    while (!has_ended(p) && lvni_core_seconds_since(start_ns) < limit_s) {
        poll(NULL, 0, 5);
    }
    if (!p->ended) {
        LVN_FAIL(LVN_ERR_IO, "its program (process %lld) still works, and is not waited for",
                 (long long)p->pid);
    }
    return WIFEXITED(p->wait_status) && WEXITSTATUS(p->wait_status) == 0 ? LVN_OK : fail_ended(p);
}

const lvni_log_logger_class lvni_log_exec_class = {.name = "exec",
                                                   .create = create_program,
                                                   .scalars = send_metrics,
                                                   .image = send_image,
                                                   .histogram = send_histogram,
                                                   .text = send_text,
                                                   .end = end_program,
                                                   .destroy = destroy_program};
