/* Which ranks configuration and environment request (rank_impl.h): the devices of this
 * node, which of them is this process's, and whether ranks are threads or processes. Called by
 * ranks.c. */
#include "run/rank_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/training.h"
#include "launch/env_vars.h"
#include "run/devices.h"
#include "run/error_record.h"

#include <errno.h>
#include <levin/device.h>
#include <string.h>
#include <unistd.h>

char *const *lvni_run_environment(void)
{
    static char *none[] = {NULL};
    return lvni_core_training_get()->alone ? none : environ;
}

void lvni_run_rank_request_free(lvni_run_rank_request *r)
{
    lvni_launch_rank_info_free(&r->info);
    lvni_core_free(r->index);
    *r = (lvni_run_rank_request){0};
}

static lvn_status set(lvni_core_config *c, const char *key, const char *value)
{
    return strcmp(lvni_core_config_str(c, key), value) == 0
               ? LVN_OK
               : lvni_core_config_set(c, key, value, "resolved at start");
}

static lvni_launch_run_mode mode_named(const char *strategy)
{
    static const char *const names[] = {"auto", "single",  "dp",     "ddp",
                                        "ddp2", "sharded", "balance"};
    int i = 0;
    while (strcmp(names[i], strategy) != 0) { /* the row's choices, in this order */
        i++;
    }
    return (lvni_launch_run_mode)i;
}

static const char *name_of(lvni_launch_run_mode mode)
{
    return mode == LVNI_MODE_SINGLE    ? "single"
           : mode == LVNI_MODE_DP      ? "dp"
           : mode == LVNI_MODE_DDP2    ? "ddp2"
           : mode == LVNI_MODE_SHARDED ? "sharded"
                                       : "ddp";
}

bool lvni_run_is_one_of_several(const lvni_launch_rank_info *info)
{
    return info->world > 1;
}

/* A task of srun starts no others, also when it is the only one: its step should have a task for
 * each device. A plan may be about any number of devices, wherever it is printed. */
static bool is_started_rank(const lvni_launch_rank_info *info,
                            const lvni_run_ranks_command *command)
{
    return lvni_run_is_one_of_several(info) ||
           (info->source == LVNI_SOURCE_SLURM && (command->recipe != NULL || command->uses));
}

/* A list has one for each rank of this node. */
static bool is_reported(const lvni_run_rank_request *r, const lvni_launch_device_choice *choice)
{
    return choice->listed && choice->n == r->info.local_world && r->info.local_rank >= 0 &&
           !r->threads;
}

/* Which of the chosen devices is this rank's; the only rank of its step has that one alone. */
static lvn_status take_mine(const lvni_core_config *c, const lvni_launch_device_choice *choice,
                            const lvni_launch_visible *visible, lvni_core_notices *notices,
                            lvni_run_rank_request *r)
{
    char host[256];
    lvni_core_host_name(host, sizeof host);
    const lvni_launch_hosts *hosts = &r->info.hosts;
    const bool listed = r->info.node_rank >= 0 && (size_t)r->info.node_rank < hosts->n;
    const lvni_launch_rank_info_devices d = {
        .choice = choice,
        .visible = visible,
        .key = lvni_core_config_spelled(c, "devices"),
        .origin = lvni_core_config_origin(c, "devices"),
        .threads = r->threads,
        .allow_shared = lvni_core_config_bool(c, "allow_shared_device"),
        .host = listed ? lvni_launch_hosts_name(hosts, (size_t)r->info.node_rank) : host};
    lvni_launch_rank_info seen = r->info;
    if (seen.local_world == LVNI_RANK_INFO_UNKNOWN) {
        /* not known before the rendezvous: as many as there may be; of threads one on each node,
         * or the rendezvous refuses them */
        seen.local_world = r->threads ? 1 : seen.nnodes > 1 ? seen.world / seen.nnodes : seen.world;
    }
    LVN_TRY(lvni_launch_rank_info_check_devices(&seen, lvni_run_environment(), &d, notices));
    LVN_TRY(lvni_launch_rank_info_device(&r->info, lvni_run_environment(), &d, notices, &r->mine));
    /* also where ranks share devices */
    r->mine = is_reported(r, choice) ? choice->index[r->info.local_rank] : r->mine;
    if (r->mine >= 0) {
        r->mine = visible->device[r->mine].physical;
    }
    if (!r->threads && !lvni_run_is_one_of_several(&r->info)) {
        r->devices = 1;
        if (r->index != NULL) {
            r->index[0] = r->mine;
        }
    }
    return LVN_OK;
}

