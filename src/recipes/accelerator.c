/* The accelerator of a run (accelerator.h). */
#include "recipes/accelerator.h"

#include "tensor/device.h"

#include <string.h>

static bool is(const lvni_config *c, const char *name)
{
    return strcmp(lvni_config_str(c, "accelerator"), name) == 0;
}

static lvn_status check_sim(void)
{
    lvni_device *device;
    if (lvn_device_count(LVN_DEVICE_SIM) > 0) {
        return LVN_OK;
    }
    if (lvni_device_open(0, &device) == LVN_ERR_NOT_FOUND) { /* else the environment is wrong, and the error says where */
        LVN_FAIL(LVN_ERR_RESOURCE, "accelerator=sim: there are no pretend devices; set LEVIN_SIM_DEVICES in the environment to how many there are to be "
                 "(LEVIN_SIM_DEVICES=1), and LEVIN_SIM_MEMORY to the memory of each (LEVIN_SIM_MEMORY=2GiB; 1GiB unless set), or give accelerator=cpu");
    }
    return lvn_last_error()->code;
}

lvn_status lvni_accelerator_resolve(lvni_config *c)
{
    if (is(c, "gpu")) {
        LVN_FAIL(LVN_ERR_RESOURCE, "accelerator=gpu: this build of levin has no GPU backend yet; use accelerator=cpu, or for trying things out accelerator=sim "
                 "with LEVIN_SIM_DEVICES=1 in the environment");
    }
    if (is(c, "sim")) {
        return check_sim();
    }
    return is(c, "auto") ? lvni_config_set(c, "accelerator", "cpu", "resolved at start") : LVN_OK;
}

bool lvni_accelerator_is_sim(const lvni_config *c)
{
    return is(c, "sim");
}

lvn_status lvni_accelerator_use(const lvni_config *c, int index)
{
    return lvn_device_use(is(c, "sim") ? LVN_SIM(index) : LVN_CPU);
}

void lvni_accelerator_describe(lvni_str *out)
{
    const lvni_ctx *ctx = lvni_ctx_get();
    if (ctx != NULL && ctx->device != NULL) {
        lvni_str_printf(out, "device: %s, %.4g GiB, with the kernels of the CPU", lvni_device_name(ctx->device),
                        (double)lvni_device_get_stats(ctx->device).limit / (1 << 30));
    }
}
