/* What a rank gets of its node: how the devices of a run share its work and which of that needs
 * processes, which device is this rank's, and how many threads load its data. */
#ifndef LEVIN_LAUNCH_RANK_RESOURCES_H
#define LEVIN_LAUNCH_RANK_RESOURCES_H

#include "core/error.h"
#include "launch/device_spec.h"
#include "launch/rank_info.h"

/* The mode of a run, in the order of the choices of the key `strategy`. */
typedef enum lvni_launch_run_mode {
    LVNI_MODE_AUTO,
    LVNI_MODE_SINGLE,
    LVNI_MODE_DP,
    LVNI_MODE_DDP,
    LVNI_MODE_DDP2,
    LVNI_MODE_SHARDED,
    LVNI_MODE_BALANCE,
} lvni_launch_run_mode;

/* Never AUTO. devices: of one node; on the CPU its ranks. single with several devices, and single
 * or dp on several nodes, become ddp with W211. */
lvni_launch_run_mode lvni_launch_run_mode_choose(lvni_launch_run_mode asked, int devices, int nodes,
                                                 lvni_core_notices *notices);
/* One process holds all devices of its node (dp, ddp2); else each device has its own. */
bool lvni_launch_run_mode_threads(lvni_launch_run_mode mode);

typedef struct lvni_launch_rank_info_devices {
    const lvni_launch_device_choice *choice;
    const lvni_launch_visible *visible;
    const char *key, *origin; /* of the choice: "devices", "command line" */
    /* dp, ddp2, balance in threads: one process holds all devices of the node */
    bool threads;
    bool allow_shared;
    const char *host;
} lvni_launch_rank_info_devices;

/* E103, E104, W201. Ranks of levin's launcher are not checked: it made them fit. */
lvn_status lvni_launch_rank_info_check_devices(const lvni_launch_rank_info *info, char *const *env,
                                               const lvni_launch_rank_info_devices *devices,
                                               lvni_core_notices *notices);
/* W206, where the ranks of a node are several. */
void lvni_launch_rank_info_warn_of_cpu(int ranks, lvni_core_notices *notices);
/* The visible device of this rank, -1 on the CPU; with `threads` the first of all. Local rank and
 * world must be known by now. A rank of levin's launcher sees its run's devices alone: its choice
 * is all of them (spec NULL). E106, W206, W207. */
lvn_status lvni_launch_rank_info_device(const lvni_launch_rank_info *info, char *const *env,
                                        const lvni_launch_rank_info_devices *devices,
                                        lvni_core_notices *notices, int *index);

/* ---- threads that load data ---- */

typedef struct lvni_launch_workers_request {
    int asked;  /* num_workers; -1: auto */
    int cpus;   /* in the affinity mask of this process */
    bool bound; /* the mask is this rank's own; else the ranks of the node share it */
} lvni_launch_workers_request;

/* auto under Slurm: SLURM_CPUS_PER_TASK - 1 (one processor is the rank's); elsewhere the same from
 * its share of the processors, at most 8. W202, W208, W209. The local world must be known. */
int lvni_launch_workers_choose(const lvni_launch_rank_info *info,
                               const lvni_launch_workers_request *request,
                               lvni_core_notices *notices);

#endif
