/* Starting and ending a trial's program (sweep_process.h). Called by sweep_work.c. */
#include "sweep/sweep_process.h"

#include "core/alloc.h"
#include "core/error.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the guard ---- */

enum { GROUPS = 4096 };

/* Group g runs (g > 0), or has ended (-g). */
static void inform_guard(const lvni_sweep_guard *guard, pid_t change)
{
    ssize_t n;
    do {
        n = write(guard->fd, &change, sizeof change); /* less than a pipe takes at once */
    } while (n < 0 && errno == EINTR);
}

static void note(pid_t *groups, int *n, pid_t change)
{
    if (change > 0 && *n < GROUPS) {
        groups[(*n)++] = change;
    }
    for (int i = 0; change < 0 && i < *n; i++) {
        if (groups[i] == -change) {
            groups[i] = groups[--*n];
            return;
        }
    }
}

/* Until the pipe's other end is closed, by the worker or by its death. */
static _Noreturn void guard_groups(int from)
{
    static pid_t groups[GROUPS];
    int n = 0;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setpgid(0, 0);
    prctl(PR_SET_NAME, "lvn-guard");
    if (dup2(from, STDIN_FILENO) == STDIN_FILENO) {
        close_range(1, ~0u, 0);
    }
    for (;;) {
        pid_t change;
        const ssize_t got = read(STDIN_FILENO, &change, sizeof change);
        if (got == (ssize_t)sizeof change) {
            note(groups, &n, change);
        } else if (got >= 0 || errno != EINTR) {
            break;
        }
    }
    for (int i = 0; i < n; i++) {
        kill(-groups[i], SIGKILL);
    }
    _exit(LVNI_EXIT_OK);
}

static lvn_status no_process(void)
{
    LVN_FAIL(LVN_ERR_IO,
             "no process could be started: %s (ulimit -u, ulimit -n, pids.max of the "
             "container)",
             strerror(errno));
}

lvn_status lvni_sweep_guard_start(lvni_sweep_guard *out)
{
    int ends[2];
    *out = (lvni_sweep_guard){.fd = -1};
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return no_process();
    }
    out->pid = fork();
    if (out->pid == 0) {
        close(ends[1]);
        guard_groups(ends[0]);
    }
    close(ends[0]);
    if (out->pid < 0) {
        const int error = errno;
        close(ends[1]);
        errno = error;
        return no_process();
    }
    out->fd = ends[1];
    return LVN_OK;
}

void lvni_sweep_guard_end(lvni_sweep_guard *guard)
{
    if (guard->pid > 0) {
        close(guard->fd);
        while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    *guard = (lvni_sweep_guard){.fd = -1};
}

/* ---- programs ---- */

static _Noreturn void become(char *const *argv, char *const *environment, int log, int report,
                             pid_t parent)
{
    const int empty = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigset_t none;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(LVNI_EXIT_FAILURE); /* it died before it could be followed */
    }
    signal(SIGPIPE, SIG_DFL); /* what nohup ignores stays so */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(empty, STDIN_FILENO) >= 0 && dup2(log, STDOUT_FILENO) >= 0 &&
        dup2(log, STDERR_FILENO) >= 0) {
        execvpe(argv[0], argv, environment);
    }
    const int error = errno;
    if (write(report, &error, sizeof error) < 0) {
        _exit(LVNI_EXIT_FAILURE);
    }
    _exit(LVNI_EXIT_NO_PROGRAM);
}

lvn_status lvni_sweep_process_start(const lvni_sweep_guard *guard, char *const *argv,
                                    char *const *environment, int log, pid_t *pid, int *error)
{
    int ends[2];
    ssize_t got;
    *error = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return no_process();
    }
    const pid_t self = getpid();
    *pid = fork();
    if (*pid == 0) {
        become(argv, environment, log, ends[1], self);
    }
    const int failed = errno;
    close(ends[1]);
    if (*pid < 0) {
        close(ends[0]);
        errno = failed;
        return no_process();
    }
    setpgid(*pid, *pid); /* here, too: it may be sent a signal before it came to that itself */
    inform_guard(guard, *pid);
    do { /* nothing once the program has begun: the pipe closes */
        got = read(ends[0], error, sizeof *error);
    } while (got < 0 && errno == EINTR);
    close(ends[0]);
    if (got == (ssize_t)sizeof *error) {
        while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR) {
        }
        inform_guard(guard, -*pid);
    } else {
        *error = 0;
    }
    return LVN_OK;
}

bool lvni_sweep_process_ended(const lvni_sweep_guard *guard, pid_t pid, int *exit_code)
{
    siginfo_t info = {.si_pid = 0};
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) {
        return false;
    }
    kill(-pid, SIGKILL); /* while the number is still its own */
    inform_guard(guard, -pid);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    *exit_code =
        WIFSIGNALED(status) ? lvni_core_exit_of_signal(WTERMSIG(status)) : WEXITSTATUS(status);
    return true;
}
