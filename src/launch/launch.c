/* levin launch: from the arguments to the exit code. In the order of time: options; srun, where an
 * allocation waits for it; what runs where (launch_layout.c); the program, searched once and not by
 * every rank; then attempts (launch_attempt.c) until one is the last. */
#include "launch/launch.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/machine.h"
#include "core/own_program.h"
#include "launch/env_vars.h"
#include "launch/launch_impl.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define DRAIN_NS 2000000000u
enum { FDS_PER_RANK = 8, FDS_OWN = 64 };

/* ---- getting ready ---- */

bool lvni_launch_is_training(const lvni_launch_run *r)
{
    const char *second = r->o.program[1];
    char path[PATH_MAX];
    struct stat own, its;
    return second != NULL && strcmp(second, "train") == 0 && lvni_core_self(path, sizeof path) &&
           stat(path, &own) == 0 && stat(r->program, &its) == 0 && own.st_dev == its.st_dev &&
           own.st_ino == its.st_ino;
}

lvn_status lvni_launch_take_signals(lvni_launch_run *r, const int *ours, size_t n)
{
    sigset_t set;
    struct sigaction hangup;
    sigemptyset(&set);
    for (size_t i = 0; i < n; i++) {
        sigaddset(&set, ours[i]);
    }
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN) {
        sigdelset(&set, SIGHUP); /* nohup; blocked it would come all the same */
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* ignored, children would vanish without an exit code */
    sigprocmask(SIG_BLOCK, &set, &r->signals);
    sigdelset(&r->signals, SIGCHLD);
    lvni_launch_unblock(r->environment, &r->signals);
    r->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (r->signal_fd < 0) {
        LVN_FAIL(LVN_ERR_INTERNAL, "no signalfd: %s", strerror(errno));
    }
    return LVN_OK;
}

static lvn_status take_signals(lvni_launch_run *r)
{
    static const int ours[] = {SIGCHLD, SIGINT,  SIGTERM, SIGHUP,   SIGQUIT,
                               SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH, SIGTSTP};
    LVN_TRY(lvni_launch_take_signals(r, ours, sizeof ours / sizeof *ours));
    if (lvni_launch_is_training(r)) {
        /* takes them when it can, and must not end of them before; others get what we got */
        sigaddset(&r->signals, SIGUSR1);
        sigaddset(&r->signals, SIGUSR2);
    }
    return LVN_OK;
}

void lvni_launch_unblock(char *const *environment, sigset_t *set)
{
    if (lvni_launch_env_get(environment, "LEVIN_HANDED_OVER") != NULL) {
        sigdelset(set, SIGINT);
        sigdelset(set, SIGTERM);
        sigdelset(set, SIGHUP);
        sigdelset(set, SIGUSR1);
        sigdelset(set, SIGUSR2);
    }
}

static void raise_file_limit(lvni_launch_run *r)
{
    getrlimit(RLIMIT_NOFILE, &r->files);
    struct rlimit more = r->files;
    const rlim_t wanted = (rlim_t)r->local * FDS_PER_RANK + FDS_OWN;
    if (more.rlim_cur < wanted) {
        more.rlim_cur = more.rlim_max < wanted ? more.rlim_max : wanted;
        setrlimit(RLIMIT_NOFILE, &more);
    }
}

static lvn_status get_ready(lvni_launch_run *r)
{
    LVN_TRY(take_signals(r));
    raise_file_limit(r);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    LVN_TRY(lvni_launch_guard_start(r));
    lvni_launch_find_others(r);
    r->oom_kills = lvni_launch_oom_kills();
    r->begin_ns = lvni_core_now_ns();
    return LVN_OK;
}

static void open_sinks(lvni_launch_run *r)
{
    struct stat a, b;
    lvni_launch_sink_open(&r->sinks[0], STDOUT_FILENO, NULL);
    r->out = r->err = &r->sinks[0];
    r->sinks[1] = (lvni_launch_sink){.fd = -1, .spill_fd = -1, .gone = true};
    if (fstat(STDOUT_FILENO, &a) != 0 || fstat(STDERR_FILENO, &b) != 0 || a.st_dev != b.st_dev ||
        a.st_ino != b.st_ino) {
        lvni_launch_sink_open(&r->sinks[1], STDERR_FILENO, NULL);
        r->err = &r->sinks[1];
    }
}

