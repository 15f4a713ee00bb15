/* An environment as an array of "NAME=value", ended by NULL: what the program got in main, or what
 * a test made up. Nothing in this folder calls getenv. */
#ifndef LEVIN_LAUNCH_ENV_VARS_H
#define LEVIN_LAUNCH_ENV_VARS_H

#include "core/notice.h"

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
/* A switch of the user's: 1 or 0, anything else is E100, whose last line is "  fix: " and `fix`.
 *   *out is untouched when it is unset. */
lvn_status lvni_launch_env_flag(char *const *env, const char *name, const char *fix,
                                lvni_core_notices *notices, bool *out);
/* Are warnings errors? `option`: the command's own strict, -1: not given; then LEVIN_STRICT=1 says
 * so. */
lvn_status lvni_launch_env_strict(char *const *env, int option, lvni_core_notices *notices,
                                  bool *out);
/* The first of the names (ended by NULL) that is set and not empty; NULL: none is. */
const char *lvni_launch_env_first(char *const *env, const char *const *names);

/* "  found: NAME=value" or "  found: NAME is not set", for the block of an error. */
void lvni_launch_env_found(char *const *env, const char *name, lvni_core_notices *notices);

#endif
