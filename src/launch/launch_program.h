/* The program behind the options of `levin launch`: where it begins, and whether Python runs it. */
#ifndef LEVIN_LAUNCH_LAUNCH_PROGRAM_H
#define LEVIN_LAUNCH_LAUNCH_PROGRAM_H

#include "launch/launch_options.h"

typedef struct lvni_launch_program_place {
    int n_options; /* words in front of it */
    int first;     /* its first word; that many words when there is none */
    bool bare;     /* it stands there without `--`, as torchrun takes scripts */
} lvni_launch_program_place;

/* config: of the options' tables. */
void lvni_launch_program_find(const lvni_core_config *config, int n, const char *const *words,
                              lvni_launch_program_place *out);
/* "-n" is "--nproc"; words that are no short form as they are. */
const char *lvni_launch_short_form(const char *word);
/* Puts o->program together, after the options were read: PROGRAM ARGS behind `--` and with
 * no_python, else `python3 -u SCRIPT ARGS`, or with module `python3 -u -m MODULE ARGS`.
 * LVN_ERR_USAGE with the line that works where the word is no script. */
lvn_status lvni_launch_program_take(lvni_launch_options *o, const lvni_launch_program_place *place,
                                    int n, const char *const *words);
/* Which Python: PYTHON_EXEC, else python3 of PATH, else python. */
lvn_status lvni_launch_program_find_python(lvni_launch_options *o, char *const *environment);

#endif
