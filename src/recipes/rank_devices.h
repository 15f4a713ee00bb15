/* What devices= (or gpus=, its old name) selects on this node, by the rules of
 * launch/device_spec.h. For this folder: ranks.c. */
#ifndef LEVIN_RECIPES_RANK_DEVICES_H
#define LEVIN_RECIPES_RANK_DEVICES_H

#include "core/config.h"
#include "launch/rank_resources.h"

/* uses: a command that uses a trained model, for which devices=auto is one device except where
 * several ranks were started. LVN_ERR_USAGE; E106 where gpus= asks for GPUs, which this version
 * cannot use: on the CPU devices= gives the ranks. *choice is to be freed. */
lvn_status lvni_recipes_rank_devices(const lvni_core_config *config,
                                     const lvni_launch_rank_info *info,
                                     const lvni_launch_visible *visible, bool uses,
                                     lvni_core_notices *notices, lvni_launch_device_choice *choice);

#endif
