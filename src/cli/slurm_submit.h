/* levin slurm submit: the script of a job into its log folder, and sbatch (cmd_slurm_script.c makes
 * the script). */
#ifndef LEVIN_CLI_SLURM_SUBMIT_H
#define LEVIN_CLI_SLURM_SUBMIT_H

#include "launch/env_vars.h"
#include "slurm/slurm_cluster.h"
#include "slurm/slurm_job.h"

typedef struct lvni_cli_slurm_submission {
    bool dry_run;       /* the script and the command on standard output, and nothing else */
    bool test_only;     /* sbatch looks at the job, and does not take it */
    bool wait;          /* until the job has ended, with its exit code */
    const char *folder; /* of jobs.tsv; NULL: log_dir */
    /* of a sweep (sweep/sweep_jobs.h), two more columns of jobs.tsv; NULL: it is none */
    const char *trials, *offset;
} lvni_cli_slurm_submission;

/* Writes LOG_DIR/scripts/NAME-TIME.sh, makes the folders of the job's output, starts sbatch without
 * a shell and without the variables of a step that this may run in, prints "job ID", of a sweep
 * "job ID: trials 0-8", and appends it to jobs.tsv. *code: what to exit with where the status is
 * LVN_OK: 69 where sbatch is not there or refuses, and then nothing is recorded. */
lvn_status lvni_cli_slurm_submit_job(const lvni_slurm_job *job, const lvni_core_str *script,
                                     const lvni_cli_slurm_submission *how, int *code);

/* Of a submission for a sweep that was killed between sbatch and its record: FOLDER/submitting has
 * what jobs.tsv was to have, and the queue which job has that script. Does nothing where there is
 * none. LVN_ERR_RESOURCE: squeue has no answer. */
lvn_status lvni_cli_slurm_recover(const char *folder);

/* Is there such a program in PATH? */
bool lvni_cli_slurm_is_in_path(const char *name);
/* Prints the findings to standard error, and forgets their text: before sbatch prints. */
void lvni_cli_slurm_print_findings(lvni_slurm_findings *f);
/* lvni_slurm_cluster_ask in this process's environment; where there is no answer, that is a note.
 */
lvn_status lvni_cli_slurm_ask_cluster(int timeout_ms, lvni_slurm_cluster *c,
                                      lvni_slurm_findings *f);
/* This process's environment for a new job: a SLURM_CPU_BIND of the step that this runs in would
 * pin the new one to a few cores. What finds the cluster stays, and SBATCH_* are the user's own. */
lvn_status lvni_cli_slurm_outside_of_jobs(lvni_launch_variables *v);

#endif
