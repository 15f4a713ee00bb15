/* How the devices of a run share its work: what the user asked for, what follows from the numbers,
 * and which of it needs processes. */
#ifndef LEVIN_LAUNCH_RUN_MODE_H
#define LEVIN_LAUNCH_RUN_MODE_H

#include "core/notice.h"

/* In the order of the choices of the key `strategy`. */
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

#endif
