/* A command that starts its ranks (rank_start.h). */
#include "recipes/rank_start.h"

#include "launch/env_vars.h"
#include "launch/launch.h"
#include "recipes/accelerator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t max_restarts(const lvni_core_config *c)
{
    return lvni_core_config_has(c, "max_restarts") ? lvni_core_config_int(c, "max_restarts") : 0;
}

lvn_status lvni_recipes_check_restarts(const lvni_core_config *c, const lvni_launch_rank_info *info,
                                       bool starts)
{
    /* of the launcher, which may be another program */
    const char *most = lvni_launch_env_get(environ, "LEVIN_MAX_RESTARTS");
    if (max_restarts(c) == 0 || starts ||
        (info->source == LVNI_SOURCE_LEVIN && most != NULL && strtol(most, NULL, 10) > 0)) {
        return LVN_OK;
    }
    if (info->source == LVNI_SOURCE_LEVIN) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "max_restarts=%lld: the launcher that has started this rank restarts none: "
                 "levin launch --max-restarts %lld",
                 (long long)max_restarts(c), (long long)max_restarts(c));
    }
    if (info->world > 1) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "max_restarts=%lld: the ranks were started by another launcher (%s), which alone can "
            "restart them",
            (long long)max_restarts(c), lvni_launch_source_name(info->source));
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "max_restarts=%lld is about ranks that are processes (strategy=ddp, devices=2 or "
             "more); a command of one process is started again by "
             "`levin launch -n 1 --max-restarts %lld -- levin train ...`",
             (long long)max_restarts(c), (long long)max_restarts(c));
}

lvn_status lvni_recipes_rank_start(const lvni_core_config *c,
                                   const lvni_recipes_ranks_command *command, const char *dir,
                                   size_t made)
{
    char devices[512], restarts[32], run_dir[4096] = "", out[4096], claimed[4128];
    const char *args[256], *spec = lvni_core_config_str(c, "devices");
    int n = 0;
    if (lvni_launch_is_rank(environ)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "devices=%s: LEVIN_LAUNCHED is set, so a launcher has started this process as a "
                 "rank, which starts no others; "
                 "for a run of its own unset LEVIN_LAUNCHED",
                 spec);
    }
    const int length =
        snprintf(devices, sizeof devices, "devices=%s", strcmp(spec, "auto") == 0 ? "all" : spec);
    if (length >= (int)sizeof devices ||
        (dir != NULL &&
         snprintf(run_dir, sizeof run_dir, "run_dir=%s", dir) >= (int)sizeof run_dir)) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "devices= or out= is too long to start ranks with");
    }
    snprintf(restarts, sizeof restarts, "max_restarts=%lld", (long long)max_restarts(c));
    const char *const options[] = {
        lvni_recipes_accelerator_is_sim(c) ? "accelerator=sim" : "accelerator=cpu",
        devices,
        "no_prefix=true",
        "show=0",
        "pty=true",
        "stop_grace=1000000",
        lvni_core_config_bool(c, "allow_shared_device") ? "allow_shared_device=true"
                                                        : "allow_shared_device=false",
        restarts,
        lvni_core_config_is_on(c, "strict") ? "strict=true" : "strict=false",
        lvni_core_config_is_on(c, "quiet") ? "quiet=true" : "quiet=false",
        dir != NULL ? "keep_logs=started" : "keep_logs=failure",
        run_dir};
    const int n_options = (int)(sizeof options / sizeof *options) - (dir != NULL ? 0 : 1);
    if (command->n > (int)(sizeof args / sizeof *args) - 3) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%d arguments are too many to start ranks with; put them into a file, and give "
                 "config=FILE",
                 command->n);
    }
    for (int i = 0; i < 2 && command->command[i] != NULL; i++) {
        args[n++] = command->command[i];
    }
    for (int i = 0; i < command->n; i++) {
        args[n++] = command->args[i];
    }
    if (dir != NULL) {
        snprintf(out, sizeof out, "out=%s", dir);
        args[n++] = out; /* the last one counts */
    }
    if (made > 0) {
        snprintf(claimed, sizeof claimed, "%zu:%s", made, dir);
        /* the launcher removes it when no rank begins to train there */
        setenv("LEVIN_MADE_DIR", claimed, 1);
        setenv("LEVIN_OUT_CHOSEN", "1", 1); /* rank 0 prints where that is */
    }
    /* signals wait (lvni_core_signals_hand_over), which must not in the ranks */
    setenv("LEVIN_HANDED_OVER", "1", 1);
    return lvni_launch_self(n_options, options, n, args, environ);
}