/* Waits for a slow reader: after a good end as long as it takes, else only a moment, since the log
 * files have it all. One signal ends the wait. */
static void drain(lvni_launch_run *r, bool good)
{
    const uint64_t until_ns = lvni_core_now_ns() + DRAIN_NS;
    for (;;) {
        lvni_launch_sink_flush(r->out);
        lvni_launch_sink_flush(r->err);
        struct pollfd f[] = {
            {.fd = lvni_launch_sink_is_empty(r->out) ? -1 : r->out->fd, .events = POLLOUT},
            {.fd = lvni_launch_sink_is_empty(r->err) ? -1 : r->err->fd, .events = POLLOUT},
            {.fd = r->signal_fd, .events = POLLIN}};
        const uint64_t now_ns = lvni_core_now_ns();
        const int left_ms = good                ? -1
                            : now_ns < until_ns ? (int)((until_ns - now_ns) / 1000000u) + 1
                                                : 0;
        if ((f[0].fd < 0 && f[1].fd < 0) || left_ms == 0 ||
            (poll(f, 3, left_ms) < 0 && errno != EINTR)) {
            return;
        }
        struct signalfd_siginfo info;
        if (f[2].revents != 0 && read(r->signal_fd, &info, sizeof info) == (ssize_t)sizeof info &&
            (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP ||
             info.ssi_signo == SIGQUIT)) {
            return;
        }
    }
}

/* ---- reports before the start ---- */

static lvn_status report_warnings(lvni_launch_run *r)
{
    LVN_TRY(r->o.strict ? lvni_core_notices_refuse_warnings(&r->notices) : LVN_OK);
    if (!r->o.quiet) {
        const char *notes = lvni_core_config_notes(r->o.config);
        lvni_launch_sink_put(r->err, notes, strlen(notes));
        lvni_launch_sink_put(r->err, lvni_core_str_text(&r->notices.warnings),
                             r->notices.warnings.len);
    }
    return LVN_OK;
}

static void report_start(lvni_launch_run *r)
{
    if (!r->o.verbose) {
        return;
    }
    lvni_launch_print(r, "run %s: %d rank%s here, %d in all; logs and errors in %s", r->run_id,
                      r->local, lvni_core_plural(r->local, "", "s"), r->world, r->run_dir);
    for (int i = 0; i < r->local; i++) {
        lvni_core_str cpus = {0};
        lvni_launch_bind_print(&r->binding, i, &cpus);
        lvni_launch_print(r, "rank %d: cpus %s", r->node_rank * r->local + i,
                          lvni_core_str_text(&cpus));
        lvni_core_str_free(&cpus);
    }
}

static lvn_status print_rank(lvni_launch_run *r, lvni_launch_proc *p)
{
    lvni_launch_variables v;
    LVN_TRY(lvni_launch_environment(r, p, &v));
    lvni_core_print(stdout, "rank %d on %s:", p->rank, r->host);
    for (int i = 0; i < r->o.n_program; i++) {
        lvni_core_print(stdout, " %s", r->o.program[i]);
    }
    putchar('\n');
    for (size_t i = 0; i < v.n; i++) {
        bool inherited = false;
        for (char *const *e = r->environment; *e != NULL && !inherited; e++) {
            inherited = strcmp(*e, v.list[i]) == 0;
        }
        if (!inherited) {
            lvni_core_print(stdout, "  %s\n", v.list[i]);
        }
    }
    lvni_launch_variables_free(&v);
    return LVN_OK;
}

static lvn_status dry_run(lvni_launch_run *r)
{
    r->store_fd = -1;
    r->held = LVNI_NO_PORT;
    r->procs = lvni_core_calloc(LVNI_TAG_CORE, (size_t)r->local, sizeof *r->procs);
    if (r->procs == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < r->local; i++) {
        r->procs[i] = (lvni_launch_proc){.local_rank = i,
                                         .rank = r->node_rank * r->local + i,
                                         .out = {.fd = -1, .log_fd = -1},
                                         .err = {.fd = -1, .log_fd = -1}};
    }
    LVN_TRY(lvni_launch_name_files(r));
    for (int i = 0; i < r->local; i++) {
        LVN_TRY(print_rank(r, &r->procs[i]));
    }
    return LVN_OK;
}

