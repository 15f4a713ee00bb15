/* The plan of a hyperparameter sweep: which trials there are, and with which parameters.
 *
 * DIR/sweep.json       written last, by rename: a folder without it has no plan yet
 * DIR/trials/000017/   one folder for each trial; at least six digits
 *     trial.json       its parameters, written once
 *     claim.1, beat.1, left.1, result: sweep_records.h
 *     run/             `out` of a levin training, and {trial_dir} of other programs
 *     log.txt          what it printed, all attempts one after the other
 *
 * A plan is never changed except its number of trials, which only grows (`plan --extend`, and
 * strategy exec:CMD, whose trials are made while it runs). A trial's command is made of the plan's
 * template when it is read, so the folder of a sweep may be moved.
 *
 * sweep.json:  {"format": "levin sweep 1", "name": "lr", "strategy": "grid", "seed": 0,
 *               "trials": 9, "most": 0, "parameters": ["optim.lr", "layers"],
 *               "command": ["levin", "train", "classify", "data=photos"], "style": "keys",
 *               "training": true, "metric": "val/loss", "mode": "min", "dead_after": 300,
 *               "space": [["list", "optim.lr=0.1,0.01"], ...]}
 *               and of strategy asha "asha": {"eta": 3, "min": 1, "max": 27}
 * trial.json:  {"trial": 17, "parameters": {"optim.lr": "0.01", "layers": "32"}}: values are the
 *               texts that stand in the command */
#ifndef LEVIN_SWEEP_SWEEP_PLAN_H
#define LEVIN_SWEEP_SWEEP_PLAN_H

#include <levin/status.h>

#include <stdbool.h>
#include <stdint.h>

/* How parameters that the command does not name are appended to it. */
typedef enum lvni_sweep_style {
    LVNI_SWEEP_KEYS,   /* name=value */
    LVNI_SWEEP_DASHES, /* --name value */
    LVNI_SWEEP_EQUALS  /* --name=value */
} lvni_sweep_style;

enum { LVNI_SWEEP_MOST_TRIALS = 1000000, LVNI_SWEEP_MOST_PARAMETERS = 1000 };
enum { LVNI_SWEEP_MOST_EPOCHS = 1000000000 };

/* Of strategy "asha" (sweep_asha.h); max 0 in other plans. */
typedef struct lvni_sweep_asha {
    int64_t eta, min, max; /* rungs at epochs min, min * eta, ..., below max, where trials end */
} lvni_sweep_asha;

/* A zeroed one is empty. Owns its texts; lists end with NULL. */
typedef struct lvni_sweep_plan {
    char *dir;      /* as it was given, no slash at its end */
    char *name;     /* of the sweep; the folder's own unless it was given */
    char *strategy; /* "grid", "random", "list", "exec:CMD", "asha" */
    lvni_sweep_asha asha;
    uint64_t seed;
    int64_t n_trials;  /* that are planned; with exec: those that there were when it was read */
    int64_t most;      /* with exec: how many there may be; 0: until CMD stops */
    char **parameters; /* names of what differs between trials, in their order */
    char **command;    /* template: "levin", "train", "classify", ..., or a program */
    lvni_sweep_style style;
    bool training; /* the command is a levin training, which can resume */
    char *metric;  /* "val/loss"; its best value is a trial's result */
    bool maximize;
    int64_t dead_after_s; /* sweep.dead_after, 300 */
    char **space;         /* the declarations: kind, text, kind, text, ... ("list", "lr=1,2") */
} lvni_sweep_plan;

/* DIR/sweep.json. The error names the file, and what to do where there is none. */
lvn_status lvni_sweep_plan_read(const char *dir, lvni_sweep_plan *out);
void lvni_sweep_plan_free(lvni_sweep_plan *plan);
/* It stops trials at rungs. */
bool lvni_sweep_plan_prunes(const lvni_sweep_plan *plan);
/* Its trials are made while it runs, by another program. */
bool lvni_sweep_plan_asks(const lvni_sweep_plan *plan);

typedef struct lvni_sweep_trial {
    int64_t index; /* from 0 on */
    char *dir;     /* DIR/trials/000017 */
    char **names;  /* of its parameters; conditions can leave some out */
    char **values; /* as they stand in the command */
    char **argv;   /* the command, all replaced; with `training` "out=" its run folder, too. Folders
                      in it are absolute */
} lvni_sweep_trial;

lvn_status lvni_sweep_trial_read(const lvni_sweep_plan *plan, int64_t index, lvni_sweep_trial *out);
void lvni_sweep_trial_free(lvni_sweep_trial *trial);
/* argv of a trial whose dir, names and values are there already. */
lvn_status lvni_sweep_trial_command(const lvni_sweep_plan *plan, lvni_sweep_trial *trial);

/* Parameters of trials that are not written yet: values[i * n_parameters + k] is the text of
 * plan.parameters[k] in the i-th, NULL where a condition leaves it out. */
typedef struct lvni_sweep_points {
    int64_t n, n_parameters;
    char **values;
} lvni_sweep_points;
void lvni_sweep_points_free(lvni_sweep_points *points);

/* Writes the points as trials plan.n_trials, plan.n_trials + 1, ..., then sweep.json with the new
 * number, which plan gets, too. Killed before its end it leaves what was there, and trials without
 * a plan, which the next call replaces. */
lvn_status lvni_sweep_plan_write(lvni_sweep_plan *plan, const lvni_sweep_points *points);
/* Of a plan that asks: plan->n_trials becomes the number of those that there are. */
lvn_status lvni_sweep_plan_count(lvni_sweep_plan *plan);
/* One more trial of such a plan. *taken: another process made one of this number first; there is
 * one more in either case, and plan->n_trials counts it. */
lvn_status lvni_sweep_trial_add(lvni_sweep_plan *plan, char *const *names, char *const *values,
                                bool *taken);

/* Lists of texts that end with NULL. */
int64_t lvni_sweep_texts_count(char *const *texts);
void lvni_sweep_texts_free(char **texts);
/* Adds a copy of n bytes at the end; *texts may be NULL. */
lvn_status lvni_sweep_texts_add(char ***texts, const char *text, size_t n);

#endif
