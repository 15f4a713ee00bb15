/* Shared by the rank_info*.c files. */
#ifndef LEVIN_LAUNCH_RANK_INFO_IMPL_H
#define LEVIN_LAUNCH_RANK_INFO_IMPL_H

#include "launch/env_vars.h"
#include "launch/rank_info.h"

typedef struct lvni_launch_rank_query {
    char *const *env;
    const lvni_launch_rank_info_options *options;
    lvni_core_notices *notices;
} lvni_launch_rank_query;

/* rank_info_slurm.c */
lvn_status lvni_launch_rank_info_read_job(const lvni_launch_rank_query *ask,
                                          lvni_launch_slurm_job *job);
lvn_status lvni_launch_rank_info_read_step(const lvni_launch_rank_query *ask,
                                           lvni_launch_rank_info *info);
/* E101, for the shell of a batch job. */
lvn_status lvni_launch_rank_info_no_srun(const lvni_launch_rank_query *ask,
                                         const lvni_launch_slurm_job *job);
/* E107: torchrun's variables, without the mark of a launcher, disagree with the step. */
lvn_status lvni_launch_rank_info_check_stale(const lvni_launch_rank_query *ask,
                                             const lvni_launch_rank_info *info);

/* rank_info_address.c: address, ports and kind of rendezvous. */
lvn_status lvni_launch_rank_info_find_master(const lvni_launch_rank_query *ask,
                                             lvni_launch_rank_info *info);

/* rank_info.c: E102 with all numbers. */
lvn_status lvni_launch_rank_info_inconsistent(const lvni_launch_rank_info *info,
                                              lvni_core_notices *notices, const char *fmt, ...)
    LVN_PRINTF(3, 4);

#endif
