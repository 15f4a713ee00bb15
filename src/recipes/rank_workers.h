/* num_workers=: how many threads load the data of a rank, by the rules of launch/workers.h. For
 * this folder: ranks.c. */
#ifndef LEVIN_RECIPES_RANK_WORKERS_H
#define LEVIN_RECIPES_RANK_WORKERS_H

#include "core/config.h"
#include "recipes/ranks.h"
#include "launch/who.h"

/* local: ranks of this node, which may be more than were started: this process has them as threads,
 * or is about to start them. W202, W208, W209. */
int lvni_rank_workers(const lvni_config *config, const lvni_who *who, int local,
                      const lvni_rank *rank, lvni_notices *notices);

#endif
