/* The accelerator of a run (accelerator.h). */
#include "recipes/accelerator.h"

#include "tensor/device.h"

#include <stdlib.h>
#include <string.h>

static bool is(const lvni_core_config *c, const char *name)
{
    return strcmp(lvni_core_config_str(c, "accelerator"), name) == 0;
}

/* How many pretend devices devices= needs: a number, or the largest of a list; one where it is
 * open. */
static int devices_asked(const lvni_core_config *c)
{
    const char *spec = lvni_core_config_str(c, "devices");
    const long one_more = strpbrk(spec, "[,") != NULL ? 1 : 0;
    long most = 1;
    if (spec[strspn(spec, "0123456789[], ")] != '\0') { /* auto, all, -1, a UUID */
        return 1;
    }
    for (const char *p = spec; *p != '\0'; p += strcspn(p, "[], ")) {
        p += strspn(p, "[], ");
        const long n = strtol(p, NULL, 10) + one_more;
        most = *p != '\0' && n > most ? n : most;
    }
    return most < LVNI_SIM_DEVICES ? (int)most : LVNI_SIM_DEVICES;
}

static lvn_status check_sim(const lvni_core_config *c)
{
    lvni_tensor_device *device;
    if (lvn_device_count(LVN_DEVICE_SIM) > 0) {
        return LVN_OK;
    }
    if (lvni_tensor_device_open(0, &device) == LVN_ERR_NOT_FOUND) {
        /* else the environment is wrong, which is the error that stands */
        LVN_FAIL(LVN_ERR_RESOURCE,
                 "accelerator=sim: there are no pretend devices; set LEVIN_SIM_DEVICES in the "
                 "environment to how many there are to be "
                 "(LEVIN_SIM_DEVICES=%d), and LEVIN_SIM_MEMORY to the memory of each "
                 "(LEVIN_SIM_MEMORY=2GiB; 1GiB unless set), or give accelerator=cpu",
                 devices_asked(c));
    }
    return lvn_last_error()->code;
}

lvn_status lvni_recipes_accelerator_resolve(lvni_core_config *c)
{
    if (is(c, "gpu")) {
        LVN_FAIL(LVN_ERR_RESOURCE,
                 "accelerator=gpu: this build of levin has no GPU backend yet; use "
                 "accelerator=cpu, or for trying things out accelerator=sim "
                 "with LEVIN_SIM_DEVICES=%d in the environment",
                 devices_asked(c));
    }
    if (is(c, "sim")) {
        return check_sim(c);
    }
    return is(c, "auto") ? lvni_core_config_set(c, "accelerator", "cpu", "resolved at start")
                         : LVN_OK;
}

bool lvni_recipes_accelerator_is_sim(const lvni_core_config *c)
{
    return is(c, "sim");
}

lvn_status lvni_recipes_accelerator_use(const lvni_core_config *c, int index)
{
    return lvn_device_use(is(c, "sim") ? LVN_SIM(index) : LVN_CPU);
}

void lvni_recipes_accelerator_describe(lvni_core_str *out)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx != NULL && ctx->device != NULL) {
        char has[LVNI_BYTES_TEXT];
        lvni_core_str_printf(
            out, "device: %s, %s, with the kernels of the CPU",
            lvni_tensor_device_name(ctx->device),
            lvni_core_bytes_text(lvni_tensor_device_get_stats(ctx->device).limit, has));
    }
}
