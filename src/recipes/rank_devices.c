/* The devices of a run on this node (rank_devices.h). */
#include "recipes/rank_devices.h"

#include "launch/env_vars.h"
#include "recipes/accelerator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OTHER_NUMBER = 103, NO_GPU = 106 };

static bool is_auto(const char *spec)
{
    return strcmp(spec, "auto") == 0;
}

static const char *spec_of(const lvni_core_config *c, const lvni_launch_rank_info *info, bool uses)
{
    const char *spec = lvni_core_config_str(c, "devices");
    return uses && info->world <= 1 && is_auto(spec) ? "1" : spec;
}

/* "gpus", "num_gpus": a number of them is GPUs, and 0 the CPU. */
static bool selects_gpus(const lvni_core_config *c)
{
    return !is_auto(lvni_core_config_str(c, "devices")) &&
           strcmp(lvni_core_config_spelled(c, "devices"), "devices") != 0;
}

/* A saved configuration has what auto became. */
static bool selects_cpu(const lvni_core_config *c)
{
    const lvni_core_layer layer = lvni_core_config_layer(c, "accelerator");
    return layer == LVNI_LAYER_JOB || layer == LVNI_LAYER_FILE || layer == LVNI_LAYER_ARGUMENTS;
}

/* accelerator=auto, which this start made the CPU; a resumed run reported it at its first start. */
static bool was_auto(const lvni_core_config *c)
{
    return lvni_core_config_layer(c, "accelerator") == LVNI_LAYER_RESOLVED;
}

static lvni_launch_accelerator accelerator_of(const lvni_core_config *c)
{
    return lvni_recipes_accelerator_is_sim(c)   ? LVNI_ACCELERATOR_SIM
           : selects_gpus(c) && !selects_cpu(c) ? LVNI_ACCELERATOR_AUTO
                                                : LVNI_ACCELERATOR_CPU;
}

static bool is_number(const char *spec)
{
    return *spec != '\0' && spec[strspn(spec, "0123456789")] == '\0';
}

/* In place of the advice to check the driver. */
static lvn_status no_backend(const lvni_core_config *c, lvni_core_notices *n)
{
    const char *key = lvni_core_config_spelled(c, "devices"),
               *spec = lvni_core_config_str(c, "devices");
    const int asked = lvni_launch_device_spec_count(spec);
    char count[16] = "N";
    if (asked > 0) {
        snprintf(count, sizeof count, "%d", asked);
    }
    const lvn_status s =
        lvni_core_notice_error(n, NO_GPU,
                               "GPUs are asked for, but this process sees none: this "
                               "build of levin has no GPU backend yet");
    lvni_core_notice_found(n, "%s=%s (%s)", key, spec, lvni_core_config_origin(c, "devices"));
    lvni_core_notice_fix(n, "devices=%s for ranks on the CPU", count);
    lvni_core_notice_fix(
        n, "or accelerator=sim, pretend devices, with LEVIN_SIM_DEVICES=%s in the environment",
        count);
    return s;
}

/* devices=4 under a launcher that has started two would silently have another batch plan. */
static lvn_status check_number(const lvni_core_config *c, const lvni_launch_rank_info *info,
                               lvni_core_notices *n)
{
    const char *key = lvni_core_config_spelled(c, "devices"),
               *spec = lvni_core_config_str(c, "devices");
    if (!is_number(spec) || strtol(spec, NULL, 10) == 0 || info->local_world <= 0 ||
        strtol(spec, NULL, 10) == info->local_world) {
        return LVN_OK;
    }
    const lvn_status s = lvni_core_notice_error(n, OTHER_NUMBER, "%d ranks on this node, but %s=%s",
                                                info->local_world, key, spec);
    lvni_core_notice_found(n, "%s=%s (%s)", key, spec, lvni_core_config_origin(c, "devices"));
    lvni_core_notice_fix(n, "levin launch -n %s", spec);
    lvni_core_notice_fix(n, "or %s=%d", key, info->local_world);
    return s;
}

lvn_status lvni_recipes_rank_devices(const lvni_core_config *c, const lvni_launch_rank_info *info,
                                     const lvni_launch_visible *visible, bool uses,
                                     lvni_core_notices *notices, lvni_launch_device_choice *choice)
{
    const char *spec = spec_of(c, info, uses);
    const bool several = info->world > 1, sim = lvni_recipes_accelerator_is_sim(c);
    /* its launcher shows the chosen devices alone, or lists them */
    const bool launched = info->source == LVNI_SOURCE_LEVIN;
    const bool rank_of_cpu = several && !sim && is_auto(spec);
    const lvni_launch_device_request request = {
        .key = lvni_core_config_spelled(c, "devices"),
        .spec = !launched ? spec
                : sim     ? lvni_launch_env_get(environ, "LEVIN_DEVICES")
                          : NULL,
        .accelerator = launched && !sim ? LVNI_ACCELERATOR_CPU : accelerator_of(c),
        .gpus = selects_gpus(c),
        .allow_shared = lvni_core_config_bool(c, "allow_shared_device"),
        .launched = several,
        .nproc = (rank_of_cpu || launched) && info->local_world > 0 ? info->local_world : 0,
        .env = environ};
    LVN_TRY(launched && several ? check_number(c, info, notices) : LVN_OK);
    const lvn_status s = lvni_launch_device_choose(&request, visible, notices, choice);
    choice->no_gpu = s == LVN_OK && !launched && choice->accelerator == LVNI_ACCELERATOR_CPU &&
                     was_auto(c) && strcmp(spec, "0") != 0;
    if (s == LVN_ERR_USAGE && !launched && notices->error == 0) {
        /* a launcher has reported where its own came from */
        lvn_error_frame("%s=%s (%s)", request.key, spec, lvni_core_config_origin(c, "devices"));
    }
    return s != LVN_OK && notices->error == NO_GPU && !sim ? no_backend(c, notices) : s;
}
