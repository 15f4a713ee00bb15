/* What Slurm's configuration says about MUNGE. */
#ifndef LEVIN_LAUNCH_SLURM_CONF_H
#define LEVIN_LAUNCH_SLURM_CONF_H

#include "core/str.h"

typedef struct lvni_launch_slurm_auth {
    bool munge;           /* AuthType is auth/munge, as it is where nothing is said */
    lvni_core_str socket; /* of AuthInfo; empty: MUNGE's own */
    lvni_core_str file;   /* that says so; empty: none could be read */
} lvni_launch_slurm_auth;

/* From the file that SLURM_CONF names, else from the places where Slurm keeps it. Files that it
 * includes count. A configuration that cannot be read says nothing. lvni_launch_slurm_auth_free in
 * every case. */
lvn_status lvni_launch_slurm_auth_read(char *const *env, lvni_launch_slurm_auth *out);
void lvni_launch_slurm_auth_free(lvni_launch_slurm_auth *auth);

#endif
