/* A child process with two pipes (bench_torch.h). */
#include "bench_torch.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VARIABLES = 512 };

/* Our environment without what this program set for itself, and with the tuning. */
static void environment(char *out[VARIABLES], bool tuned)
{
    static char blas[] = "OPENBLAS_CORETYPE=SkylakeX", waits[] = "OMP_WAIT_POLICY=passive";
    int n = 0;
    for (char **e = environ; *e != NULL && n < VARIABLES - 3; e++) {
        if (strncmp(*e, "GOMP_SPINCOUNT=", 15) != 0) {
            out[n++] = *e;
        }
    }
    if (tuned) {
        out[n++] = blas;
        out[n++] = waits;
    }
    out[n] = NULL;
}

static bool spawn(bench_torch *t, char *const argv[], bool tuned)
{
    int in[2], out[2];
    char *env[VARIABLES];
    if (pipe2(in, O_CLOEXEC) != 0) {
        return false;
    }
    if (pipe2(out, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return false;
    }
    environment(env, tuned);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    const bool started = posix_spawn(&t->pid, argv[0], &actions, NULL, argv, env) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    t->to = fdopen(in[1], "w");
    t->from = fdopen(out[0], "r");
    if (!started) {
        t->pid = 0;
    }
    return started;
}

bool bench_torch_start(bench_torch *t, const char *script, const char *net, const char *file, const char *variant,
                       const char *precision, int threads, bool tuned)
{
    char python[] = "/usr/bin/python3", program[512], words[4][64], path[256], count[16];
    *t = (bench_torch){.pid = 0};
    snprintf(program, sizeof program, "%s/%s", LEVIN_BENCH_DIR, script);
    snprintf(words[0], sizeof words[0], "%s", net);
    snprintf(words[1], sizeof words[1], "%s", variant);
    snprintf(words[2], sizeof words[2], "%s", precision);
    snprintf(path, sizeof path, "%s", file);
    snprintf(count, sizeof count, "%d", threads);
    signal(SIGPIPE, SIG_IGN);
    if (!spawn(t, (char *[]){python, program, words[0], path, words[1], words[2], count, NULL}, tuned)) {
        snprintf(t->about, sizeof t->about, "%s does not start", python);
        return false;
    }
    if (fgets(t->about, sizeof t->about, t->from) == NULL) {
        snprintf(t->about, sizeof t->about, "%s ended without a word", script);
    }
    t->about[strcspn(t->about, "\n")] = '\0';
    if (strncmp(t->about, "ready ", 6) != 0) {
        bench_torch_stop(t);
        return false;
    }
    return true;
}

bool bench_torch_steps(bench_torch *t, int n, double *seconds, double *core_s, double *losses)
{
    if (t->pid == 0 || fprintf(t->to, "%d\n", n) < 0 || fflush(t->to) != 0 || fscanf(t->from, "%lf %lf", seconds, core_s) != 2) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (fscanf(t->from, "%lf", &losses[i]) != 1) {
            return false;
        }
    }
    return true;
}

void bench_torch_stop(bench_torch *t)
{
    if (t->to != NULL) {
        fclose(t->to); /* the end of its input ends it */
    }
    if (t->from != NULL) {
        fclose(t->from);
    }
    if (t->pid != 0) {
        waitpid(t->pid, NULL, 0);
    }
    t->to = t->from = NULL;
    t->pid = 0;
}
