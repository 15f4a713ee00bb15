/* The sub-commands of `levin sweep`; the arguments are those behind their word. */
#ifndef LEVIN_CLI_SWEEP_H
#define LEVIN_CLI_SWEEP_H

#include "core/str.h"
#include "run/recipe.h"
#include "sweep/sweep_options.h"
#include "sweep/sweep_space.h"

/* Keys of all of them. */
extern const lvni_core_option_table *const lvni_cli_sweep_keys[];
int lvni_cli_cmd_sweep(int n, const char *const *args);

/* cmd_sweep_plan.c */
int lvni_cli_sweep_plan(int n, const char *const *args);
int lvni_cli_sweep_train(int n, const char *const *args);

/* cmd_sweep_run.c */
extern const lvni_core_option_table lvni_cli_sweep_run_table;
int lvni_cli_sweep_run(int n, const char *const *args);
int lvni_cli_sweep_worker(int n, const char *const *args);
int lvni_cli_sweep_trial(int n, const char *const *args);

/* cmd_sweep_show.c */
extern const lvni_core_option_table lvni_cli_sweep_show_table;
int lvni_cli_sweep_status(int n, const char *const *args);
int lvni_cli_sweep_best(int n, const char *const *args);
int lvni_cli_sweep_show(int n, const char *const *args);
int lvni_cli_sweep_export(int n, const char *const *args);
int lvni_cli_sweep_stop(int n, const char *const *args);
int lvni_cli_sweep_resume(int n, const char *const *args);
/* What resume does before trials run: failed and pruned ones are pending again, and the sweep is
 * not stopped. */
lvn_status lvni_cli_sweep_prepare(const lvni_sweep_plan *plan, bool retry_failed,
                                  const int64_t *pruned, size_t n_pruned);

/* cmd_sweep_report.c */
int lvni_cli_sweep_report(int n, const char *const *args);

/* cmd_sweep_submit.c */
extern const lvni_core_option_table lvni_cli_sweep_submit_table;
extern const lvni_core_option_table *const lvni_cli_sweep_submit_keys[]; /* beside those of jobs */
int lvni_cli_sweep_submit(int n, const char *const *args);
enum { LVNI_CLI_SWEEP_TOOL_MS = 20000 }; /* until a command of Slurm is given up */
/* The user's jobs as `squeue -h -r -o %i` prints them, one call for all. */
lvn_status lvni_cli_sweep_queue(const lvni_sweep_plan *plan, lvni_core_str *out);

/* sweep_check.c: the trainings of a plan before anything is written. */
/* The recipe's place among the words of a command, where it is a training of levin's; 0: it is
 * not. */
int lvni_cli_sweep_recipe_at(int n, char *const *words);
/* The keys of each trial, then the whole plan of the first one. Prints what is wrong with which
 * trials; *code: LVNI_EXIT_OK where it is right. */
lvn_status lvni_cli_sweep_check(const lvni_sweep_made *made, int *code);

/* sweep_print.c: the trials of a plan, for people or as JSON; commands: each one's, too. */
typedef struct lvni_cli_sweep_form {
    bool json, commands;
    const char *about; /* lines about the parameters, for people */
} lvni_cli_sweep_form;
lvn_status lvni_cli_sweep_print(const lvni_sweep_made *made, const lvni_cli_sweep_form *form);
/* Trial `i` of the new ones, whose texts are copies; its number is that behind the ones on disk. */
lvn_status lvni_cli_sweep_trial_of(const lvni_sweep_made *made, int64_t i, lvni_sweep_trial *out);

#endif
