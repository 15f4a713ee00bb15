/* The beginning of an attempt: ports, pipes, terminals and log files, then one process after the
 * other. launch_attempt.c calls it; what each process gets is launch_environment.c's. */
#include "launch/launch_impl.h"

#include "control/auth.h"
#include "control/store.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

enum { RANDOM_FIRST = 12000, RANDOM_COUNT = 20000, RANDOM_TRIES = 200 };

void lvni_launch_close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* ---- MASTER_PORT ----
 * Rank 0 of a program opens it itself, so the launcher cannot; it holds the port, so that no other
 * process is given it. */

/* A socket bound to the address, which gets its port. errno on failure, as -1. */
static int bind_to(int family, struct sockaddr *address, socklen_t size)
{
    const int on = 1, off = 0;
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (bind(fd, address, size) == 0 && getsockname(fd, address, &size) == 0) {
        return fd;
    }
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Of both families where there are two: programs bind either. errno on failure, as -1. */
static int bind_any(int wanted, int *port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)wanted),
                               .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)wanted),
                               .sin_addr.s_addr = htonl(INADDR_ANY)};
    int fd = bind_to(AF_INET6, (struct sockaddr *)&six, sizeof six);
    if (fd >= 0) {
        *port = ntohs(six.sin6_port);
    } else if (errno != EADDRINUSE && errno != EACCES) {
        fd = bind_to(AF_INET, (struct sockaddr *)&four, sizeof four);
        *port = ntohs(four.sin_port);
    }
    return fd;
}

/* Sockets with SO_REUSEADDR that do not listen share a port: among launchers a name that only one
 * can have keeps it. It goes with its process, and belongs to the network the port belongs to. Is
 * it another's? Without sockets of that kind nothing is locked. */
static bool lock_port(int port, int *lock_fd)
{
    /* sun_path begins with '\0': a name that is not a file */
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "levin-port-%d", port);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    *lock_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*lock_fd < 0 || bind(*lock_fd, (const struct sockaddr *)&name, size) == 0) {
        return true;
    }
    const int error = errno;
    close(*lock_fd);
    *lock_fd = -1;
    errno = error;
    return error != EADDRINUSE;
}

static bool hold_one(int wanted, lvni_launch_held_port *h)
{
    h->lock_fd = -1;
    h->fd = bind_any(wanted, &h->port);
    if (h->fd >= 0 && !lock_port(h->port, &h->lock_fd)) {
        const int error = errno;
        close(h->fd);
        h->fd = -1;
        errno = error;
    }
    return h->fd >= 0;
}

static bool hold_one_of(bool random, lvni_launch_held_port *h)
{
    for (int i = 0; i < RANDOM_TRIES; i++) {
        uint32_t drawn;
        if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn) {
            return false;
        }
        if (hold_one(random ? RANDOM_FIRST + (int)(drawn % RANDOM_COUNT) : 0, h)) {
            return true;
        }
    }
    return false;
}

int lvni_launch_port_number(const char *text)
{
    return (int)strtol(text, NULL, 10);
}

void lvni_launch_port_warn(const char *wanted, lvni_core_notices *notices)
{
    const int number = lvni_launch_port_number(wanted);
    if (number > 0 && number < 1024) {
        lvni_core_notice_warn(notices, 205, "port %d is below 1024, which needs a privilege",
                              number);
    }
}

void lvni_launch_port_release(lvni_launch_held_port *h)
{
    if (h->fd >= 0) {
        close(h->fd);
    }
    if (h->lock_fd >= 0) {
        close(h->lock_fd);
    }
    *h = LVNI_NO_PORT;
}

static lvn_status busy(int number, lvni_core_notices *notices)
{
    const lvn_status s = lvni_core_notice_error(
        notices, 110,
        "port %d is busy: another program listens on it, or another launcher holds it", number);
    char owner[120];
    lvni_control_port_owner(number, owner, sizeof owner);
    lvni_core_notice_found(notices, "port %d: %s", number, owner);
    lvni_core_notice_fix(notices, "give another --master-port, or omit it");
    return s;
}

/* Holds a port: it is bound but does not listen, so a program that sets SO_REUSEADDR (all servers
 * do) may bind it, while the system does not assign it to a process that binds any port, and no
 * other launcher takes it. wanted: "auto": any; "random": of 12000 to 31999; else the number: taken
 * is E110. */