/* ---- attempts ---- */

static double attempt_length(const lvni_launch_run *r, uint64_t start_ns)
{
    return r->stop_ns > start_ns ? (double)(r->stop_ns - start_ns) / 1e9 : 0;
}

/* Does another attempt make sense? */
static bool may_restart(const lvni_launch_run *r, int code)
{
    const bool kind = r->reason == LVNI_REASON_FAILURE || r->reason == LVNI_REASON_STRAGGLER;
    return kind && r->signal == 0 && !lvni_launch_was_asked(r) && r->attempt < r->o.max_restarts &&
           code != LVNI_EXIT_USAGE && code != LVNI_EXIT_NOT_EXECUTABLE &&
           code != LVNI_EXIT_NO_PROGRAM;
}

/* Has the attempt saved more than was there? *saved: the last step known. */
static bool has_progressed(const lvni_launch_run *r, int64_t *saved)
{
    const int64_t before = *saved;
    int64_t epoch;
    return r->o.keep_logs == LVNI_KEEP_STARTED && r->after_kill(r->run_dir, saved, &epoch) &&
           *saved > before;
}

static lvn_status run_attempts(lvni_launch_run *r, int *code)
{
    bool was_short = false;
    int64_t saved = -1;
    for (r->attempt = 0;; r->attempt++) {
        const uint64_t start_ns = lvni_core_now_ns();
        LVN_TRY(lvni_launch_attempt(r, code));
        lvni_launch_report(r);
        lvni_launch_report_saved(r);
        *code = lvni_launch_code(r);
        if (!may_restart(r, *code)) {
            return LVN_OK;
        }
        const bool is_short =
            attempt_length(r, start_ns) < r->o.crash_loop_s && !has_progressed(r, &saved);
        if (is_short && was_short) {
            lvni_launch_print(
                r, "no more restarts: two attempts in a row failed within %g s (crash loop)",
                r->o.crash_loop_s);
            return LVN_OK;
        }
        was_short = is_short;
        lvni_launch_print(r, "restart %d of %d", r->attempt + 1, r->o.max_restarts);
        lvni_launch_attempt_free(r);
    }
}

static lvn_status run(lvni_launch_run *r, int *code)
{
    bool done;
    LVN_TRY(lvni_launch_env_strict(r->environment, r->o.strict_given ? r->o.strict : -1,
                                   &r->notices, &r->o.strict));
    LVN_TRY(lvni_launch_read_env_file(&r->o));
    LVN_TRY(lvni_launch_warn_of_nccl(r));
    LVN_TRY(lvni_launch_program_find_python(&r->o, r->environment));
    LVN_TRY(lvni_launch_run_srun(r, &done, code));
    if (done) {
        return LVN_OK;
    }
    LVN_TRY(lvni_launch_layout(r));
    LVN_TRY(report_warnings(r));
    LVN_TRY(lvni_launch_program_search(r->o.program[0], lvni_launch_env_raw(r->environment, "PATH"),
                                       &r->program, code));
    LVN_TRY(lvni_launch_choose_run_dir(r));
    if (r->o.dry_run) {
        return dry_run(r);
    }
    if (r->o.keep_logs == LVNI_KEEP_STARTED && r->nodes == 1) {
        /* the directory belongs to this run alone, resumed or not */
        LVN_TRY(lvni_launch_lock_run_dir(r));
        lvni_launch_forget_files(r->run_dir);
    }
    r->sinks[0].spill_dir = r->sinks[1].spill_dir = r->run_dir;
    LVN_TRY(get_ready(r));
    report_start(r);
    return run_attempts(r, code);
}

