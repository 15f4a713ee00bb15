/* A child process with two pipes (bench_child.h). */
#include "bench_child.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

bool bench_child_start(bench_child *c, char *const argv[], char *const env[])
{
    int in[2], out[2];
    *c = (bench_child){.pid = 0};
    signal(SIGPIPE, SIG_IGN);
    if (pipe2(in, O_CLOEXEC) != 0) {
        return false;
    }
    if (pipe2(out, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return false;
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    const bool started =
        posix_spawn(&c->pid, argv[0], &actions, NULL, argv, env == NULL ? environ : env) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    c->to = fdopen(in[1], "w");
    c->from = fdopen(out[0], "r");
    if (!started) {
        c->pid = 0;
    }
    return started;
}

void bench_child_stop(bench_child *c)
{
    if (c->to != NULL) {
        fclose(c->to);
    }
    if (c->from != NULL) {
        fclose(c->from);
    }
    if (c->pid != 0) {
        waitpid(c->pid, NULL, 0);
    }
    *c = (bench_child){.pid = 0};
}