static lvn_status hold_port(const char *wanted, lvni_core_notices *notices,
                            lvni_launch_held_port *h)
{
    const int number = lvni_launch_port_number(wanted); /* 0 of "auto": any */
    if (strcmp(wanted, "random") == 0) {
        if (!hold_one_of(true, h)) {
            LVN_FAIL(LVN_ERR_IO, "no free port of %d to %d was found: %s", RANDOM_FIRST,
                     RANDOM_FIRST + RANDOM_COUNT - 1, strerror(errno));
        }
        return LVN_OK;
    }
    if (number > 0 ? hold_one(number, h) : hold_one_of(false, h)) {
        return LVN_OK;
    }
    if (number > 0 && errno == EADDRINUSE) {
        return busy(number, notices);
    }
    LVN_FAIL(LVN_ERR_IO, "port %s cannot be bound: %s", wanted, strerror(errno));
}

/* ---- a terminal for rank 0 (--pty) ----
 * Programs show their progress lines and colours there. */

/* What is written passes through unchanged; nothing is echoed. */
static bool make_raw(int fd)
{
    struct termios t;
    if (tcgetattr(fd, &t) != 0) {
        return false;
    }
    cfmakeraw(&t);
    return tcsetattr(fd, TCSANOW, &t) == 0;
}

