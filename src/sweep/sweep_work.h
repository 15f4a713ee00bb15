/* Runs the trials of a plan: claims, starts, beats, results. `levin sweep run`, `worker` and
 * `trial` are this with other options. */
#ifndef LEVIN_SWEEP_SWEEP_WORK_H
#define LEVIN_SWEEP_SWEEP_WORK_H

#include "sweep/sweep_records.h"

typedef struct lvni_sweep_work_options {
    const char *levin; /* the path of this executable, which trainings are started with */
    char **gpu_sets;   /* "0", "1,3": a slot each, ended by NULL; NULL: slots without a choice */
    int parallel;      /* trials at once */
    int retries;       /* more attempts of a trial that failed */
    bool fail_fast;    /* the first failure stops the sweep */
    int64_t only;      /* >= 0: this trial alone (`levin sweep trial`) */
    bool single;       /* LEVIN_ENV=single for trials: workers of one srun step form none */
} lvni_sweep_work_options;

/* Until no trial is left that could be claimed, or a signal or `stop` ends it. *exit_code: 0 where
 * all that ran here ended well, 1 where one failed, else that of the signal. Prints a line to
 * standard error for each trial that begins or ends. */
lvn_status lvni_sweep_work(const lvni_sweep_plan *plan, const lvni_sweep_work_options *options,
                           int *exit_code);

#endif
