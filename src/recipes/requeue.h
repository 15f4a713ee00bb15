/* A training that is a Slurm job: `scontrol requeue` after a stop by SIGUSR1, and which start of
 * the job this is. Called by fit.c and run_dir.c. */
#ifndef LEVIN_RECIPES_REQUEUE_H
#define LEVIN_RECIPES_REQUEUE_H

#include "core/error.h"
#include "recipes/ranks.h"

#include <stdbool.h>

/* The job's name for `scontrol requeue`: "77", of an array "8_3", of a heterogeneous job its first
 * part's; false: not in a job. */
bool lvni_recipes_requeue_job(char *id, size_t size);
/* How often the job was requeued before this start. */
int lvni_recipes_requeue_restarts(void);
/* A collective, after a stop by SIGUSR1 whose checkpoint is on the disk: rank 0 asks Slurm to start
 * the job again, and no rank leaves before, as its exit code may end the step. advanced: there was
 * a step since the start. What fails is a warning. */
lvn_status lvni_recipes_requeue(const lvni_recipes_rank *rank, bool wanted, bool advanced);

#endif