static int open_slave(int master)
{
    char name[64];
    if (grantpt(master) != 0 || unlockpt(master) != 0 ||
        ptsname_r(master, name, sizeof name) != 0) {
        return -1;
    }
    return open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

void lvni_launch_pty_take_size(int like, int master)
{
    struct winsize size;
    if (ioctl(like, TIOCGWINSZ, &size) == 0) {
        ioctl(master, TIOCSWINSZ, &size);
    }
}

/* A terminal as large as `like`; ends[0] to read from, ends[1] for the process. On failure the
 * caller closes both. */
static lvn_status open_pty(int like, int ends[2])
{
    ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    ends[1] = ends[0] >= 0 ? open_slave(ends[0]) : -1;
    if (ends[1] < 0 || !make_raw(ends[1])) {
        LVN_FAIL(LVN_ERR_IO, "no pseudo-terminal for rank 0: %s", strerror(errno));
    }
    lvni_launch_pty_take_size(like, ends[0]);
    return LVN_OK;
}

/* ---- one process: fork, and at once exec ----
 * Between the two only calls that are allowed in a signal handler. */

typedef struct child_plan {
    const char *path; /* of the program: no search is made */
    const char *const *argv;
    char *const *envp;
    int in, out, err;      /* become 0, 1, 2; -1: as they are */
    int keep_fds[2];       /* stay open under their numbers; -1: none */
    bool own_group;        /* leader of a process group of its own */
    const cpu_set_t *cpus; /* NULL: as it is */
    size_t cpu_bytes;
    int numa_node;       /* where memory is taken first; -1: anywhere */
    sigset_t signals;    /* the mask of the program */
    struct rlimit files; /* its limit of open files */
} child_plan;

/* MPOL_PREFERRED of <numaif.h>, which is a library of its own */
enum { MEMORY_PREFERRED = 1, NODES_MAX = 1024 };

static void prefer_memory_of(int node)
{
    unsigned long mask[NODES_MAX / (8 * sizeof(unsigned long))] = {0};
    if (node >= 0 && node < NODES_MAX) {
        mask[(size_t)node / (8 * sizeof *mask)] = 1ul << ((size_t)node % (8 * sizeof *mask));
        syscall(SYS_set_mempolicy, MEMORY_PREFERRED, mask, (unsigned long)NODES_MAX);
    }
}

/* dup2 onto the same number would leave the close-on-exec mark. */
static bool put_at(int fd, int number)
{
    return fd < 0 || (fd == number ? fcntl(fd, F_SETFD, 0) == 0 : dup2(fd, number) >= 0);
}

static bool keep_open(int fd)
{
    return fd < 0 || fcntl(fd, F_SETFD, 0) == 0;
}

static void become(const child_plan *c, pid_t launcher, int error_fd)
{
    if (c->own_group) {
        setpgid(0, 0);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) { /* it ended before the line above */
        _exit(LVNI_EXIT_FAILURE);
    }
    if (c->cpus != NULL) {
        sched_setaffinity(0, c->cpu_bytes, c->cpus);
    }
    prefer_memory_of(c->numa_node);
    setrlimit(RLIMIT_NOFILE, &c->files);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    if (put_at(c->in, 0) && put_at(c->out, 1) && put_at(c->err, 2) && keep_open(c->keep_fds[0]) &&
        keep_open(c->keep_fds[1])) {
        sigprocmask(SIG_SETMASK, &c->signals, NULL);
        execve(c->path, (char *const *)(uintptr_t)c->argv, c->envp);
    }
    const int error = errno;
    const ssize_t n = write(error_fd, &error, sizeof error);
    _exit(n == (ssize_t)sizeof error ? LVNI_EXIT_NOT_EXECUTABLE : LVNI_EXIT_NO_PROGRAM);
}

/* The child is killed when the calling thread ends: call it from the main thread alone.
 * LVN_ERR_NOT_FOUND: the program could not be executed, errno in *error; other failures: no process
 * (or file descriptor) is to be had. */
static lvn_status start_child(const child_plan *c, pid_t *pid, int *error)
{
    *error = 0;
    int error_pipe[2];
    if (pipe2(error_pipe, O_CLOEXEC) != 0) {
        LVN_FAIL(LVN_ERR_IO, "no pipe for another process: %s", strerror(errno));
    }
    const pid_t launcher = getpid();
    *pid = fork();
    if (*pid == 0) {
        become(c, launcher, error_pipe[1]);
    }
    const int fork_error = errno;
    close(error_pipe[1]);
    ssize_t n = 0;
    if (*pid > 0) {
        if (c->own_group) {
            setpgid(*pid, *pid); /* whichever of the two comes first */
        }
        do {
            n = read(error_pipe[0], error, sizeof *error);
        } while (n < 0 && errno == EINTR);
    }
    close(error_pipe[0]);
    if (*pid < 0) {
        LVN_FAIL(LVN_ERR_IO,
                 "no process could be started: %s (ulimit -u, pids.max of the container)",
                 strerror(fork_error));
    }
    if (n == (ssize_t)sizeof *error) {
        LVN_FAIL(LVN_ERR_NOT_FOUND, "%s cannot be executed: %s", c->path, strerror(*error));
    }
    return LVN_OK;
}

/* ---- all of them ---- */

static lvn_status make_procs(lvni_launch_run *r)
{
    r->procs = lvni_core_calloc(LVNI_TAG_CORE, (size_t)r->local, sizeof *r->procs);
    if (r->procs == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < r->local; i++) {
        lvni_launch_proc *p = &r->procs[i];
        p->local_rank = i;
        p->rank = r->node_rank * r->local + i;
        p->out = (lvni_launch_stream){.id = 2 * i, .fd = -1, .log_fd = -1};
        p->err = (lvni_launch_stream){.id = 2 * i + 1, .fd = -1, .log_fd = -1, .keeps_tail = true};
    }
    return lvni_launch_name_files(r);
}

static lvn_status open_ports(lvni_launch_run *r)
{
    r->store_fd = -1;
    r->store_port = 0;
    r->held = LVNI_NO_PORT;
    if (r->nodes == 1) {
        const int any = 0;
        LVN_TRY(lvni_control_store_listen("127.0.0.1", &any, 1, &r->store_fd, &r->store_port));
    }
    if (r->nodes == 1 || r->node_rank == 0) {
        return hold_port(r->o.master_port, &r->notices, &r->held);
    }
    r->held.port = lvni_launch_port_number(r->o.master_port);
    return LVN_OK;
}

bool lvni_launch_shows(const lvni_launch_run *r, const lvni_launch_proc *p, int stream)
{
    const int hidden = lvni_launch_torchrun_streams(r->o.redirects, p->local_rank);
    return r->shown[p->rank] && !r->o.redirect && (hidden & stream) == 0;
}

/* The prefix holds the number of the process, so it is made when there is one. */
static lvn_status make_prefix(const lvni_launch_run *r, lvni_launch_proc *p)
{
    const char *pattern = r->o.prefix != NULL            ? r->o.prefix
                          : r->local > 1 || r->nodes > 1 ? "[%r] "
                                                         : "";
    lvni_launch_rank_name name;
    lvni_launch_name(r, p, &name);
    lvni_launch_stream *both[] = {&p->out, &p->err};
    for (int k = 0; k < 2; k++) {
        lvni_core_str s = {0};
        lvni_launch_pattern_expand(&s, pattern, &name);
        lvni_core_str_append(&s, "");
        LVN_TRY(lvni_core_str_status(&s));
        both[k]->prefix = lvni_core_str_take(&s);
        if (both[k]->prefix == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    if (strlen(p->out.prefix) > LVNI_STREAM_PIECE / 2) {
        LVN_FAIL(LVN_ERR_USAGE, "prefix: %zu bytes in front of every line are too many",
                 strlen(p->out.prefix));
    }
    p->out.sink = lvni_launch_shows(r, p, LVNI_STREAM_OUT) ? r->out : NULL;
    p->err.sink = lvni_launch_shows(r, p, LVNI_STREAM_ERR) ? r->err : NULL;
    return LVN_OK;
}

static lvn_status open_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) != 0) {
        LVN_FAIL(LVN_ERR_IO, "no pipe for the output of a process: %s (ulimit -n)",
                 strerror(errno));
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return LVN_OK;
}

/* Where rank 0 writes: a terminal if it is to have one and we write to one. A pipe serves where
 * there are none to be had. */
static lvn_status open_output(lvni_launch_run *r, const lvni_launch_proc *p,
                              lvni_launch_stream *stream, int own, int ends[2])
{
    stream->live = r->o.pty && p->rank == 0 && lvni_core_terminal_rewrites(own);
    if (stream->live && open_pty(own, ends) != LVN_OK) {
        lvni_launch_print(r, "%s; it writes to a pipe", lvn_last_error()->message);
        lvni_launch_close_fd(&ends[0]);
        lvni_launch_close_fd(&ends[1]);
        stream->live = false;
    }
    return stream->live ? LVN_OK : open_pipe(ends);
}

static lvn_status start_with(lvni_launch_run *r, lvni_launch_proc *p, int in, const int *out,
                             const int *err, int *error)
{
    lvni_launch_variables v;
    LVN_TRY(lvni_launch_environment(r, p, &v));
    const bool bound = r->binding.how != LVNI_BIND_NONE;
    const child_plan c = {
        .path = r->program,
        .argv = r->o.program,
        .envp = v.list,
        .in = in,
        .out = out[1],
        .err = err[1],
        .keep_fds = {p->rank == 0 ? r->store_fd : -1, p->rank == 0 ? r->lock_fd : -1},
        .own_group = !r->shares_group,
        .cpus = bound ? r->binding.cpus[p->local_rank] : NULL,
        .cpu_bytes = r->binding.cpu_bytes,
        .numa_node = bound ? r->binding.numa[p->local_rank] : -1,
        .signals = r->signals,
        .files = r->files};
    p->start_ns = lvni_core_now_ns();
    const lvn_status s = start_child(&c, &p->pid, error);
    lvni_launch_variables_free(&v);
    if (p->pid > 0) {
        p->started = p->alive = p->group_alive = true;
    }
    return s;
}

static lvn_status start_one(lvni_launch_run *r, lvni_launch_proc *p, int in, int *error)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    const bool by_pid = lvni_launch_logs_by_pid(r);
    /* an error then comes before the process */
    lvn_status s;
    LVNI_TRY_DONE(s, by_pid ? LVN_OK : lvni_launch_open_logs(r, p));
    LVNI_TRY_DONE(s, open_output(r, p, &p->out, STDOUT_FILENO, out));
    LVNI_TRY_DONE(s, open_output(r, p, &p->err, STDERR_FILENO, err));
    p->pid = 0;
    s = start_with(r, p, in, out, err, error);
done:
    p->out.fd = out[0];
    p->err.fd = err[0];
    lvni_launch_close_fd(&out[1]);
    lvni_launch_close_fd(&err[1]);
    LVN_TRY(s);
    LVN_TRY(by_pid ? lvni_launch_open_logs(r, p) : LVN_OK);
    return make_prefix(r, p);
}

static lvn_status start_all(lvni_launch_run *r, int *error)
{
    int *ends = lvni_core_calloc(LVNI_TAG_CORE, (size_t)r->local, sizeof *ends);
    if (ends == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < r->local; i++) {
        ends[i] = -1;
    }
    lvn_status s = lvni_launch_feed_open(r, ends);
    for (int i = 0; i < r->local; i++) {
        if (s == LVN_OK) {
            s = start_one(r, &r->procs[i], ends[i], error);
        }
        lvni_launch_close_fd(&ends[i]);
    }
    lvni_core_free(ends);
    return s;
}

/* Launchers of several nodes have nothing secret in common but what the user gives them:
 * LEVIN_TOKEN. */
static lvn_status make_key(lvni_launch_run *r)
{
    lvni_control_token key;
    LVN_TRY(lvni_control_token_random(&key));
    if (r->nodes == 1) {
        lvni_control_token_print(&key, r->run_key);
    }
    return LVN_OK;
}

lvn_status lvni_launch_start(lvni_launch_run *r, int *error)
{
    LVN_TRY(make_key(r));
    LVN_TRY(make_procs(r));
    LVN_TRY(open_ports(r));
    return start_all(r, error);
}
