/* accelerator=: which kind of device the commands train and predict on. */
#ifndef LEVIN_RECIPES_ACCELERATOR_H
#define LEVIN_RECIPES_ACCELERATOR_H

#include "core/config.h"
#include "core/str.h"

/* auto becomes what this machine has, in the configuration. LVN_ERR_RESOURCE: the accelerator is
 * not there. */
lvn_status lvni_recipes_accelerator_resolve(lvni_core_config *config);
bool lvni_recipes_accelerator_is_sim(const lvni_core_config *config);
/* From now on the calling thread makes tensors and buffers on device `index` of the configuration's
 * accelerator, as do the lanes that it makes. One call per rank, in its thread; lvn_device_use
 * takes it back. */
lvn_status lvni_recipes_accelerator_use(const lvni_core_config *config, int index);
/* "device: sim:0, 2.0 GiB" of the calling thread's; nothing on the CPU. */
void lvni_recipes_accelerator_describe(lvni_core_str *out);

#endif
