/* A job's training through `levin plan` (slurm_plan.h), in a process of its own: it computes
 * nothing, but it reads the data and makes the model. */
#include "cli/slurm_plan.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/own_program.h"
#include "launch/env_vars.h"
#include "run/run_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* As many simulated devices stand for GPUs that this machine need not have; of more ranks each is a
 * CPU. */
enum { SIM_MOST = 32, MORE_WORDS = 8 };

typedef struct child {
    const char **words;
    char devices[40];
    lvni_launch_variables environment;
    bool sim;
} child;

static bool is_one_of(const char *name, const char *const *names)
{
    for (; name != NULL && *names != NULL; names++) {
        if (strcmp(name, *names) == 0) {
            return true;
        }
    }
    return false;
}

bool lvni_cli_slurm_is_open(const char *word, bool raw)
{
    return (raw && strchr(word, '$') != NULL) || strstr(word, "${oc.env:SLURM") != NULL;
}

static bool is_open(const lvni_cli_slurm_training *t, int at, int used)
{
    bool open = false;
    for (int k = 0; k < used; k++) {
        open = open || lvni_cli_slurm_is_open(t->words[at + k], t->raw);
    }
    return open;
}

/* What is known when the job runs alone. False: without it there is nothing to plan. */
static bool note_open(const lvni_cli_slurm_training *t, lvni_slurm_findings *f)
{
    static const char *const needed[] = {"data", "config", "model", NULL};
    bool can = true;
    for (int i = 1; i < t->n;) {
        const char *name, *text;
        const int taken = lvni_core_config_arguments_of(t->config, t->n - i, t->words + i, &name,
                                                        &text),
                  used = taken > 0 ? taken : 1;
        if (is_open(t, i, used)) {
            const bool all = is_one_of(taken > 0 ? name : NULL, needed);
            lvni_slurm_note(f, "plan", "%.100s is known in the job alone: %s", t->words[i],
                            all ? "the training is not planned" : "planned without it");
            can = can && !all;
        }
        i += used;
    }
    return can;
}

/* The words without those about the place where it runs. */
static lvn_status make_words(const lvni_cli_slurm_training *t, child *c)
{
    static const char *const place[] = {"devices", "num_nodes", "accelerator", "memory_check",
                                        NULL},
                             *const of_gpus[] = {"transport", "cuda_graph", NULL};
    const bool cpu_for_gpu = !c->sim && !t->on_cpu;
    int n = 0;
    c->words = lvni_core_calloc(LVNI_TAG_CORE, (size_t)t->n + MORE_WORDS, sizeof *c->words);
    if (c->words == NULL) {
        return LVN_ERR_MEMORY;
    }
    c->words[n++] = "levin";
    c->words[n++] = "plan";
    c->words[n++] = "train";
    c->words[n++] = t->words[0];
    for (int i = 1; i < t->n;) {
        const char *name, *text;
        const int used =
            lvni_core_config_arguments_of(t->config, t->n - i, t->words + i, &name, &text);
        const bool left_out = is_open(t, i, used > 0 ? used : 1) || is_one_of(name, place) ||
                              (cpu_for_gpu && is_one_of(name, of_gpus));
        for (int k = 0; k < (used > 0 ? used : 1) && !left_out; k++) {
            c->words[n++] = t->words[i + k];
        }
        i += used > 0 ? used : 1;
    }
    snprintf(c->devices, sizeof c->devices, "devices=%lld", (long long)t->ranks);
    c->words[n++] = c->devices;
    c->words[n++] = c->sim ? "accelerator=sim" : "accelerator=cpu";
    c->words[n++] = "memory_check=warn"; /* this machine's memory is not the node's */
    return LVN_OK;
}

/* Not that of a step in which this command runs. */
static lvn_status make_environment(const lvni_cli_slurm_training *t, child *c)
{
    lvni_launch_variables *v = &c->environment;
    lvni_launch_variables_copy(v, environ);
    lvni_launch_variables_unset_prefix(v, "SLURM_");
    lvni_launch_variables_set(v, "LEVIN_ENV", "single");
    if (c->sim) {
        lvni_launch_variables_set_number(v, "LEVIN_SIM_DEVICES", t->ranks);
        lvni_launch_variables_set(v, "LEVIN_SIM_MEMORY", "1024GiB");
    }
    return lvni_launch_variables_status(v);
}

