/* `levin launch [options] -- PROGRAM [ARGS...]`: any program as several ranks, with the environment
 * that torchrun's programs expect, and one message that names the cause when a rank dies. Also the
 * way `levin train devices=N` starts its ranks. */
#ifndef LEVIN_LAUNCH_LAUNCH_H
#define LEVIN_LAUNCH_LAUNCH_H

#include "core/option.h"

/* The keys of the command. */
extern const lvni_core_option_table *const lvni_launch_keys[];

/* Called when rank 0, which writes checkpoints, was killed: puts the run directory in order in its
 * place. Which step it keeps, and the epoch in which that continues, from 0; false: none. */
typedef bool (*lvni_launch_after_kill)(const char *run_dir, int64_t *step, int64_t *epoch);

/* How many of the arguments after `levin launch` are its own: those behind are the program's. */
int lvni_launch_own_arguments(int n, const char *const *args);

/* args: those after `levin launch`. Returns the exit code of the command; all messages have been
 * printed. To be called in the main thread of a process without others. */
int lvni_launch(int n, const char *const *args, char *const *environment,
                lvni_launch_after_kill after_kill);

/* Is this process a rank that a launcher started? */
bool lvni_launch_is_rank(char *const *environment);
/* Becomes `levin launch OPTIONS -- levin ARGS`: does not return when that works. In a rank it does
 * nothing: a rank never launches. */
lvn_status lvni_launch_self(int n_options, const char *const *options, int n_args,
                            const char *const *args, char *const *environment);
/* Removes logs and error records of an earlier launch from a run directory, and their folders where
 * nothing else is in them. */
void lvni_launch_forget_files(const char *run_dir);

#endif
