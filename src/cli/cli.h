/* The commands, in one table: what is run, and what `levin help` prints. */
#ifndef LEVIN_CLI_CLI_H
#define LEVIN_CLI_CLI_H

#include "core/config.h"

#include <stdbool.h>

enum { LVNI_COMMAND_USES = 20 };

typedef struct lvni_cli_command {
    const char *name;
    /* the arguments after the name; returns an exit code */
    int (*run)(int n, const char *const *args);
    /* how many of its arguments are its own, and not of a program that it starts; NULL: all */
    int (*own_arguments)(int n, const char *const *args);
    /* uses the cpu backend: the environment must be clean */
    bool computes;
    /* takes the signals that ask for a checkpoint, from the first moment on */
    bool trains;
    bool alone; /* one rank's work: of several, rank 0 does it */
    struct {
        const char *usage, *help; /* "levin ops [NAME]", and what that does */
    } use[LVNI_COMMAND_USES];     /* NULL: no more */
    const char *more;             /* more text; NULL: none */
    const char
        *words; /* its first argument is one of these, between blanks; NULL: see completion.c */
    /* its first argument is a recipe, whose keys it takes; `use` is about the first recipe */
    bool by_recipe;
    /* uses a trained model: its first argument may be a recipe, else the model names it */
    bool uses;
    /* of the others its keys; NULL: none */
    lvni_core_option_list keys;
} lvni_cli_command;

extern const lvni_cli_command lvni_cli_commands[];
extern const int lvni_cli_n_commands;

/* NULL: unknown. */
const lvni_cli_command *lvni_cli_command_find(const char *name);

/* A topic of the help: the keys of a command, or of what it does with a recipe. */
typedef struct lvni_cli_topic {
    char name[64]; /* "train.classify", "predict" (of the first recipe), "launch" */
    const lvni_cli_command *command;
    const struct lvni_run_recipe *recipe; /* NULL: none */
    lvni_core_option_list keys;
} lvni_cli_topic;
/* topics.c: topic `i`; false: there are no more. */
bool lvni_cli_topic_at(int i, lvni_cli_topic *out);
/* "train.classify" or "classify". */
bool lvni_cli_topic_find(const char *name, lvni_cli_topic *out);
/* Of a command whose recipe has that name (NULL or unknown: the first). False: it takes no keys, or
 * the recipe's shared object cannot be loaded, which the command reports. */
bool lvni_cli_topic_of(const lvni_cli_command *command, const char *recipe, lvni_cli_topic *out);
/* The topic's keys with the defaults of its recipe, the caller's. */
lvn_status lvni_cli_topic_defaults(const lvni_cli_topic *topic, lvni_core_config **out);

/* Of the n arguments of `levin`: a path without its key, or resume=PATH, is an error that shows the
 * line that works. Returns the exit code; LVNI_EXIT_OK: go on. */
int lvni_cli_bare_arguments(const lvni_cli_command *command, int n, const char *const *args);
/* The nearest name; NULL when none is near. */
const char *lvni_cli_command_near(const char *name);
/* Its uses, one after the other: "levin ops [NAME]", and what that does. */
void lvni_cli_command_each_use(const lvni_cli_command *command,
                               void (*use)(void *user, const char *usage, const char *help),
                               void *user);
/* Usage, and all keys. */
void lvni_cli_command_print_help(const lvni_cli_command *command);
/* Of a command whose first argument is that: a recipe in a shared object has keys of its own. */
void lvni_cli_command_print_help_of(const lvni_cli_command *command, const char *first);
/* "usage: levin ops [NAME]" on standard error; LVNI_EXIT_USAGE. */
int lvni_cli_command_misused(const char *name);

int lvni_cli_cmd_train(int n, const char *const *args);
int lvni_cli_cmd_plan(int n, const char *const *args);
int lvni_cli_cmd_tune(int n, const char *const *args);
/* The recipe that args[0] names, of `command`. NULL: an error was printed; *code: what to exit
 * with. */
const struct lvni_run_recipe *lvni_cli_find_recipe(int n, const char *const *args,
                                                   const char *command, int *code);
/* lvni_run_report_status of a command ("tune lr") of `recipe` with these arguments. A file of
 * another program's in config=, which another recipe takes, or which this command does not: that,
 * in place of a mistake for each of its keys. */
int lvni_cli_report(lvn_status s, const struct lvni_run_recipe *recipe, const char *command, int n,
                    const char *const *args);
int lvni_cli_cmd_predict(int n, const char *const *args);
int lvni_cli_cmd_eval(int n, const char *const *args);
int lvni_cli_cmd_export(int n, const char *const *args);
int lvni_cli_cmd_ops(int n, const char *const *args);
int lvni_cli_cmd_ops_check(int n, const char *const *args); /* what follows `ops check` */
/* Reports it, with the nearest name; an exit code. */
int lvni_cli_op_unknown(const char *name);
int lvni_cli_cmd_ckpt(int n, const char *const *args);
int lvni_cli_cmd_report(int n, const char *const *args);
extern const lvni_core_option_table *const lvni_cli_report_keys[];
int lvni_cli_cmd_data(int n, const char *const *args);
int lvni_cli_cmd_slurm(int n, const char *const *args);
/* cmd_slurm_script.c: what follows `slurm script`, `slurm profiles`, `slurm check`. */
int lvni_cli_slurm_script(int n, const char *const *args);
int lvni_cli_slurm_profiles(int n, const char *const *args);
int lvni_cli_slurm_check(int n, const char *const *args);
int lvni_cli_slurm_submit(int n, const char *const *args);
/* cmd_slurm_jobs.c, slurm_logs.c, slurm_why.c, slurm_shell.c: of a job that was submitted. */
int lvni_cli_slurm_status(int n, const char *const *args);
int lvni_cli_slurm_logs(int n, const char *const *args);
int lvni_cli_slurm_why(int n, const char *const *args);
int lvni_cli_slurm_cancel(int n, const char *const *args);
int lvni_cli_slurm_requeue(int n, const char *const *args);
int lvni_cli_slurm_signal(int n, const char *const *args);
int lvni_cli_slurm_nodes(int n, const char *const *args);
int lvni_cli_slurm_shell(int n, const char *const *args);
int lvni_cli_slurm_finish(int n, const char *const *args); /* cmd_slurm_finish.c */
int lvni_cli_cmd_doctor(int n, const char *const *args);
int lvni_cli_cmd_cc(int n, const char *const *args);
int lvni_cli_cmd_completion(int n, const char *const *args);
int lvni_cli_cmd_help(int n, const char *const *args);

#endif
