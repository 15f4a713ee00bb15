/* How the ranks of a run, started by whomever, prove to each other that they belong together. For
 * rank_process.c. */
#ifndef LEVIN_RECIPES_RANK_AUTH_H
#define LEVIN_RECIPES_RANK_AUTH_H

#include "control/control.h"
#include "launch/rank_info.h"

typedef struct lvni_recipes_rank_auth {
    lvni_control_auth how;        /* on the store's host, which chooses for all */
    const char *run_key, *secret; /* of the environment; borrowed */
    const char *key_dir;          /* borrowed */
    const char *munge_socket;     /* NULL: MUNGE's own; inside of slurm */
    bool closed;                  /* no rank without a proof */
    lvni_launch_slurm_auth slurm;
} lvni_recipes_rank_auth;

/* In this order: the launcher's key and LEVIN_TOKEN; in a Slurm job MUNGE where it works on the
 * store's host, else a file in `dir`; a file also where the ranks meet by one. What is left is open
 * to everybody, and lvni_recipes_rank_auth_warn says so. *out is to be freed in every case. */
lvn_status lvni_recipes_rank_auth_choose(const lvni_launch_rank_info *info, const char *dir,
                                         lvni_recipes_rank_auth *out);
/* Once the store listens. */
void lvni_recipes_rank_auth_warn(const lvni_recipes_rank_auth *auth, int port);
void lvni_recipes_rank_auth_free(lvni_recipes_rank_auth *auth);

#endif
