/* The commands, in one table: what is run, and what `levin help` prints. */
#ifndef LEVIN_CLI_CLI_H
#define LEVIN_CLI_CLI_H

#include "core/option.h"

enum { LVNI_COMMAND_USES = 3 };

typedef struct lvni_cli_command {
    const char *name;
    /* the arguments after the name; returns an exit code */
    int (*run)(int n, const char *const *args);
    /* uses the cpu backend: the environment must be clean */
    bool computes;
    /* takes the signals that ask for a checkpoint, from the first moment on */
    bool trains;
    bool alone; /* one rank's work: of several, rank 0 does it */
    struct {
        const char *usage, *help; /* "levin ops [NAME]", and what that does */
    } use[LVNI_COMMAND_USES];     /* NULL: no more */
    const char *more;             /* more text; NULL: none */
    /* its keys are those of this topic of the help; NULL: it has none */
    const char *topic;
    /* its keys; NULL: those of the topic, or none */
    const lvni_core_option_table *(*tables)(size_t *n);
} lvni_cli_command;

extern const lvni_cli_command lvni_cli_commands[];
extern const int lvni_cli_n_commands;

/* NULL: unknown. */
const lvni_cli_command *lvni_cli_command_find(const char *name);
/* The command whose keys are this topic of the help ("train.classify"); NULL: none. */
const lvni_cli_command *lvni_cli_command_of_topic(const char *topic);
/* Of the n arguments of `levin`: a path without its key, or resume=PATH, is an error that shows the
 * line that works. Returns the exit code; LVNI_EXIT_OK: go on. */
int lvni_cli_bare_arguments(const lvni_cli_command *command, int n, const char *const *args);
/* The nearest name; NULL when none is near. */
const char *lvni_cli_command_near(const char *name);
/* Usage, and all keys. */
void lvni_cli_command_print_help(const lvni_cli_command *command);
/* "usage: levin ops [NAME]" on standard error; LVNI_EXIT_USAGE. */
int lvni_cli_command_misused(const char *name);

int lvni_cli_cmd_train(int n, const char *const *args);
int lvni_cli_cmd_plan(int n, const char *const *args);
int lvni_cli_cmd_predict(int n, const char *const *args);
int lvni_cli_cmd_eval(int n, const char *const *args);
int lvni_cli_cmd_ops(int n, const char *const *args);
int lvni_cli_cmd_ops_check(int n, const char *const *args); /* what follows `ops check` */
/* Reports it, with the nearest name; an exit code. */
int lvni_cli_op_unknown(const char *name);
int lvni_cli_cmd_slurm(int n, const char *const *args);
int lvni_cli_cmd_help(int n, const char *const *args);

#endif
