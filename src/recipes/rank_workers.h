/* num_workers=: how many threads load the data of a rank, by the rules of launch/rank_resources.h.
 * For this folder: ranks.c. */
#ifndef LEVIN_RECIPES_RANK_WORKERS_H
#define LEVIN_RECIPES_RANK_WORKERS_H

#include "core/config.h"
#include "recipes/ranks.h"
#include "launch/rank_info.h"

/* local: ranks of this node, which may be more than were started: this process has them as threads,
 * or is about to start them. W202, W208, W209. */
int lvni_recipes_rank_workers(const lvni_core_config *config, const lvni_launch_rank_info *info,
                              int local, const lvni_recipes_rank *rank, lvni_core_notices *notices);

#endif
