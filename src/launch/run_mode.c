/* Choosing the mode (run_mode.h). */
#include "launch/run_mode.h"

lvni_launch_run_mode lvni_launch_run_mode_choose(lvni_launch_run_mode asked, int devices, int nodes,
                                                 lvni_core_notices *notices)
{
    if (asked == LVNI_MODE_AUTO) {
        return devices > 1 || nodes > 1 ? LVNI_MODE_DDP : LVNI_MODE_SINGLE;
    }
    if (nodes > 1 && (asked == LVNI_MODE_SINGLE || asked == LVNI_MODE_DP)) {
        lvni_core_notice_warn(notices, 211,
                              "strategy=%s is for one node, and this run has %d: switched to ddp",
                              asked == LVNI_MODE_DP ? "dp" : "single", nodes);
        return LVNI_MODE_DDP;
    }
    if (devices > 1 && asked == LVNI_MODE_SINGLE) {
        lvni_core_notice_warn(
            notices, 211, "strategy=single is for one device, and this run has %d: switched to ddp",
            devices);
        return LVNI_MODE_DDP;
    }
    return asked;
}

bool lvni_launch_run_mode_threads(lvni_launch_run_mode mode)
{
    return mode == LVNI_MODE_DP || mode == LVNI_MODE_DDP2;
}
