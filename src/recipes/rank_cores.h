/* Which processors ranks may use, told to each other when they meet. Used by rank_process.c. */
#ifndef LEVIN_RECIPES_RANK_CORES_H
#define LEVIN_RECIPES_RANK_CORES_H

#include "recipes/ranks.h"

/* Those that this process may use, as text ("0,1,"): the fingerprint of its facts. Ranks with equal
 * ones share them. */
void lvni_recipes_rank_print_cores(char *out, size_t size);
/* After the rendezvous: rank->cores of this rank, rank->cores_all of all, each processor counted
 * once. */
void lvni_recipes_rank_share_cores(const lvni_control *control, lvni_recipes_rank *rank);

#endif
