/* Environments as arrays of "NAME=value", ended by NULL: reading one (what main got, or what a test
 * made up), building one for a process, and checking the names of NCCL's variables. This folder
 * never calls getenv. */
#ifndef LEVIN_LAUNCH_ENV_VARS_H
#define LEVIN_LAUNCH_ENV_VARS_H

#include "core/error.h"

#include <levin/status.h>

const char *lvni_launch_env_raw(char *const *env, const char *name); /* NULL when unset */
const char *lvni_launch_env_get(char *const *env, const char *name); /* NULL when unset or empty */

/* The digits of text as a number: no sign, no blanks, at most `max`. false: it is not one. */
bool lvni_launch_env_digits(const char *text, uint64_t max, uint64_t *out);
/* Reads the variable as a number of 0 to 2^31-1. *out is untouched when it is unset; E100 when it
 * cannot be read. */
lvn_status lvni_launch_env_int(char *const *env, const char *name, lvni_core_notices *notices,
                               int *out);
lvn_status lvni_launch_env_number(char *const *env, const char *name, uint64_t max,
                                  lvni_core_notices *notices, uint64_t *out);
/* Seconds, more than 0, without a unit. *out is untouched when it is unset; E100 when it cannot be
 * read. */
lvn_status lvni_launch_env_seconds(char *const *env, const char *name, lvni_core_notices *notices,
                                   double *out);
/* A switch: 1 or 0, anything else is E100, whose last line is "  fix: " and `fix`. *out is
 * untouched when it is unset. */
lvn_status lvni_launch_env_flag(char *const *env, const char *name, const char *fix,
                                lvni_core_notices *notices, bool *out);
/* Are warnings errors? `option`: the command's own strict, -1: not given; then LEVIN_STRICT
 * decides. */
lvn_status lvni_launch_env_strict(char *const *env, int option, lvni_core_notices *notices,
                                  bool *out);
/* The first of the names (ended by NULL) that is set and not empty; NULL: none is. */
const char *lvni_launch_env_first(char *const *env, const char *const *names);

/* "  found: NAME=value" or "  found: NAME is not set", for the block of an error. */
void lvni_launch_env_found(char *const *env, const char *name, lvni_core_notices *notices);

/* ---- building an environment ---- */

typedef struct lvni_launch_variables {
    char **list; /* n strings and NULL; owned */
    size_t n, room;
    bool failed; /* memory ran out on the way: lvni_launch_variables_status is LVN_ERR_MEMORY */
} lvni_launch_variables;

void lvni_launch_variables_copy(lvni_launch_variables *v, char *const *environment);
void lvni_launch_variables_set(lvni_launch_variables *v, const char *name, const char *value);
void lvni_launch_variables_set_number(lvni_launch_variables *v, const char *name, int64_t value);
void lvni_launch_variables_unset(lvni_launch_variables *v, const char *name);
void lvni_launch_variables_unset_prefix(lvni_launch_variables *v, const char *prefix);
/* NULL: unset */
const char *lvni_launch_variables_get(const lvni_launch_variables *v, const char *name);
lvn_status lvni_launch_variables_status(const lvni_launch_variables *v);
void lvni_launch_variables_free(lvni_launch_variables *v);

/* ---- names of NCCL ---- */

/* Does name begin with NCCL_ without being a known variable of it? NCCL ignores misspelled names
 * silently. *near: the known name nearest to it, without "NCCL_"; NULL: none is near. */
bool lvni_launch_nccl_is_unknown(const char *name, const char **near);
/* W214 for each variable of env that is unknown. */
lvn_status lvni_launch_nccl_warn(char *const *env, lvni_core_notices *notices);

#endif
