/* A job: its options and command, the numbers that follow from them, and the rules about those
 * (V02, V04, V05, V08, V12, V14 to V16, V21, V22). slurm_script.h writes it down. */
#ifndef LEVIN_SLURM_SLURM_JOB_H
#define LEVIN_SLURM_SLURM_JOB_H

#include "slurm/slurm_directives.h"
#include "slurm/slurm_grammar.h"
#include "slurm/slurm_options.h"

typedef struct lvni_slurm_job {
    /* the caller's, borrowed */
    const lvni_slurm_options *options;
    int n_words;
    const char *const *words;  /* the program and its arguments */
    bool trains;               /* it is a training of levin's: requeue and signal are on */
    bool has_run_dir;          /* that names its run directory */
    bool levin_is_missing;     /* PATH has no levin */
    const char *run_dir;       /* of a training, with raw with the $NAME in it; NULL: not known */
    const char *fixed_run_dir; /* of a training, the same in all elements of an array; NULL: not */
    bool makes_folders;        /* those of the output are made before sbatch runs */
    const char *front; /* of the shell, in front of srun: what starts the step; NULL: the script */
    const char *made_by; /* the command that made the script; NULL: levin slurm script */
    const struct lvni_slurm_cluster *cluster; /* NULL: it is not known */

    /* what lvni_slurm_job_make finds */
    int64_t nodes, devices; /* of a node; 0: not given */
    int64_t per_node;       /* tasks; 0: not given */
    int64_t cpus, workers;  /* of a task; 0 and -1: not given */
    bool requeue, has_signal;
    lvni_slurm_signal signal;
    lvni_slurm_directives directives;
} lvni_slurm_job;

/* Mistakes are findings. */
lvn_status lvni_slurm_job_make(lvni_slurm_job *job, lvni_slurm_findings *f);
void lvni_slurm_job_free(lvni_slurm_job *job); /* what make has found */

/* Is a process of one node the task, whatever its devices? */
bool lvni_slurm_job_node_is_task(const lvni_slurm_job *job);

#endif
