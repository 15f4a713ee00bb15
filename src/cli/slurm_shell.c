/* levin slurm shell: an interactive step in a job that runs (srun --overlap --pty), or in a job of
 * its own, with the options of a job script. Becomes srun or salloc. */
#include "cli/cli.h"
#include "cli/slurm_found.h"
#include "cli/slurm_submit.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "launch/launch_options.h"
#include "run/error_record.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What stands behind `--`, else a login shell. */
typedef struct shell {
    const char **argv; /* of Slurm's command; owned, as `made` */
    int n;
    lvni_core_str made[64]; /* arguments that were put together */
    int n_made;
    const char *const *program;
    int n_program;
    bool dry_run;
} shell;

static void add(shell *s, const char *word)
{
    s->argv[s->n++] = word;
}

LVN_PRINTF(2, 3)
static void add_made(shell *s, const char *fmt, ...)
{
    char text[4096];
    va_list args;
    va_start(args, fmt);
    lvni_core_format_args(text, sizeof text, fmt, args);
    va_end(args);
    lvni_core_str_append(&s->made[s->n_made], text);
    add(s, lvni_core_str_text(&s->made[s->n_made++]));
}

static void add_program(shell *s)
{
    const char *own = getenv("SHELL");
    for (int i = 0; i < s->n_program; i++) {
        add(s, s->program[i]);
    }
    if (s->n_program == 0) {
        add(s, own != NULL && own[0] == '/' ? own : "/bin/bash");
        add(s, "-l");
    }
    s->argv[s->n] = NULL;
}

static lvn_status become(shell *s, int *code)
{
    lvni_launch_variables v = {.n = 0};
    char *path = NULL;
    lvn_status status = LVN_OK;
    for (int i = 0; i < s->n_made; i++) {
        LVN_TRY(lvni_core_str_status(&s->made[i]));
    }
    if (s->dry_run) {
        for (int i = 0; i < s->n; i++) {
            lvni_core_str word = {0};
            lvni_core_shell_quote(&word, s->argv[i]);
            lvni_core_print(stdout, "%s%s", i > 0 ? " " : "", lvni_core_str_text(&word));
            lvni_core_str_free(&word);
        }
        putchar('\n');
        return LVN_OK;
    }
    if (lvni_launch_program_search(s->argv[0], getenv("PATH"), &path, code) != LVN_OK) {
        lvn_clear_error();
        lvni_core_print(stderr, "error: %s not found: is this a machine of the cluster?\n",
                        s->argv[0]);
        *code = LVNI_EXIT_RESOURCE;
        return LVN_OK;
    }
    LVNI_TRY_DONE(status, lvni_cli_slurm_outside_of_jobs(&v));
    fflush(stdout);
    execve(path, (char *const *)(uintptr_t)s->argv, v.list);
    status = lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__, "%s cannot be executed: %s", path,
                           strerror(errno));
done:
    lvni_launch_variables_free(&v);
    lvni_core_free(path);
    return status;
}

/* ---- in a job that runs ---- */

static lvn_status in_job(shell *s, const char *job, const char *log_dir, const char *node,
                         int *code)
{
    lvni_cli_slurm_found found;
    lvni_cli_slurm_line line;
    char word[LVNI_SLURM_STATE_TEXT] = "";
    size_t at = 0;
    const char *raw = NULL;
    int running = 0;
    lvn_status status = lvni_cli_slurm_find(
        &(lvni_cli_slurm_request){.log_dir = log_dir, .n = 1, .words = &job}, &found, code);
    if (status != LVN_OK || *code != LVNI_EXIT_OK) {
        return status;
    }
    const lvni_cli_slurm_meant *m = found.list;
    while (lvni_cli_slurm_next(&found, m, &at, &line)) {
        if (lvni_slurm_state_read(lvni_cli_slurm_field(&line, LVNI_SLURM_JOB_STATE), word) ==
            LVNI_SLURM_RUNS) {
            raw = lvni_cli_slurm_field(&line, LVNI_SLURM_JOB_RAW);
            running++;
        }
    }
    if (running == 1) {
        add(s, "srun");
        add_made(s, "--jobid=%s", raw); /* srun does not know 123_4 */
        add(s, "--overlap");
        add(s, "--nodes=1");
        add(s, "--ntasks=1");
        add(s, "--pty");
        if (node != NULL) {
            add_made(s, "--nodelist=%s", node);
        }
        add_program(s);
        status = become(s, code);
        goto done;
    }
    *code = LVNI_EXIT_RESOURCE;
    if (running > 1) {
        lvni_core_print(stderr,
                        "error: %d elements of job %s run: name one, as %s_0 (levin slurm status "
                        "%s lists them)\n",
                        running, m->id, m->id, m->id);
    } else if (word[0] != '\0') {
        lvni_core_print(stderr, "error: job %s does not run: its state is `%s`\n", m->id, word);
    } else {
        lvni_cli_slurm_unknown(&found, m);
        *code = LVNI_EXIT_FAILURE;
    }
done:
    lvni_cli_slurm_found_free(&found);
    return status;
}

