/* A command becomes `levin launch`, whose ranks are the same command. For this folder: ranks.c. */
#ifndef LEVIN_RECIPES_RANK_START_H
#define LEVIN_RECIPES_RANK_START_H

#include "launch/rank_info.h"
#include "recipes/ranks.h"

/* LVN_ERR_USAGE for max_restarts= where no launcher of levin could restart ranks: it would have no
 * effect. starts: this command starts its ranks. */
lvn_status lvni_recipes_check_restarts(const lvni_core_config *config,
                                       const lvni_launch_rank_info *info, bool starts);
/* The same command again, as the ranks of `levin launch`. dir: of the run, for its logs and error
 * records too; NULL: they stay only after a failure. made: of lvni_recipes_run_dir_claim, for
 * ranks that then refuse to begin; 0: it was not claimed. Returns when that was not possible; a
 * rank starts no others (LVN_ERR_USAGE). */
lvn_status lvni_recipes_rank_start(const lvni_core_config *config,
                                   const lvni_recipes_ranks_command *command, const char *dir,
                                   size_t made);

#endif
