/* One attempt: start all ranks (launch_start.c), serve them in one poll loop, until the last one
 * and all it left behind are gone. Their standard input is copied here: to none, to rank 0, or to
 * every rank its own copy. */
#include "launch/launch_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WHILE_ENDING_MS = 20, LONGEST_MS = 3600 * 1000, READ_BYTES = 32 << 10 };
enum { KEEP = 1 << 20 }; /* a rank that reads slowly delays the others only after this much */

/* ---- standard input ---- */

static lvn_status open_null(int *fd)
{
    *fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (*fd < 0) {
        LVN_FAIL(LVN_ERR_IO, "/dev/null cannot be opened: %s", strerror(errno));
    }
    return LVN_OK;
}

static lvn_status open_copy(lvni_launch_feed *f, int *end)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        LVN_FAIL(LVN_ERR_IO, "no pipe for standard input: %s", strerror(errno));
    }
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    f->to[f->n++].fd = ends[1];
    *end = ends[0];
    return LVN_OK;
}

lvn_status lvni_launch_feed_open(lvni_launch_run *r, int *ends)
{
    lvni_launch_feed *f = &r->feed;
    *f = (lvni_launch_feed){.from = -1};
    f->to = lvni_core_calloc(LVNI_TAG_CORE, (size_t)r->local, sizeof *f->to);
    if (f->to == NULL) {
        return LVN_ERR_MEMORY;
    }
    /* another group may not read it */
    const bool copies_to_0 =
        r->input == LVNI_STDIN_RANK0 && r->local > 1 && isatty(STDIN_FILENO) == 1;
    for (int i = 0; i < r->local; i++) {
        const bool first = r->procs[i].rank == 0;
        if (r->input == LVNI_STDIN_ALL || (copies_to_0 && first)) {
            LVN_TRY(open_copy(f, &ends[i]));
        } else if (r->input == LVNI_STDIN_RANK0 && first) {
            ends[i] = -1;
        } else {
            LVN_TRY(open_null(&ends[i]));
        }
    }
    f->from = f->n > 0 ? STDIN_FILENO : -1;
    return LVN_OK;
}

static void close_one(struct lvni_launch_feed_to *t)
{
    if (t->fd >= 0) {
        close(t->fd);
    }
    lvni_core_str_free(&t->kept);
    t->fd = -1;
    t->at = 0;
}

/* Is there room for more input? */
static bool feed_wants(const lvni_launch_feed *f)
{
    bool open = false;
    for (int i = 0; i < f->n; i++) {
        open = open || f->to[i].fd >= 0;
        if (f->to[i].fd >= 0 && f->to[i].kept.len - f->to[i].at >= KEEP) {
            return false;
        }
    }
    return open && f->from >= 0;
}

static void feed_write(lvni_launch_feed *f, int i)
{
    struct lvni_launch_feed_to *t = &f->to[i];
    while (t->fd >= 0 && t->at < t->kept.len) {
        const ssize_t n = write(t->fd, t->kept.data + t->at, t->kept.len - t->at);
        if (n >= 0) {
            t->at += (size_t)n;
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) { /* it ended, or closed its input */
            close_one(t);
        }
    }
    lvni_core_str_clear(&t->kept);
    t->at = 0;
    if (f->from < 0) {
        close_one(t);
    }
}

static void feed_read(lvni_launch_feed *f)
{
    char bytes[READ_BYTES];
    const ssize_t n = read(f->from, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        return;
    }
    if (n <= 0) {
        f->from = -1;
    }
    for (int i = 0; i < f->n; i++) {
        if (n > 0 && f->to[i].fd >= 0) {
            lvni_core_str_append_n(&f->to[i].kept, bytes, (size_t)n);
        }
        feed_write(f, i);
    }
}

static void feed_close(lvni_launch_feed *f)
{
    for (int i = 0; i < f->n; i++) {
        close_one(&f->to[i]);
    }
    lvni_core_free(f->to);
    *f = (lvni_launch_feed){.from = -1};
}

/* ---- signals and ends ---- */

static void record_end(lvni_launch_run *r, lvni_launch_proc *p, const siginfo_t *info,
                       uint64_t now_ns)
{
    p->alive = false;
    p->end_ns = now_ns;
    p->how = info->si_code;
    p->status = info->si_status;
    const bool by_signal = p->how != CLD_EXITED;
    /* SIGKILL only once it was sent: of ranks that are reaped together the end of a neighbour may
     * come first */
    const bool of_ours = by_signal ? p->status == SIGTERM ||
                                         (p->status == SIGKILL && r->phase == LVNI_PHASE_KILL) ||
                                         p->status == r->signal
                                   : p->status == LVNI_EXIT_SIGTERM;
    p->stopped = r->phase != LVNI_PHASE_RUN && of_ours;
    const int code = lvni_launch_code_of(p);
    if (code != LVNI_EXIT_OK && code != LVNI_EXIT_REQUEUE && code != LVNI_EXIT_NO_REQUEUE) {
        lvni_launch_stop(r, LVNI_REASON_FAILURE, SIGTERM, now_ns);
    }
}