/* ---- in a job of its own ---- */

/* Of a batch script, and not of a shell. */
static bool is_of_batch(const char *name)
{
    static const char *const all[] = {"output",    "error",           "array",
                                      "signal",    "requeue",         "no-requeue",
                                      "open-mode", "ntasks-per-node", "job-name"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(name, all[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void add_directives(shell *s, const lvni_slurm_job *job)
{
    for (size_t i = 0; i < job->directives.n && s->n_made + 4 < 64; i++) {
        const lvni_slurm_directive *one = &job->directives.list[i];
        if (one->optional || is_of_batch(one->name)) {
            continue;
        }
        if (one->value != NULL) {
            add_made(s, "--%s=%s", one->name, one->value);
        } else {
            add_made(s, "--%s", one->name);
        }
    }
}

/* On one node the shell is a step there, whose node is one task; of several salloc leaves it where
 * the cluster wants shells. */
static lvn_status in_own_job(shell *s, int n, const char *const *args, int *code)
{
    static const char *const words[] = {"sh"};
    lvni_slurm_options o;
    lvni_slurm_findings f = {.errors = 0};
    lvni_slurm_job job = {.options = &o, .n_words = 1, .words = words, .makes_folders = true};
    const char **all = lvni_core_calloc(LVNI_TAG_CORE, (size_t)n + 2, sizeof *all);
    lvn_status status;
    if (all == NULL) {
        return LVN_ERR_MEMORY;
    }
    all[0] = "--mode=launcher";
    for (int i = 0; i < n; i++) {
        all[i + 1] = args[i];
    }
    LVNI_TRY_DONE(status, lvni_slurm_options_load(n + 1, all, environ, &f, &o));
    status = lvni_slurm_job_make(&job, &f);
    fputs(lvni_core_str_text(&f.text), stderr);
    if (status == LVN_OK && f.errors > 0) {
        *code = LVNI_EXIT_USAGE;
    } else if (status == LVN_OK) {
        const bool one = job.nodes <= 1;
        add(s, one ? "srun" : "salloc");
        add(s, "--job-name=interactive"); /* by which levin knows such a step */
        if (one) {
            add(s, "--ntasks=1");
            add(s, "--pty");
        }
        add_directives(s, &job);
        if (one || s->n_program > 0) {
            add_program(s);
        } else {
            s->argv[s->n] = NULL;
        }
        status = become(s, code);
    }
    lvni_slurm_job_free(&job);
    lvni_slurm_options_free(&o);
done:
    lvni_slurm_findings_free(&f);
    lvni_core_free(all);
    return status;
}

static lvn_status run(shell *s, int n, const char *const *args, int *code)
{
    const char *log_dir = LVNI_CLI_LOG_DIR, *node = NULL, *job = NULL;
    if (n == 0 || args[0][0] == '-' || strchr(args[0], '=') != NULL) {
        return in_own_job(s, n, args, code);
    }
    for (int i = 0; i < n; i++) {
        const char *v;
        if ((v = lvni_cli_slurm_value(n, args, &i, "node")) != NULL) {
            node = v;
        } else if ((v = lvni_cli_slurm_value(n, args, &i, "log-dir")) != NULL) {
            log_dir = v;
        } else if (args[i][0] != '-' && job == NULL) {
            job = args[i];
        } else {
            lvni_core_print(stderr,
                            "error: levin slurm shell: `%s`: in a job there is --node HOST; a "
                            "program stands behind `--`\n",
                            args[i]);
            *code = LVNI_EXIT_USAGE;
            return LVN_OK;
        }
    }
    return in_job(s, job, log_dir, node, code);
}

int lvni_cli_slurm_shell(int n, const char *const *args)
{
    shell s = {.n = 0};
    int code = LVNI_EXIT_OK, own = 0, rest = 0;
    while (own < n && strcmp(args[own], "--") != 0) {
        own++;
    }
    s.program = own < n ? args + own + 1 : NULL;
    s.n_program = own < n ? n - own - 1 : 0;
    s.argv = lvni_core_calloc(LVNI_TAG_CORE, (size_t)n + 96, sizeof *s.argv);
    const char **words = lvni_core_calloc(LVNI_TAG_CORE, (size_t)own + 1, sizeof *words);
    lvn_status status = s.argv == NULL || words == NULL ? LVN_ERR_MEMORY : LVN_OK;
    for (int i = 0; status == LVN_OK && i < own; i++) {
        if (strcmp(args[i], "--dry-run") == 0) {
            s.dry_run = true;
        } else {
            words[rest++] = args[i];
        }
    }
    status = status == LVN_OK ? run(&s, rest, words, &code) : status;
    for (int i = 0; i < s.n_made; i++) {
        lvni_core_str_free(&s.made[i]);
    }
    lvni_core_free(s.argv);
    lvni_core_free(words);
    return status == LVN_OK ? code : lvni_run_report_status(status);
}
