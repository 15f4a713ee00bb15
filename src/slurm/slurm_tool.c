/* One of Slurm's commands as a child (slurm_tool.h). */
#include "slurm/slurm_tool.h"

#include "core/error.h"
#include "core/machine.h"
#include "launch/env_vars.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 50, PIECE = 4096 };

/* ---- starting ---- */

/* The child gets the signals of a new process: a training blocks its own. */
static int spawn(lvni_slurm_tool_kind kind, char *const *environment, const char *const *argv,
                 int output, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    const bool heard = kind == LVNI_SLURM_TOOL_HEARD;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (heard) {
        posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    }
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                  (heard ? POSIX_SPAWN_SETPGROUP : 0)));
    const int error = posix_spawnp(pid, argv[0], &actions, &attributes,
                                   (char *const *)(uintptr_t)argv, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

lvn_status lvni_slurm_tool_start(lvni_slurm_tool_kind kind, char *const *environment,
                                 const char *const *argv, lvni_slurm_tool *tool, int *error)
{
    int ends[2];
    *tool = (lvni_slurm_tool){.output = -1};
    if (pipe2(ends, O_CLOEXEC) != 0) {
        LVN_FAIL(LVN_ERR_IO, "%s cannot be started: %s", argv[0], strerror(errno));
    }
    *error = spawn(kind, environment, argv, ends[1], &tool->pid);
    close(ends[1]);
    if (*error != 0) {
        close(ends[0]);
        return LVN_OK;
    }
    tool->output = ends[0];
    return LVN_OK;
}

static int code_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : lvni_core_exit_of_signal(WTERMSIG(status));
}

int lvni_slurm_tool_end(lvni_slurm_tool *tool)
{
    int status = 0;
    close(tool->output);
    while (waitpid(tool->pid, &status, 0) < 0 && errno == EINTR) {
    }
    return code_of(status);
}

/* ---- with a limit of time ---- */

/* -1: its output has ended; 0: nothing came within wait_ms; 1: something did. */
static int hear(int input, int wait_ms, size_t most, lvni_core_str *text)
{
    char piece[PIECE];
    struct pollfd wait = {.fd = input, .events = POLLIN};
    const int ready = poll(&wait, 1, wait_ms);
    if (ready <= 0) {
        return 0;
    }
    const ssize_t n = read(input, piece, sizeof piece);
    if (n <= 0) {
        return n < 0 && errno == EINTR ? 1 : -1;
    }
    const size_t room = most > text->len ? most - text->len : 0;
    lvni_core_str_append_n(text, piece, (size_t)n < room ? (size_t)n : room);
    return 1;
}

static int left_ms(uint64_t end)
{
    const uint64_t now = lvni_core_now_ns();
    return now >= end ? 0 : (int)((end - now) / 1000000u) + 1;
}

static bool has_ended(const lvni_slurm_tool *tool, int *status)
{
    return waitpid(tool->pid, status, WNOHANG) == tool->pid || errno == ECHILD;
}

/* False: the time is over. A grandchild may hold the output open, and a command may close it before
 * it ends: both are looked at. */
static bool wait_for(const lvni_slurm_tool *tool, uint64_t end, size_t most, lvni_core_str *text,
                     int *status)
{
    bool closed = false;
    for (int left = left_ms(end); left > 0; left = left_ms(end)) {
        const int wait = left < LOOK_MS ? left : LOOK_MS;
        const int heard = closed ? 0 : hear(tool->output, wait, most, text);
        closed = closed || heard < 0;
        errno = 0;
        if (heard <= 0 && has_ended(tool, status)) {
            while (!closed && hear(tool->output, 0, most, text) > 0) { /* written just before */
            }
            return true;
        }
        if (closed) {
            const struct timespec moment = {.tv_nsec = 1000000};
            nanosleep(&moment, NULL);
        }
    }
    return false;
}

static lvn_status run_with(char *const *environment, const char *const *argv, int timeout_ms,
                           size_t max_bytes, lvni_core_str *output, int *exit_code)
{
    const uint64_t end = lvni_core_now_ns() + (uint64_t)timeout_ms * 1000000u;
    const size_t most = output->len + max_bytes;
    lvni_slurm_tool tool;
    int error = 0, status = 0;
    LVN_TRY(lvni_slurm_tool_start(LVNI_SLURM_TOOL_HEARD, environment, argv, &tool, &error));
    if (error != 0) {
        lvni_core_str_append(output, strerror(error));
        *exit_code = LVNI_SLURM_TOOL_NOT_FOUND;
        return lvni_core_str_status(output);
    }
    if (wait_for(&tool, end, most, output, &status)) {
        close(tool.output);
        *exit_code = code_of(status);
        return lvni_core_str_status(output);
    }
    kill(-tool.pid, SIGKILL);
    (void)lvni_slurm_tool_end(&tool);
    lvni_core_str_printf(output, "%sno answer within %g s",
                         output->len > 0 && output->data[output->len - 1] != '\n' ? "\n" : "",
                         timeout_ms / 1e3);
    *exit_code = LVNI_SLURM_TOOL_TIMED_OUT;
    return lvni_core_str_status(output);
}

/* Filters that a user has for an own use of the tools (SQUEUE_PARTITION, SINFO_STATE) would hide
 * jobs and nodes: a job that squeue leaves out counts as gone. */
lvn_status lvni_slurm_tool_run_in(char *const *environment, const char *const *argv, int timeout_ms,
                                  size_t max_bytes, lvni_core_str *output, int *exit_code)
{
    static const char *const prefixes[] = {"SQUEUE_", "SINFO_", "SCANCEL_", "SACCT_"};
    lvni_launch_variables v = {.n = 0};
    lvni_launch_variables_copy(&v, environment);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        lvni_launch_variables_unset_prefix(&v, prefixes[i]);
    }
    lvn_status s = lvni_launch_variables_status(&v);
    if (s == LVN_OK) {
        s = run_with(v.list, argv, timeout_ms, max_bytes, output, exit_code);
    }
    lvni_launch_variables_free(&v);
    return s;
}

lvn_status lvni_slurm_tool_run(const char *const *argv, int timeout_ms, size_t max_bytes,
                               lvni_core_str *output, int *exit_code)
{
    return lvni_slurm_tool_run_in(environ, argv, timeout_ms, max_bytes, output, exit_code);
}
