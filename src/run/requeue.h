/* A training that is a Slurm job: `scontrol requeue` after a stop by SIGUSR1, and which start of
 * the job this is. Called by fit.c and run_dir.c. */
#ifndef LEVIN_RUN_REQUEUE_H
#define LEVIN_RUN_REQUEUE_H

#include "core/error.h"
#include "run/ranks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The job's name for `scontrol requeue`: "77", of an array "8_3", of a heterogeneous job its first
 * part's; false: not in a job. */
bool lvni_run_requeue_job(char *id, size_t size);
/* How often the job was requeued before this start. */
int lvni_run_requeue_restarts(void);
/* A collective, after a stop by SIGUSR1 whose checkpoint is on the disk: rank 0 asks Slurm to start
 * the job again, and no rank leaves before, as its exit code may end the step. most: not more often
 * than this (0: no limit; the exit code is then 86); advanced: there was a step since the start.
 * Where Slurm accepts, that is marked in the run directory `dir` (run_dir.h). What fails is a
 * warning. */
lvn_status lvni_run_requeue(const lvni_run_rank *rank, const char *dir, bool wanted, int64_t most,
                            bool advanced);
/* On the clock of lvni_core_now_ns: a minute before the job's time limit, or at half of what is
 * left where that is less than two; 0: no job, no limit, or Slurm gives no answer. */
uint64_t lvni_run_requeue_stop_ns(void);
/* The same again when that time has come: 0 where the job has not got more time since. */
uint64_t lvni_run_requeue_stop_later(void);

#endif
