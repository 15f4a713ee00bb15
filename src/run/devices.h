/* What the ranks of this node run on: accelerator=, devices= and processors. */
#ifndef LEVIN_RUN_DEVICES_H
#define LEVIN_RUN_DEVICES_H

#include "core/config.h"
#include "core/str.h"
#include "launch/rank_resources.h"
#include "run/ranks.h"

/* ---- accelerator=: the kind of device that the commands train and predict on ---- */

/* auto becomes what this machine has, in the configuration. LVN_ERR_RESOURCE: the accelerator is
 * not there. */
lvn_status lvni_run_accelerator_resolve(lvni_core_config *config);
/* "gpu" and "gpu:1" as the name of a device of the backend that gpu means, all else as it is.
 * LVN_ERR_RESOURCE: that backend is not there, or has no device. */
lvn_status lvni_run_accelerator_find(const char *name, char *out, size_t size);
/* Why accelerator=auto chose the CPU although there is a GPU; "" otherwise. */
const char *lvni_run_gpu_refused(void);
/* Not the CPU: memory of its own. */
bool lvni_run_accelerator_is_device(const lvni_core_config *config);
/* Its devices that this process may use. *out is to be freed. */
lvn_status lvni_run_accelerator_visible(const lvni_core_config *config, lvni_launch_visible *out);
/* From now on the calling thread makes tensors and buffers on device `index` of the configuration's
 * accelerator, as do the lanes that it makes. One call per rank, in its thread; lvn_device_use
 * takes it back. */
lvn_status lvni_run_accelerator_use(const lvni_core_config *config, int index);
/* "device: sim:0, 2.0 GiB" of the calling thread's; nothing on the CPU. */
void lvni_run_accelerator_describe(lvni_core_str *out);

/* ---- devices=, or gpus=, its old name, by the rules of launch/device_spec.h ---- */

/* uses: a command that uses a trained model, for which devices=auto is one device except where
 * several ranks were started. LVN_ERR_USAGE; E106 where gpus= requests GPUs, which this version
 * cannot use: on the CPU devices= gives the ranks. *choice is to be freed. */
lvn_status lvni_run_rank_devices(const lvni_core_config *config, const lvni_launch_rank_info *info,
                                 const lvni_launch_visible *visible, bool uses,
                                 lvni_core_notices *notices, lvni_launch_device_choice *choice);

/* ---- transport= ---- */

/* Which transport carries the gradients of `ranks` ranks on `hosts` nodes, which are threads of one
 * process on each or processes. host: as in lvni_dist_layout. LVN_ERR_USAGE: not the one that was
 * requested. */
lvn_status lvni_run_choose_transport(const lvni_core_config *config, int ranks, int hosts,
                                     const int *host, bool threads, lvni_dist_choice *out);

/* ---- processors, which ranks exchange at the rendezvous ---- */

/* Cores this process may use (affinity). */
int lvni_run_usable_cores(void);
/* Those that this process may use, as text ("0,1,"): the fingerprint of its facts. Ranks with equal
 * ones share them. */
void lvni_run_rank_print_cores(char *out, size_t size);
/* After the rendezvous: rank->cores of this rank, rank->cores_all of all, each processor counted
 * once. */
void lvni_run_rank_share_cores(const lvni_control *control, lvni_run_rank *rank);

#endif
