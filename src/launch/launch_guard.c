/* The launcher itself may be killed, by a person or by the kernel for lack of memory. Its ranks die
 * with it (PR_SET_PDEATHSIG), but not what they started. A small process waits for that moment: it
 * holds the end of a pipe, and when the launcher is gone without a word it kills every process that
 * carries the mark of this launcher in its environment. The mark holds the run's id and a number of
 * its own: a next run in the same folder, under the same name too, may have begun by then. */
#include "launch/launch_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "core/vfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENVIRONMENT_MAX = 4 << 20, SWEEPS = 20, PAUSE_US = 20000 };

/* Is the mark among the variables in /proc/PID/environ? */
static bool carries(pid_t pid, const char *mark)
{
    char path[64];
    char *data;
    size_t bytes;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    if (lvni_core_file_read(path, ENVIRONMENT_MAX, &data, &bytes) != LVN_OK) {
        return false;
    }
    bool found = false;
    for (size_t at = 0; at < bytes && !found; at += strlen(data + at) + 1) {
        found = strcmp(data + at, mark) == 0;
    }
    lvni_core_free(data);
    return found;
}

static int kill_marked(const char *mark)
{
    int n = 0;
    DIR *d = opendir("/proc");
    for (const struct dirent *e = NULL; d != NULL && (e = readdir(d)) != NULL;) {
        const pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid > 0 && pid != getpid() && carries(pid, mark)) {
            n++;
            kill(pid, SIGKILL);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return n;
}

/* Keeps nothing open, so that who reads the launcher's output sees its end; belongs to no
 * terminal's group. */
static void guard(int from, const char *mark)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setpgid(0, 0);
    prctl(PR_SET_NAME, "lvn-guard");
    if (dup2(from, 0) == 0) {
        close_range(1, ~0u, 0);
    }
    char byte;
    ssize_t n;
    do {
        n = read(0, &byte, 1);
    } while (n < 0 && errno == EINTR);
    for (int i = 0; i < SWEEPS && kill_marked(mark) > 0; i++) {
        usleep(PAUSE_US);
    }
    _exit(LVNI_EXIT_OK);
}

lvn_status lvni_launch_guard_start(lvni_launch_run *r)
{
    int ends[2];
    uint64_t own;
    if (getrandom(&own, sizeof own, 0) != (ssize_t)sizeof own) {
        LVN_FAIL(LVN_ERR_INTERNAL, "the system gives no random numbers: %s", strerror(errno));
    }
    snprintf(r->launch_id, sizeof r->launch_id, "%s-%016llx", r->run_id, (unsigned long long)own);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        LVN_FAIL(LVN_ERR_IO, "no pipe: %s (ulimit -n)", strerror(errno));
    }
    lvni_core_str mark = {0};
    lvni_core_str_printf(&mark, "LEVIN_LAUNCH_ID=%s", r->launch_id);
    lvn_status s = lvni_core_str_status(&mark);
    r->guard = s == LVN_OK ? fork() : -1;
    if (r->guard == 0) {
        close(ends[1]);
        guard(ends[0], lvni_core_str_text(&mark));
    }
    if (s == LVN_OK && r->guard < 0) {
        s = lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__,
                          "no process could be started: %s (ulimit -u, pids.max of the container)",
                          strerror(errno));
    }
    r->guard_fd = ends[1];
    close(ends[0]);
    lvni_core_str_free(&mark);
    return s;
}

void lvni_launch_guard_end(lvni_launch_run *r)
{
    if (r->guard > 0) {
        kill(r->guard, SIGKILL);
        waitpid(r->guard, NULL, 0);
    }
    if (r->guard_fd >= 0) {
        close(r->guard_fd);
    }
    r->guard = 0;
    r->guard_fd = -1;
}
