/* This process as one rank of several: it finds the others through the store, and shares memory
 * with them. For this folder: ranks.c. */
#ifndef LEVIN_RECIPES_RANK_PROCESS_H
#define LEVIN_RECIPES_RANK_PROCESS_H

#include "launch/rank_info.h"
#include "recipes/ranks.h"

/* Rendezvous with the other ranks; rank->device is given, the rest of *rank is filled. A store is
 * opened where this process is its host. LVN_ERR_TIMEOUT when ranks are missing, LVN_ERR_USAGE or
 * LVN_ERR_MISMATCH when they do not fit together (numbered as in docs/launch.md),
 * LVN_ERR_UNSUPPORTED on several nodes. */
lvn_status lvni_recipes_rank_process_join(const lvni_core_config *config,
                                          const lvni_launch_rank_info *info,
                                          lvni_recipes_rank *rank, lvni_recipes_rank_process **out);
/* The run is over for this rank. failed: with the thread's last error, which the others get;
 * where another rank failed first, the error becomes that rank's message (LVN_ERR_PEER). kept
 * (lvni_recipes_ranks) is the end of its message. NULL is fine. */
lvn_status lvni_recipes_rank_process_leave(lvni_recipes_rank_process *process, lvn_status failed,
                                           const char *kept);

#endif
