/* The options of `levin sweep plan` and `train`: keys of the command line and of the section
 * `sweep:` of config=FILE; and the plan that they make. */
#ifndef LEVIN_SWEEP_SWEEP_OPTIONS_H
#define LEVIN_SWEEP_SWEEP_OPTIONS_H

#include "core/config.h"
#include "sweep/sweep_plan.h"

#define LVNI_SWEEP_PREFIX "sweep." /* of a key, where a training has one of the same name */

extern const lvni_core_option_table lvni_sweep_plan_table;

typedef struct lvni_sweep_options {
    lvni_core_config *config;
    char **space; /* declarations: kind, text, ... of the file, then of the command line, which has
                     the word where both have a name */
} lvni_sweep_options;

/* keys: with lvni_sweep_plan_table. The n arguments are options alone; `inner` are declarations of
 * a caller, kind, text, ..., as those of the command line; NULL: none. LVN_ERR_USAGE with all
 * mistakes. */
lvn_status lvni_sweep_options_load(lvni_core_option_list keys, int n, const char *const *args,
                                   char *const *inner, lvni_sweep_options *out);
void lvni_sweep_options_free(lvni_sweep_options *o);

/* What is run: of words of a command line, or those of the file's `command`. */
typedef struct lvni_sweep_command {
    char **words; /* borrowed; NULL: none were given */
    bool training;
} lvni_sweep_command;

typedef struct lvni_sweep_made {
    lvni_sweep_plan plan;     /* n_trials: those that are on disk */
    lvni_sweep_points points; /* those that are new */
    bool extends;             /* there was a plan */
    lvni_core_str notes;      /* lines "note: ..." */
} lvni_sweep_made;

/* Writes nothing. LVN_ERR_USAGE: there is a plan, and extend is not given, or another mistake. */
lvn_status lvni_sweep_make(const lvni_sweep_options *o, const lvni_sweep_command *command,
                           lvni_sweep_made *out);
void lvni_sweep_made_free(lvni_sweep_made *made);

#endif