static void read_all(int fd, lvni_core_str *out)
{
    char piece[512];
    for (;;) {
        const ssize_t n = read(fd, piece, sizeof piece);
        if (n > 0) {
            lvni_core_str_append_n(out, piece, (size_t)n);
        } else if (n == 0 || errno != EINTR) {
            return;
        }
    }
}

/* Its exit code, and what it wrote to standard error. */
static lvn_status run(const child *c, lvni_core_str *out, int *code)
{
    int ends[2], status = 0;
    char path[PATH_MAX];
    pid_t pid;
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        LVN_FAIL(LVN_ERR_IO, "levin plan cannot be started: %s", strerror(errno));
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    const int error = !lvni_core_self(path, sizeof path)
                          ? ENOENT
                          : posix_spawn(&pid, path, &actions, NULL,
                                        (char *const *)(uintptr_t)c->words, c->environment.list);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error == 0) {
        read_all(ends[0], out);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    close(ends[0]);
    if (error != 0) {
        LVN_FAIL(LVN_ERR_IO, "levin plan cannot be started: %s", strerror(error));
    }
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : lvni_core_exit_of_signal(WTERMSIG(status));
    return lvni_core_str_status(out);
}

/* Each line "error: ..." of it, the lines below "error: 4 mistakes:" in its place, and all where
 * there is none. */
static void report(const lvni_core_str *text, int code, lvni_slurm_findings *f)
{
    static const char advice[] = "; plan=false omits this check";
    static const char front[] = "error: ";
    static const char head[] = " mistakes:";
    const int before = f->errors;
    bool listed = false;
    for (const char *p = lvni_core_str_text(text); *p != '\0';) {
        const size_t n = strcspn(p, "\n");
        const bool first = strncmp(p, front, strlen(front)) == 0;
        const size_t skip = first ? strlen(front) : 0;
        if (first && n > strlen(head) && strncmp(p + n - strlen(head), head, strlen(head)) == 0) {
            listed = true;
        } else if (first || (listed && n > 0 && *p != ' ')) {
            lvni_slurm_error(f, "plan", "the training would stop: %.*s%s", (int)(n - skip),
                             p + skip, f->errors == before ? advice : "");
        }
        p += n + (p[n] == '\n');
    }
    if (f->errors == before) {
        lvni_slurm_error(f, "plan", "the training would stop with exit code %d: %.600s%s", code,
                         lvni_core_str_text(text), advice);
    }
}

/* A run that is there already, which a new one would not replace. */
static void check_run_dir(const lvni_cli_slurm_training *t, lvni_slurm_findings *f)
{
    char *path = NULL;
    if (lvni_run_dir_choose(t->config, &path) != LVN_OK) {
        lvni_slurm_error(f, "plan", "the training would stop: %s", lvn_last_error()->message);
        lvn_clear_error();
    }
    lvni_core_free(path);
}

static lvn_status plan_here(const lvni_cli_slurm_training *t, lvni_slurm_findings *f)
{
    child c = {.sim = !t->on_cpu && t->ranks <= SIM_MOST};
    lvni_core_str out = {0};
    int code = 0;
    lvn_status s;
    LVNI_TRY_DONE(s, make_words(t, &c));
    LVNI_TRY_DONE(s, make_environment(t, &c));
    LVNI_TRY_DONE(s, run(&c, &out, &code));
    if (code != 0) {
        report(&out, code, f);
    }
    check_run_dir(t, f);
done:
    lvni_core_str_free(&out);
    lvni_launch_variables_free(&c.environment);
    lvni_core_free(c.words);
    return s;
}

lvn_status lvni_cli_slurm_plan(const lvni_cli_slurm_training *t, lvni_slurm_findings *f)
{
    if (!note_open(t, f)) {
        return LVN_OK;
    }
    if (t->chdir == NULL) {
        return plan_here(t, f);
    }
    const int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (here < 0 || chdir(t->chdir) != 0) {
        lvni_slurm_note(f, "plan", "the training is not planned: chdir %.200s: %s", t->chdir,
                        strerror(errno));
        if (here >= 0) {
            close(here);
        }
        return LVN_OK;
    }
    lvn_status s = plan_here(t, f);
    if (fchdir(here) != 0 && s == LVN_OK) {
        s = lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__, "back from chdir %.200s: %s", t->chdir,
                          strerror(errno));
    }
    close(here);
    return s;
}