static int report_error(lvni_launch_run *r, lvn_status s, int code)
{
    const lvn_error *e = lvn_last_error();
    if (r->notices.error != 0) {
        lvni_launch_sink_put(r->err, lvni_core_str_text(&r->notices.text), r->notices.text.len);
        return lvni_core_notices_exit(&r->notices);
    }
    lvni_core_str text = {0};
    lvni_core_str_printf(&text, "%s%s", lvni_core_error_prefix(e),
                         e->message[0] != '\0' ? e->message : lvn_status_text(s));
    lvni_launch_sink_line(r->err, lvni_core_str_text(&text));
    lvni_core_str_free(&text);
    return code != LVNI_EXIT_OK ? code : (int)lvni_core_exit_of_status(s);
}

int lvni_launch(int n, const char *const *args, char *const *environment,
                lvni_launch_after_kill after_kill)
{
    lvni_launch_run r = {.environment = environment,
                         .after_kill = after_kill,
                         .lock_fd = -1,
                         .store_fd = -1,
                         .held = LVNI_NO_PORT,
                         .signal_fd = -1,
                         .guard_fd = -1,
                         .oom_kills = -1,
                         .feed = {.from = -1}};
    int code = LVNI_EXIT_OK;
    open_sinks(&r);
    lvn_status s = lvni_launch_options_read(n, args, environment, &r.o);
    if (s == LVN_OK) {
        s = run(&r, &code);
    }
    if (s != LVN_OK) {
        code = report_error(&r, s, code);
        r.broken = r.attempt == 0 && !r.o.dry_run;
        lvni_launch_attempt_free(&r); /* a folder cannot be looked into where all files are open */
    }
    drain(&r, code == LVNI_EXIT_OK && r.reason == LVNI_REASON_NONE);
    const bool good = r.o.keep_logs == LVNI_KEEP_FAILURE && r.begin_ns != 0 &&
                      (code == LVNI_EXIT_OK || r.signal != 0);
    const bool never = r.o.keep_logs == LVNI_KEEP_NEVER && r.begin_ns != 0;
    if (good || never || lvni_launch_not_begun(&r)) {
        lvni_launch_remove_files(&r);
    } else {
        lvni_launch_remove_no_errors(&r);
    }
    if (r.broken && r.run_dir == NULL) {
        lvni_launch_give_back(environment);
    }
    lvni_launch_guard_end(&r);
    lvni_launch_attempt_free(&r);
    lvni_launch_layout_free(&r);
    lvni_launch_options_free(&r.o);
    lvni_core_notices_free(&r.notices);
    lvni_core_free(r.others);
    lvni_launch_close_fd(&r.lock_fd);
    lvni_launch_sink_close(&r.sinks[0]);
    lvni_launch_sink_close(&r.sinks[1]);
    if (r.signal_fd >= 0) {
        close(r.signal_fd);
    }
    return code;
}

/* ---- a levin that starts itself again under the launcher ---- */

bool lvni_launch_is_rank(char *const *environment)
{
    return lvni_launch_env_get(environment, "LEVIN_LAUNCHED") != NULL;
}

lvn_status lvni_launch_self(int n_options, const char *const *options, int n_args,
                            const char *const *args, char *const *environment)
{
    if (lvni_launch_is_rank(environment)) {
        return LVN_OK;
    }
    /* the program's own path, so that a rank is the same file whatever PATH holds */
    static char path[PATH_MAX];
    if (!lvni_core_self(path, sizeof path)) {
        LVN_FAIL(LVN_ERR_INTERNAL, "which program is this? /proc/self/exe: %s", strerror(errno));
    }
    const char **argv =
        lvni_core_calloc(LVNI_TAG_CORE, (size_t)(n_options + n_args) + 5, sizeof *argv);
    if (argv == NULL) {
        return LVN_ERR_MEMORY;
    }
    int at = 0;
    argv[at++] = path;
    argv[at++] = "launch";
    for (int i = 0; i < n_options; i++) {
        argv[at++] = options[i];
    }
    argv[at++] = "--";
    argv[at++] = path;
    for (int i = 0; i < n_args; i++) {
        argv[at++] = args[i];
    }
    execve(path, (char *const *)(uintptr_t)argv, environment);
    const int error = errno;
    lvni_core_free(argv);
    LVN_FAIL(LVN_ERR_INTERNAL, "%s cannot be started again: %s", path, strerror(error));
}
