/* Profiles: files NAME.yaml with defaults of a cluster, keys as in the section `slurm:`. Those of a
 * project lie in .levin/slurm.d of the current directory or of the nearest one above that has it,
 * those of a user in levin/slurm.d of $XDG_CONFIG_HOME, else of ~/.config. */
#ifndef LEVIN_SLURM_SLURM_PROFILES_H
#define LEVIN_SLURM_SLURM_PROFILES_H

#include "core/config.h"

/* Both files of that name where there are two; the project's wins. LVN_ERR_USAGE: there is none, or
 * one cannot be read; the message names the folders. */
lvn_status lvni_slurm_profile_load(lvni_core_config *config, const char *name,
                                   char *const *environment);
/* Lines "name  path", the project's first; where there is none a sentence with the folders. */
lvn_status lvni_slurm_profiles_print(char *const *environment, lvni_core_str *out);

#endif