/* As far as it is known before the rendezvous. */
static int count_nodes(const lvni_launch_rank_info *info)
{
    const int local = info->local_world > 0 ? info->local_world : info->world;
    return info->nnodes > 0 ? info->nnodes : (info->world + local - 1) / local;
}

/* The devices by their numbers on the machine. */
static lvn_status take_devices(const lvni_core_config *c, const lvni_run_ranks_command *command,
                               const lvni_launch_visible *visible, lvni_core_notices *notices,
                               lvni_run_rank_request *r)
{
    lvni_launch_device_choice choice = {0};
    LVN_TRY(lvni_run_rank_devices(c, &r->info, visible, command->uses, notices, &choice));
    r->devices = choice.n;
    const lvni_launch_run_mode mode = lvni_launch_run_mode_choose(
        mode_named(lvni_core_config_str(c, "strategy")), choice.n, count_nodes(&r->info), notices);
    r->threads = lvni_launch_run_mode_threads(mode);
    lvn_status s = LVN_OK;
    if (choice.index != NULL) {
        r->index = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)choice.n, sizeof *r->index);
        LVNI_TRY_DONE(s, r->index == NULL ? LVN_ERR_MEMORY : LVN_OK);
        for (int i = 0; i < choice.n; i++) {
            r->index[i] = visible->device[choice.index[i]].physical;
        }
    }
    if (is_started_rank(&r->info, command)) {
        s = take_mine(c, &choice, visible, notices, r);
    } else if (choice.no_gpu && (command->recipe != NULL || command->uses)) {
        /* a plan may be about devices of another machine */
        lvni_launch_rank_info_warn_of_cpu(choice.n, notices);
    }
done:
    lvni_launch_device_choice_free(&choice);
    return s;
}

/* A process alone starts no ranks on other nodes. */
static lvn_status check_alone(const lvni_core_config *c, const lvni_run_ranks_command *command,
                              const lvni_launch_rank_info *info, lvni_core_notices *notices)
{
    const bool trains = command->recipe != NULL && lvni_core_config_has(c, "num_nodes");
    const int nodes = trains ? (int)lvni_core_config_int(c, "num_nodes") : 1;
    if (nodes <= 1 || info->source != LVNI_SOURCE_SINGLE) {
        return LVN_OK;
    }
    const lvn_status s = lvni_core_notice_error(
        notices, 119, "%d nodes are asked for, but this process was started alone", nodes);
    lvni_core_notice_found(notices, "%s=%d (%s)", lvni_core_config_spelled(c, "num_nodes"), nodes,
                           lvni_core_config_origin(c, "num_nodes"));
    lvni_core_notice_fix(notices, "srun -N%d levin train ... in a Slurm job", nodes);
    lvni_core_notice_fix(notices,
                         "or on each node: levin launch --nnodes %d --node-rank 0 (1, ...) "
                         "--master-addr HOST_OF_NODE_0 -n DEVICES -- levin train ...",
                         nodes);
    return s;
}

/* E101 shows the command line behind srun: the program as it was called, and its arguments. */
static lvn_status write_arguments(const lvni_run_ranks_command *command, const char ***out, int *n)
{
    const char **args = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)command->n + 3, sizeof *args);
    if (args == NULL) {
        return LVN_ERR_MEMORY;
    }
    *n = 0;
    args[(*n)++] = program_invocation_name;
    for (int i = 0; i < 2 && command->command[i] != NULL; i++) {
        args[(*n)++] = command->command[i];
    }
    for (int i = 0; i < command->n; i++) {
        args[(*n)++] = command->args[i];
    }
    *out = args;
    return LVN_OK;
}

