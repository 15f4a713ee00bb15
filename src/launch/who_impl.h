/* Between the files that find out who a rank is. */
#ifndef LEVIN_LAUNCH_WHO_IMPL_H
#define LEVIN_LAUNCH_WHO_IMPL_H

#include "launch/env_vars.h"
#include "launch/who.h"

/* What all of them pass along. */
typedef struct lvni_who_ask {
    char *const *env;
    const lvni_who_options *options;
    lvni_notices *notices;
} lvni_who_ask;

/* who_sources.c: whose variables are these, and what do they say. LVNI_SOURCE_COUNT from `match`:
 * none of the launchers. */
lvni_source lvni_who_match(char *const *env, lvni_source last);
/* The variables that the source needs and that are not set: a line each in the block. How many. */
int lvni_who_missing(char *const *env, lvni_source source, lvni_notices *notices);
lvn_status lvni_who_read_launcher(const lvni_who_ask *ask, lvni_who *who);

/* who_slurm.c */
lvn_status lvni_who_read_job(const lvni_who_ask *ask, lvni_slurm_job *job);
lvn_status lvni_who_read_step(const lvni_who_ask *ask, lvni_who *who);
/* E101, for the shell of a batch job. */
lvn_status lvni_who_no_srun(const lvni_who_ask *ask, const lvni_slurm_job *job);
/* E107: torchrun's variables, set by nobody known, say otherwise than the step. */
lvn_status lvni_who_check_stale(const lvni_who_ask *ask, const lvni_who *who);

/* who_master.c: address, ports and way of meeting. */
lvn_status lvni_who_find_master(const lvni_who_ask *ask, lvni_who *who);

/* who.c: E102 with all numbers. */
lvn_status lvni_who_inconsistent(const lvni_who *who, lvni_notices *notices, const char *fmt, ...)
    LVN_PRINTF(3, 4);

#endif
