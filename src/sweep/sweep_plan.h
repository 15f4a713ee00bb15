/* The plan of a hyperparameter sweep: which trials there are, and with which parameters.
 *
 * DIR/sweep.json       written last, by rename: a folder without it has no plan yet
 * DIR/trials/000017/   one folder for each trial; at least six digits
 *     trial.json       its parameters and its command, written once
 *     claim.1, beat.1, left.1, result: sweep_records.h
 *     run/             `out` of a levin training, and {trial_dir} of other programs
 *     log.txt          what it printed, all attempts one after the other
 *
 * A plan is never changed but for its number of trials, which only grows (`plan --extend`). */
#ifndef LEVIN_SWEEP_SWEEP_PLAN_H
#define LEVIN_SWEEP_SWEEP_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "levin/levin.h"

/* A zeroed one is empty. Owns its texts; lists end with NULL. */
typedef struct lvni_sweep_plan {
    char *dir;      /* as it was given, no slash at its end */
    char *name;     /* of the sweep; the folder's own unless it was given */
    char *strategy; /* "grid", "random", "list", "exec:CMD", "asha" */
    uint64_t seed;
    int64_t n_trials;  /* that are planned; with exec: it grows while the sweep runs */
    char **parameters; /* names of what differs between trials, in their order */
    char **command;    /* template: "levin", "train", "classify", ..., or a program */
    bool training;     /* the command is a levin training, which can resume */
    char *metric;      /* "val/loss"; its best value is a trial's result */
    bool maximize;
    int64_t dead_after_s; /* sweep.dead_after, 300 */
} lvni_sweep_plan;

/* DIR/sweep.json. The error names the file, and what to do where there is none. */
lvn_status lvni_sweep_plan_read(const char *dir, lvni_sweep_plan *out);
void lvni_sweep_plan_free(lvni_sweep_plan *plan);

typedef struct lvni_sweep_trial {
    int64_t index; /* from 0 on */
    char *dir;     /* DIR/trials/000017 */
    char **names;  /* of its parameters; conditions can leave some out */
    char **values; /* as they stand in the command */
    char **argv;   /* the command, all replaced; with `training` "out=DIR/trials/000017/run" too */
} lvni_sweep_trial;

lvn_status lvni_sweep_trial_read(const lvni_sweep_plan *plan, int64_t index, lvni_sweep_trial *out);
void lvni_sweep_trial_free(lvni_sweep_trial *trial);

#endif