static lvn_status find_rank_info(const lvni_core_config *c, const lvni_run_ranks_command *command,
                                 lvni_core_notices *notices, lvni_launch_rank_info *info)
{
    const bool given = lvni_core_config_has(c, "num_nodes") &&
                       lvni_core_config_layer(c, "num_nodes") != LVNI_LAYER_DEFAULT;
    const bool way =
        lvni_core_config_has(c, "rdzv") && lvni_core_config_layer(c, "rdzv") != LVNI_LAYER_DEFAULT;
    lvni_launch_rank_info_options o = {.nodes =
                                           given ? (int)lvni_core_config_int(c, "num_nodes") : 0,
                                       .launcher = command->recipe == NULL,
                                       .rdzv = way ? lvni_core_config_str(c, "rdzv") : NULL};
    const char **args = NULL;
    LVN_TRY(write_arguments(command, &args, &o.n_args));
    o.args = args;
    const lvn_status s = lvni_launch_rank_info_detect(lvni_run_environment(), &o, notices, info);
    lvni_core_free(args);
    return s;
}

static lvn_status find_all(lvni_core_config *c, const lvni_run_ranks_command *command,
                           lvni_core_notices *notices, lvni_run_rank_request *r)
{
    lvni_launch_visible visible;
    LVN_TRY(lvni_launch_env_strict(lvni_run_environment(), lvni_core_config_switch(c, "strict"),
                                   notices, &r->strict));
    double timeout_s; /* checked here, and read again by rank_rendezvous.c */
    LVN_TRY(
        lvni_launch_env_seconds(lvni_run_environment(), "LEVIN_RDZV_TIMEOUT", notices, &timeout_s));
    LVN_TRY(find_rank_info(c, command, notices, &r->info));
    LVN_TRY(check_alone(c, command, &r->info, notices));
    LVN_TRY(lvni_launch_rank_info_check_address_here(&r->info, notices));
    LVN_TRY(lvni_run_accelerator_resolve(c));
    LVN_TRY(lvni_run_accelerator_visible(c, &visible));
    const lvn_status s = take_devices(c, command, &visible, notices, r);
    lvni_launch_visible_free(&visible);
    return s;
}

lvn_status lvni_run_rank_request_read(lvni_core_config *c, const lvni_run_ranks_command *command,
                                      lvni_run_rank_request *out)
{
    *out = (lvni_run_rank_request){0};
    lvni_core_notices notices = {0};
    const lvn_status found = find_all(c, command, &notices, out); /* and whether to be strict */
    LVN_TRY(
        lvni_run_report_start(found, out->strict, lvni_core_config_is_on(c, "quiet"), &notices));
    if (lvni_core_config_has(c, "strict") && out->strict != lvni_core_config_bool(c, "strict")) {
        LVN_TRY(lvni_core_config_set(c, "strict", out->strict ? "true" : "false", "LEVIN_STRICT"));
    }
    const bool several = lvni_run_is_one_of_several(&out->info) || out->devices > 1,
               sharded = strcmp(lvni_core_config_str(c, "strategy"), "sharded") == 0;
    if (several && sharded && command->recipe != NULL && command->command[0] == NULL) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "strategy=sharded is for `levin train`, which starts a process for each device: "
                 "in a program use strategy=ddp");
    }
    const bool staged = strcmp(lvni_core_config_str(c, "strategy"), "balance") == 0;
    if (several && staged && command->recipe != NULL &&
        (command->command[0] == NULL || lvni_run_is_one_of_several(&out->info))) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "strategy=balance is for one `levin train` process, whose threads have the "
                 "devices, so far: %s",
                 command->command[0] == NULL ? "in a program use strategy=dp"
                                             : "start it without a launcher, or use strategy=ddp");
    }
    if (!lvni_run_is_one_of_several(&out->info) && command->recipe != NULL &&
        command->command[0] == NULL && several) {
        /* a user's program is not started again: its ranks are threads */
        out->threads = true;
        return set(c, "strategy",
                   strcmp(lvni_core_config_str(c, "strategy"), "ddp2") == 0 ? "ddp2" : "dp");
    }
    return set(c, "strategy",
               out->threads ? lvni_core_config_str(c, "strategy")
                            : name_of(!several  ? LVNI_MODE_SINGLE
                                      : sharded ? LVNI_MODE_SHARDED
                                                : LVNI_MODE_DDP));
}
