/* How many threads load data on a rank: found from the processors it may use, or compared with
 * them. */
#ifndef LEVIN_LAUNCH_WORKERS_H
#define LEVIN_LAUNCH_WORKERS_H

#include "core/notice.h"
#include "launch/rank_info.h"

typedef struct lvni_launch_workers_request {
    int asked;  /* num_workers; -1: auto */
    int cpus;   /* in the affinity mask of this process */
    bool bound; /* the mask is this rank's own; else the ranks of the node share it */
} lvni_launch_workers_request;

/* auto under Slurm: SLURM_CPUS_PER_TASK - 1 (one processor is the rank's); elsewhere the same from
 * its share of the processors, at most
 * 8. W202, W208, W209. The local world must be known. */
int lvni_launch_workers_choose(const lvni_launch_rank_info *info,
                               const lvni_launch_workers_request *request,
                               lvni_core_notices *notices);

#endif
