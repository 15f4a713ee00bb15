/* Variables of NCCL, whose misspelled names nobody else tells of: NCCL ignores what it does not
 * know. */
#ifndef LEVIN_LAUNCH_NCCL_NAMES_H
#define LEVIN_LAUNCH_NCCL_NAMES_H

#include "core/notice.h"

/* Does name begin with NCCL_ without being the name of one? *near: the known name nearest to it,
 * without "NCCL_"; NULL: none is near. */
bool lvni_launch_nccl_is_unknown(const char *name, const char **near);
/* W214 for each variable of env that is unknown. */
lvn_status lvni_launch_nccl_warn(char *const *env, lvni_core_notices *notices);

#endif
