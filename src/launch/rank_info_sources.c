/* The launchers other than Slurm, as a table: which variables mark each of them and where it tells
 * what. */
#include "launch/rank_info_impl.h"

#include <stdio.h>
#include <string.h>

enum { NEEDS = 4, WAYS = 3 };

typedef struct launcher {
    const char *needs[NEEDS + 1]; /* all of them set: this is the one */
    const char *rank, *world, *local_rank, *local_world;
    const char *node_rank[WAYS], *nnodes; /* NULL: the ranks find out when they meet */
    const char *restart, *run_id[WAYS];
} launcher;

/* OMPI_COMM_WORLD_NODE_RANK is not among them: it numbers the processes on a node, not the
 * nodes. */
static const launcher launchers[] = {
    [LVNI_SOURCE_LEVIN] = {{"LEVIN_RANK", "LEVIN_WORLD_SIZE", "LEVIN_LOCAL_RANK",
                            "LEVIN_LOCAL_WORLD_SIZE"},
                           "LEVIN_RANK",
                           "LEVIN_WORLD_SIZE",
                           "LEVIN_LOCAL_RANK",
                           "LEVIN_LOCAL_WORLD_SIZE",
                           {"LEVIN_NODE_RANK"},
                           "LEVIN_NNODES",
                           "LEVIN_RESTART_COUNT",
                           {"LEVIN_RUN_ID"}},
    [LVNI_SOURCE_TORCHRUN] = {{"RANK", "WORLD_SIZE", "LOCAL_RANK"},
                              "RANK",
                              "WORLD_SIZE",
                              "LOCAL_RANK",
                              "LOCAL_WORLD_SIZE",
                              {"GROUP_RANK", "NODE_RANK"},
                              "GROUP_WORLD_SIZE",
                              "TORCHELASTIC_RESTART_COUNT",
                              {"LEVIN_RUN_ID", "TORCHELASTIC_RUN_ID"}},
    [LVNI_SOURCE_OMPI] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                          "OMPI_COMM_WORLD_RANK",
                          "OMPI_COMM_WORLD_SIZE",
                          "OMPI_COMM_WORLD_LOCAL_RANK",
                          "OMPI_COMM_WORLD_LOCAL_SIZE",
                          {NULL},
                          NULL,
                          NULL,
                          {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"}},
    [LVNI_SOURCE_MVAPICH2] = {{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                              "MV2_COMM_WORLD_RANK",
                              "MV2_COMM_WORLD_SIZE",
                              "MV2_COMM_WORLD_LOCAL_RANK",
                              "MV2_COMM_WORLD_LOCAL_SIZE",
                              {NULL},
                              NULL,
                              NULL,
                              {NULL}},
    [LVNI_SOURCE_PALS] = {{"PALS_RANKID", "PMI_SIZE"},
                          "PALS_RANKID",
                          "PMI_SIZE",
                          "PALS_LOCAL_RANKID",
                          "PALS_LOCAL_SIZE",
                          {"PALS_NODEID"},
                          NULL,
                          NULL,
                          {"PALS_APID"}},
    [LVNI_SOURCE_JSM] = {{"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
                         "JSM_NAMESPACE_RANK",
                         "JSM_NAMESPACE_SIZE",
                         "JSM_NAMESPACE_LOCAL_RANK",
                         "JSM_NAMESPACE_LOCAL_SIZE",
                         {NULL},
                         NULL,
                         NULL,
                         {"LSB_JOBID"}},
    [LVNI_SOURCE_FLUX] = {{"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                          "FLUX_TASK_RANK",
                          "FLUX_JOB_SIZE",
                          "FLUX_TASK_LOCAL_ID",
                          NULL,
                          {NULL},
                          "FLUX_JOB_NNODES",
                          NULL,
                          {"FLUX_JOB_ID"}},
    [LVNI_SOURCE_PMI] = {{"PMI_RANK", "PMI_SIZE"},
                         "PMI_RANK",
                         "PMI_SIZE",
                         "MPI_LOCALRANKID",
                         "MPI_LOCALNRANKS",
                         {NULL},
                         NULL,
                         NULL,
                         {NULL}},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

static const char *const slurm_job[] = {"SLURM_JOB_ID", "SLURM_JOBID", NULL},
                         *const slurm_step[] = {"SLURM_STEP_ID", "SLURM_STEPID", NULL};

static bool all_set(char *const *env, const launcher *l)
{
    for (int i = 0; l->needs[i] != NULL; i++) {
        if (lvni_launch_env_get(env, l->needs[i]) == NULL) {
            return false;
        }
    }
    return true;
}

lvni_launch_source lvni_launch_rank_info_match(char *const *env, lvni_launch_source last)
{
    for (int s = 0; s < LAUNCHERS && s <= (int)last; s++) {
        if (all_set(env, &launchers[s])) {
            return (lvni_launch_source)s;
        }
    }
    return LVNI_SOURCE_COUNT;
}

int lvni_launch_rank_info_missing(char *const *env, lvni_launch_source source,
                                  lvni_core_notices *notices)
{
    int n = 0;
    if ((int)source < LAUNCHERS) {
        for (int i = 0; launchers[source].needs[i] != NULL; i++) {
            if (lvni_launch_env_get(env, launchers[source].needs[i]) == NULL) {
                lvni_core_notice_found(notices, "%s is not set", launchers[source].needs[i]);
                n++;
            }
        }
        return n;
    }
    static const char *const task[] = {"SLURM_PROCID", NULL};
    const char *const *const needs[] = {slurm_job, slurm_step, task};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        const bool wanted = source == LVNI_SOURCE_SLURM ||
                            (source == LVNI_SOURCE_SLURM_BATCH && needs[i] == slurm_job);
        if (wanted && lvni_launch_env_first(env, needs[i]) == NULL) {
            lvni_core_notice_found(notices, "%s is not set", needs[i][0]);
            n++;
        }
    }
    return n;
}

static lvn_status read_field(const lvni_launch_rank_query *ask, lvni_launch_rank_info *info,
                             lvni_launch_rank_info_field field, const char *name, int *out)
{
    if (name == NULL || lvni_launch_env_get(ask->env, name) == NULL) {
        return LVN_OK;
    }
    info->from[field] = name;
    return lvni_launch_env_int(ask->env, name, ask->notices, out);
}

/* What follows from the rest: one rank is alone, and ranks that are all on this node are on one
 * node. */
static void derive(lvni_launch_rank_info *info)
{
    if (info->nnodes == 1 || info->world == 1) {
        info->local_rank =
            info->local_rank == LVNI_RANK_INFO_UNKNOWN ? info->rank : info->local_rank;
        info->local_world =
            info->local_world == LVNI_RANK_INFO_UNKNOWN ? info->world : info->local_world;
    }
    if (info->local_world == info->world) {
        info->nnodes = info->nnodes == LVNI_RANK_INFO_UNKNOWN ? 1 : info->nnodes;
        info->node_rank = info->node_rank == LVNI_RANK_INFO_UNKNOWN ? 0 : info->node_rank;
    }
}

lvn_status lvni_launch_rank_info_read_launcher(const lvni_launch_rank_query *ask,
                                               lvni_launch_rank_info *info)
{
    const launcher *l = &launchers[info->source];
    const char *node_rank = lvni_launch_env_first(ask->env, l->node_rank),
               *run_id = lvni_launch_env_first(ask->env, l->run_id);
    LVN_TRY(read_field(ask, info, LVNI_RANK_INFO_RANK, l->rank, &info->rank));
    LVN_TRY(read_field(ask, info, LVNI_RANK_INFO_WORLD, l->world, &info->world));
    LVN_TRY(read_field(ask, info, LVNI_RANK_INFO_LOCAL_RANK, l->local_rank, &info->local_rank));
    LVN_TRY(read_field(ask, info, LVNI_RANK_INFO_LOCAL_WORLD, l->local_world, &info->local_world));
    LVN_TRY(read_field(ask, info, LVNI_RANK_INFO_NODE_RANK, node_rank, &info->node_rank));
    LVN_TRY(read_field(ask, info, LVNI_RANK_INFO_NNODES, l->nnodes, &info->nnodes));
    if (l->restart != NULL) {
        LVN_TRY(lvni_launch_env_int(ask->env, l->restart, ask->notices, &info->restart));
    }
    if (run_id != NULL) {
        snprintf(info->run_id, sizeof info->run_id, "%s", lvni_launch_env_get(ask->env, run_id));
    }
    info->store_host = info->rank == 0;
    derive(info);
    return LVN_OK;
}