/* Ranks, and whatever became our child because its parent is gone. */
static void reap(lvni_launch_run *r, uint64_t now_ns)
{
    for (;;) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) {
            return;
        }
        for (int i = 0; i < r->local; i++) {
            if (r->procs[i].alive && r->procs[i].pid == info.si_pid) {
                record_end(r, &r->procs[i], &info, now_ns);
            }
        }
    }
}

static void resize(lvni_launch_run *r)
{
    lvni_launch_sink_drop_status(r->out); /* as it is, it may not fit any more */
    lvni_launch_sink_drop_status(r->err);
    for (int i = 0; i < r->local; i++) {
        const lvni_launch_proc *p = &r->procs[i];
        if (p->out.live && p->out.fd >= 0) {
            lvni_launch_pty_take_size(STDOUT_FILENO, p->out.fd);
        }
        if (p->err.live && p->err.fd >= 0) {
            lvni_launch_pty_take_size(STDERR_FILENO, p->err.fd);
        }
    }
}

/* A process that shares our group ends the line of ^C itself. */
static void on_key(lvni_launch_run *r, const struct signalfd_siginfo *info)
{
    if (info->ssi_signo == SIGINT && info->ssi_code == SI_KERNEL && !r->shares_group &&
        (r->out->status.len > 0 || !lvni_launch_sink_interrupted(r->err))) {
        lvni_launch_sink_interrupted(r->out);
    }
}

static void on_signal(lvni_launch_run *r, const struct signalfd_siginfo *info, uint64_t now_ns)
{
    const int number = (int)info->ssi_signo;
    on_key(r, info);
    /* The terminal sends to its whole foreground group: a process that shares ours has it
     * already. */
    const bool had = r->shares_group && info->ssi_code == SI_KERNEL;
    switch (number) {
    case SIGCHLD: r->looked_ns = 0; return; /* it may have been stopped */
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
    case SIGQUIT:
        lvni_launch_stop(r, LVNI_REASON_SIGNAL, had && r->phase == LVNI_PHASE_RUN ? 0 : number,
                         now_ns);
        break;
    case SIGTSTP:
        lvni_launch_send(r, had ? 0 : number);
        kill(getpid(), SIGSTOP);
        break;
    case SIGWINCH:
        resize(r);
        lvni_launch_send(r, had ? 0 : number);
        break;
    default: lvni_launch_send(r, had ? 0 : number);
    }
    if (had && r->reason == LVNI_REASON_SIGNAL && r->signal == 0) {
        r->signal = number;
    }
}

