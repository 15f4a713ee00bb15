/* The jobs that the arguments of `levin slurm status|logs|why|cancel|requeue|signal|shell` mean, by
 * one squeue for all of them, and what Slurm and levin know of each. For this folder only. */
#ifndef LEVIN_CLI_SLURM_FOUND_H
#define LEVIN_CLI_SLURM_FOUND_H

#include "slurm/slurm_jobs_records.h"

/* ---- running Slurm's commands ---- */

/* argv ends with NULL. Its output is added to `out`. *exit_code: its own; LVN_OK in every case but
 * where this process has no memory or no pipe. Variables of the environment that change what the
 * command asks or prints (SQUEUE_*, SCANCEL_*, ...) are not passed on. */
lvn_status lvni_cli_slurm_call(const char *const *argv, lvni_core_str *out, int *exit_code);
/* One that has not done what it was asked for: prints why, its own sentence if it has one. Returns
 * the exit code of levin, 69. */
int lvni_cli_slurm_refused(const char *command, int exit_code, const lvni_core_str *out);

/* ---- jobs ---- */

/* What an argument stands for. */
typedef struct lvni_cli_slurm_meant {
    const char *word;
    /* of several with that name the newest one that waits or runs, else the newest; "": there is
     * none */
    char id[LVNI_SLURM_ID_TEXT];
    bool by_name;
    int several;         /* jobs of that name which wait or run */
    const char *run_dir; /* the argument itself is one; NULL: not */
    bool sent;           /* it is in jobs.tsv */
    size_t sent_row;
} lvni_cli_slurm_meant;

typedef struct lvni_cli_slurm_found {
    const char *log_dir;
    lvni_slurm_table queue, history, sent; /* of squeue, sacct and jobs.tsv */
    lvni_cli_slurm_meant *list;
    size_t n;
    char user[64]; /* who asks */
} lvni_cli_slurm_found;

typedef struct lvni_cli_slurm_request {
    const char *log_dir; /* whose jobs.tsv has names and `last` */
    int n;
    const char *const *words; /* none: all jobs of the user */
    bool everyone;            /* in that case those of others, too */
    bool history;             /* what squeue has forgotten is asked of sacct, once */
} lvni_cli_slurm_request;

/* *code: LVNI_EXIT_OK, or an error was printed: squeue is not there, or refuses. A word that means
 * nothing is none; its id is "". Frees *out itself where it fails. */
lvn_status lvni_cli_slurm_find(const lvni_cli_slurm_request *request, lvni_cli_slurm_found *out,
                               int *code);
void lvni_cli_slurm_found_free(lvni_cli_slurm_found *found);

/* A line of one of the tables. */
typedef struct lvni_cli_slurm_line {
    const lvni_slurm_table *table;
    size_t row;
} lvni_cli_slurm_line;
const char *lvni_cli_slurm_field(const lvni_cli_slurm_line *line, lvni_slurm_job_field field);
/* The next line about that job at or behind *at, which begins as 0. meant: NULL: all lines. */
bool lvni_cli_slurm_next(const lvni_cli_slurm_found *found, const lvni_cli_slurm_meant *meant,
                         size_t *at, lvni_cli_slurm_line *out);
/* Prints that there is no such job, with where it was looked for. */
void lvni_cli_slurm_unknown(const lvni_cli_slurm_found *found, const lvni_cli_slurm_meant *meant);

/* ---- files of a job ---- */

enum { LVNI_CLI_LOGS = 256 };
typedef struct lvni_cli_slurm_files {
    lvni_core_str show;   /* scontrol show job; "": it does not know the job */
    lvni_core_str folder; /* where the job runs, with a slash behind; "": unknown */
    lvni_core_str script; /* the text of its script; "": not at hand */
    int n;
    char *logs[LVNI_CLI_LOGS]; /* its output, and its errors where these are in another file */
    lvni_core_str run_dir;     /* "": none is known */
} lvni_cli_slurm_files;
/* One scontrol, and only where squeue knows the job. */
lvn_status lvni_cli_slurm_files_find(const lvni_cli_slurm_found *found,
                                     const lvni_cli_slurm_meant *meant, lvni_cli_slurm_files *out);
void lvni_cli_slurm_files_free(lvni_cli_slurm_files *files);

/* The value of `--NAME VALUE` or `--NAME=VALUE` at args[*i], which is advanced; NULL: it is another
 * argument. */
const char *lvni_cli_slurm_value(int n, const char *const *args, int *i, const char *name);

#define LVNI_CLI_LOG_DIR "levin-jobs" /* log_dir's default of `levin slurm submit` */

#endif
