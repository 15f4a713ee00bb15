/* Starting one process (launch_child.h). Between fork and exec stand only calls that may be made in
 * a signal handler. */
#include "launch/launch_child.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

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

static void become(const lvni_launch_child *c, pid_t launcher, int reported)
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
    const ssize_t n = write(reported, &error, sizeof error);
    _exit(n == (ssize_t)sizeof error ? LVNI_EXIT_NOT_EXECUTABLE : LVNI_EXIT_NO_PROGRAM);
}

lvn_status lvni_launch_child_start(const lvni_launch_child *c, pid_t *pid, int *error)
{
    *error = 0;
    int reported[2];
    if (pipe2(reported, O_CLOEXEC) != 0) {
        LVN_FAIL(LVN_ERR_IO, "no pipe for another process: %s", strerror(errno));
    }
    const pid_t launcher = getpid();
    *pid = fork();
    if (*pid == 0) {
        become(c, launcher, reported[1]);
    }
    const int fork_error = errno;
    close(reported[1]);
    ssize_t n = 0;
    if (*pid > 0) {
        if (c->own_group) {
            setpgid(*pid, *pid); /* whichever of the two comes first */
        }
        do {
            n = read(reported[0], error, sizeof *error);
        } while (n < 0 && errno == EINTR);
    }
    close(reported[0]);
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

/* ---- the program ---- */

/* 0: can be run; 126: is there; 127: is not. */
static int judge(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return errno == EACCES ? LVNI_EXIT_NOT_EXECUTABLE : LVNI_EXIT_NO_PROGRAM;
    }
    return S_ISREG(info.st_mode) && access(path, X_OK) == 0 ? LVNI_EXIT_OK
                                                            : LVNI_EXIT_NOT_EXECUTABLE;
}

static lvn_status search_path(const char *name, const char *search, lvni_core_str *found,
                              int *exit_code)
{
    *exit_code = LVNI_EXIT_NO_PROGRAM;
    for (const char *p = search; *exit_code != LVNI_EXIT_OK;) {
        const size_t n = strcspn(p, ":");
        lvni_core_str s = {0};
        lvni_core_str_append_n(&s, n > 0 ? p : ".", n > 0 ? n : 1);
        lvni_core_str_char(&s, '/');
        lvni_core_str_append(&s, name);
        LVN_TRY(lvni_core_str_status(&s));
        const int here = judge(lvni_core_str_text(&s));
        if (here < *exit_code) {
            *exit_code = here;
            lvni_core_str_free(found);
            *found = s;
        } else {
            lvni_core_str_free(&s);
        }
        if (p[n] == '\0') {
            break;
        }
        p += n + 1;
    }
    return LVN_OK;
}

lvn_status lvni_launch_child_find_program(const char *name, const char *search, char **path,
                                          int *exit_code)
{
    lvni_core_str found = {0};
    *path = NULL;
    if (strchr(name, '/') != NULL) {
        *exit_code = judge(name);
        lvni_core_str_append(&found, name);
    } else if (name[0] == '\0') {
        *exit_code = LVNI_EXIT_NO_PROGRAM;
    } else {
        LVN_TRY(search_path(name, search != NULL ? search : "/usr/local/bin:/usr/bin:/bin", &found,
                            exit_code));
    }
    lvn_status s = lvni_core_str_status(&found);
    if (s == LVN_OK && *exit_code == LVNI_EXIT_NO_PROGRAM) {
        s = lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__, "%s: there is no such program%s",
                          name,
                          strchr(name, '/') != NULL
                              ? ""
                              : " in the folders of PATH; one in this folder is written ./NAME");
    } else if (s == LVN_OK && *exit_code == LVNI_EXIT_NOT_EXECUTABLE) {
        s = lvn_error_set(
            LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
            "%s is no program one may execute: chmod +x it, or name its interpreter (python3 %s)",
            lvni_core_str_text(&found), name);
    }
    if (s != LVN_OK) {
        lvni_core_str_free(&found);
        return s;
    }
    *path = lvni_core_str_take(&found);
    return *path != NULL ? LVN_OK : LVN_ERR_MEMORY;
}
