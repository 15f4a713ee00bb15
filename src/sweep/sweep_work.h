/* Runs the trials of a plan: claims, starts, beats, results. `levin sweep run`, `worker` and
 * `trial` are this with other options.
 *
 * One process, without threads: it claims a trial for each free slot, and waits for what comes
 * first: a program's end, a signal, the next beat. SIGINT, SIGTERM, SIGHUP and SIGQUIT, and the
 * file `stop`, end it: its trials get the signal, and are left as interrupted. A second signal
 * kills them. SIGUSR1 does the same, as for a training: those get it, other programs SIGTERM; in a
 * Slurm job of trainings the job is queued again when all have ended. SIGUSR2 goes to trainings. */
#ifndef LEVIN_SWEEP_SWEEP_WORK_H
#define LEVIN_SWEEP_SWEEP_WORK_H

#include "sweep/sweep_records.h"

/* A trial that runs in this process, for tests: its exit code. */
typedef int lvni_sweep_function(const lvni_sweep_trial *trial, void *user);

typedef struct lvni_sweep_work_options {
    const char *levin; /* the path of this executable, which trainings are started with */
    char **gpu_sets;   /* "0", "1,3": a slot each, ended by NULL; NULL: slots without a choice */
    int parallel;      /* trials at once */
    int retries;       /* more attempts of a trial that failed */
    bool fail_fast;    /* the first failure stops the sweep */
    int64_t only;      /* >= 0: this trial alone (`levin sweep trial`); -1: all */
    int64_t first;     /* where looking for trials begins: workers begin at different places */
    /* With `only`: the command in place of the plan's, such as srun and its options; its word
     * `{command}` is the plan's. NULL: the plan's. Not freed. */
    char *const *words;
    bool single; /* LEVIN_ENV=single for trials: workers of one srun step are not a group */
    bool quiet;  /* prints errors alone */
    /* Trials are this, one after the other, in place of the plan's command; NULL: they are not. */
    lvni_sweep_function *function;
    void *user;
    lvni_sweep_ask *ask; /* NULL: lvni_sweep_ask_host */
    /* Called after each claim of this worker, with the seconds that it took; NULL: not. */
    void (*claimed)(double seconds, void *user);
} lvni_sweep_work_options;

/* Until no trial is left that could be claimed, also none that another worker has, and may have to
 * leave; or a signal or `stop` ends it. *exit_code: 0 where all that ran here ended well, 1 where
 * one failed, else that of the signal. Prints a line to standard error for each trial that begins
 * or ends. */
lvn_status lvni_sweep_work(lvni_sweep_plan *plan, const lvni_sweep_work_options *options,
                           int *exit_code);

#endif