static void on_signals(lvni_launch_run *r, uint64_t now_ns)
{
    struct signalfd_siginfo info;
    while (read(r->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        on_signal(r, &info, now_ns);
    }
}

/* ---- times ---- */

static void sooner(uint64_t *next, uint64_t at)
{
    if (at != 0 && (*next == 0 || at < *next)) {
        *next = at;
    }
}

static uint64_t after(uint64_t from_ns, double seconds)
{
    return from_ns + (uint64_t)(seconds * 1e9);
}

/* The rank that ended with 0 first, while others run; NULL: none. */
static const lvni_launch_proc *first_to_end(const lvni_launch_run *r)
{
    const lvni_launch_proc *first = NULL;
    bool others = false;
    for (int i = 0; i < r->local; i++) {
        const lvni_launch_proc *p = &r->procs[i];
        others = others || p->alive;
        if (!p->alive && (first == NULL || p->end_ns < first->end_ns)) {
            first = p;
        }
    }
    return others ? first : NULL;
}

static void check_straggler(lvni_launch_run *r, uint64_t now_ns, uint64_t *next)
{
    const lvni_launch_proc *early =
        r->o.straggler_timeout_s > 0 && r->phase == LVNI_PHASE_RUN ? first_to_end(r) : NULL;
    if (early == NULL) {
        return;
    }
    const uint64_t at = after(early->end_ns, r->o.straggler_timeout_s);
    if (now_ns >= at) {
        r->straggler = early->rank;
        lvni_launch_stop(r, LVNI_REASON_STRAGGLER, SIGTERM, now_ns);
    }
    sooner(next, at);
}

/* Does what is due; returns when the next thing is, 0: nothing is waited for. */
static uint64_t tick(lvni_launch_run *r, uint64_t now_ns)
{
    uint64_t next = 0;
    for (int i = 0; i < r->local; i++) {
        sooner(&next, lvni_launch_stream_idle(&r->procs[i].out, now_ns));
        sooner(&next, lvni_launch_stream_idle(&r->procs[i].err, now_ns));
    }
    if (r->o.timeout_s > 0 && r->phase == LVNI_PHASE_RUN) {
        const uint64_t at = after(r->begin_ns, r->o.timeout_s);
        if (now_ns >= at) {
            lvni_launch_stop(r, LVNI_REASON_TIMEOUT, SIGTERM, now_ns);
        }
        sooner(&next, at);
    }
    check_straggler(r, now_ns, &next);
    sooner(&next, lvni_launch_stopped_tick(r, now_ns));
    if (r->phase != LVNI_PHASE_RUN) {
        sooner(&next, now_ns + WHILE_ENDING_MS * 1000000u);
    }
    return next;
}

/* ---- the loop ---- */

typedef struct watch {
    struct pollfd *fds;
    int n;
} watch;

static void watch_fd(watch *w, int fd, short events)
{
    w->fds[w->n++] = (struct pollfd){.fd = fd, .events = events};
}

/* The order here is the order in `serve`. */
static void watch_all(lvni_launch_run *r, watch *w)
{
    w->n = 0;
    watch_fd(w, r->signal_fd, POLLIN);
    for (int i = 0; i < r->local; i++) {
        watch_fd(w, r->procs[i].out.fd, POLLIN);
        watch_fd(w, r->procs[i].err.fd, POLLIN);
    }
    watch_fd(w, feed_wants(&r->feed) ? r->feed.from : -1, POLLIN);
    for (int i = 0; i < r->feed.n; i++) {
        const bool waits = r->feed.to[i].at < r->feed.to[i].kept.len;
        watch_fd(w, waits ? r->feed.to[i].fd : -1, POLLOUT);
    }
    watch_fd(w, lvni_launch_sink_is_empty(r->out) ? -1 : r->out->fd, POLLOUT);
    watch_fd(w, lvni_launch_sink_is_empty(r->err) ? -1 : r->err->fd, POLLOUT);
}

static void serve(lvni_launch_run *r, const watch *w, uint64_t now_ns)
{
    const struct pollfd *f = w->fds;
    if ((f++)->revents != 0) {
        on_signals(r, now_ns);
    }
    reap(r, now_ns);
    for (int i = 0; i < r->local; i++) {
        if ((f++)->revents != 0) {
            lvni_launch_stream_read(&r->procs[i].out, now_ns);
        }
        if ((f++)->revents != 0) {
            lvni_launch_stream_read(&r->procs[i].err, now_ns);
        }
    }
    if ((f++)->revents != 0) {
        feed_read(&r->feed);
    }
    for (int i = 0; i < r->feed.n; i++) {
        if ((f++)->revents != 0) {
            feed_write(&r->feed, i);
        }
    }
}

static void flush(lvni_launch_run *r)
{
    lvni_launch_sink_flush(r->out);
    lvni_launch_sink_flush(r->err);
}

static lvn_status serve_all(lvni_launch_run *r)
{
    watch w = {.fds = lvni_core_calloc(LVNI_TAG_CORE, 4 + 3 * (size_t)r->local, sizeof *w.fds)};
    if (w.fds == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (bool ended = false; !ended;) {
        const uint64_t before = lvni_core_now_ns();
        const uint64_t next = tick(r, before);
        flush(r);
        watch_all(r, &w);
        const uint64_t wait_ns = next == 0       ? (uint64_t)LONGEST_MS * 1000000u
                                 : next > before ? next - before
                                                 : 0;
        const int wait_ms =
            wait_ns / 1000000u >= LONGEST_MS ? LONGEST_MS : (int)((wait_ns + 999999u) / 1000000u);
        if (poll(w.fds, (nfds_t)w.n, wait_ms) < 0 && errno != EINTR) {
            break;
        }
        const uint64_t now = lvni_core_now_ns();
        serve(r, &w, now);
        ended = lvni_launch_stop_tick(r, now);
    }
    lvni_core_free(w.fds);
    return LVN_OK;
}

static int code_of_start(int error)
{
    return error == 0        ? LVNI_EXIT_OK
           : error == ENOENT ? LVNI_EXIT_NO_PROGRAM
                             : LVNI_EXIT_NOT_EXECUTABLE;
}

lvn_status lvni_launch_attempt(lvni_launch_run *r, int *code)
{
    int error = 0;
    r->phase = LVNI_PHASE_RUN;
    r->reason = LVNI_REASON_NONE;
    r->signal = 0;
    r->swept = false;
    lvn_status s = lvni_launch_start(r, &error);
    if (r->procs == NULL) {
        return s;
    }
    if (s != LVN_OK) { /* those that were started end again */
        const lvn_error e = *lvn_last_error();
        *code = code_of_start(error);
        lvni_launch_stop(r, LVNI_REASON_FAILURE, SIGKILL, lvni_core_now_ns());
        serve_all(r);
        lvn_error_adopt(&e);
        return s;
    }
    s = serve_all(r);
    for (int i = 0; i < r->local; i++) {
        lvni_launch_stream_end(&r->procs[i].out);
        lvni_launch_stream_end(&r->procs[i].err);
    }
    return s;
}

void lvni_launch_attempt_free(lvni_launch_run *r)
{
    for (int i = 0; r->procs != NULL && i < r->local; i++) {
        lvni_launch_proc *p = &r->procs[i];
        lvni_launch_stream_free(&p->out);
        lvni_launch_stream_free(&p->err);
        lvni_core_free(p->out_log);
        lvni_core_free(p->err_log);
        lvni_core_free(p->record);
    }
    lvni_core_free(r->procs);
    r->procs = NULL;
    feed_close(&r->feed);
    lvni_launch_close_fd(&r->store_fd);
    lvni_launch_port_release(&r->held);
}
