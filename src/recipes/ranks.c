/* Which ranks a run has (ranks.h): configuration and environment become a request, which this
 * process fulfils with threads (rank_start.c), as one of several processes (rank_process.c), or by
 * becoming the launcher of its ranks. */
#include "recipes/ranks.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/signals.h"
#include "launch/env_vars.h"
#include "launch/rank_resources.h"
#include "log/run_log.h"
#include "recipes/devices.h"
#include "recipes/options.h"
#include "recipes/rank_impl.h"
#include "recipes/report_error.h"
#include "recipes/run_dir.h"

#include <errno.h>
#include <levin/device.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What configuration and environment request. */
typedef struct request {
    lvni_launch_rank_info info;
    int devices; /* of this node; on the CPU its ranks */
    int *index;  /* their numbers on the machine; NULL: the CPU */
    int mine;    /* one process of several: its number among them, -1: the CPU */
    bool threads;
    bool strict; /* warnings are errors */
} request;

static void request_free(request *r)
{
    lvni_launch_rank_info_free(&r->info);
    lvni_core_free(r->index);
    *r = (request){0};
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
    return mode == LVNI_MODE_SINGLE ? "single"
           : mode == LVNI_MODE_DP   ? "dp"
           : mode == LVNI_MODE_DDP2 ? "ddp2"
                                    : "ddp";
}

static bool is_one_of_several(const lvni_launch_rank_info *info)
{
    return info->world > 1;
}

/* A task of srun starts no others, also when it is the only one: its step should have a task for
 * each device. A plan may be about any number of devices, wherever it is printed. */
static bool is_started_rank(const lvni_launch_rank_info *info,
                            const lvni_recipes_ranks_command *command)
{
    return is_one_of_several(info) ||
           (info->source == LVNI_SOURCE_SLURM && (command->recipe != NULL || command->uses));
}

/* A list has one for each rank of this node. */
static bool is_reported(const request *r, const lvni_launch_device_choice *choice)
{
    return choice->listed && choice->n == r->info.local_world && r->info.local_rank >= 0 &&
           !r->threads;
}

/* Which of the chosen devices is this rank's; the only rank of its step has that one alone. */
static lvn_status take_mine(const lvni_core_config *c, const lvni_launch_device_choice *choice,
                            const lvni_launch_visible *visible, lvni_core_notices *notices,
                            request *r)
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
        /* all ranks are on one node in this version, or refused at the rendezvous */
        seen.local_world = seen.world;
    }
    LVN_TRY(lvni_launch_rank_info_check_devices(&seen, environ, &d, notices));
    LVN_TRY(lvni_launch_rank_info_device(&r->info, environ, &d, notices, &r->mine));
    /* also where ranks share devices */
    r->mine = is_reported(r, choice) ? choice->index[r->info.local_rank] : r->mine;
    if (r->mine >= 0) {
        r->mine = visible->device[r->mine].physical;
    }
    if (!r->threads && !is_one_of_several(&r->info)) {
        r->devices = 1;
        if (r->index != NULL) {
            r->index[0] = r->mine;
        }
    }
    return LVN_OK;
}

/* The devices by their numbers on the machine. */
static lvn_status take_devices(const lvni_core_config *c, const lvni_recipes_ranks_command *command,
                               const lvni_launch_visible *visible, lvni_core_notices *notices,
                               request *r)
{
    lvni_launch_device_choice choice = {0};
    LVN_TRY(lvni_recipes_rank_devices(c, &r->info, visible, command->uses, notices, &choice));
    r->devices = choice.n;
    const lvni_launch_run_mode mode =
        lvni_launch_run_mode_choose(mode_named(lvni_core_config_str(c, "strategy")), choice.n,
                                    r->info.nnodes > 0 ? r->info.nnodes : 1, notices);
    r->threads = lvni_launch_run_mode_threads(mode);
    lvn_status s = LVN_OK;
    if (choice.index != NULL) {
        r->index = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)choice.n, sizeof *r->index);
        s = r->index == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    for (int i = 0; s == LVN_OK && choice.index != NULL && r->index != NULL && i < choice.n; i++) {
        r->index[i] = visible->device[choice.index[i]].physical;
    }
    if (s == LVN_OK && is_started_rank(&r->info, command)) {
        s = take_mine(c, &choice, visible, notices, r);
    } else if (s == LVN_OK && choice.no_gpu && (command->recipe != NULL || command->uses)) {
        /* a plan may be about devices of another machine */
        lvni_launch_rank_info_warn_of_cpu(choice.n, notices);
    }
    lvni_launch_device_choice_free(&choice);
    return s;
}

/* Before the rendezvous, and reported by the first rank alone. */
static lvn_status check_one_node(const lvni_launch_rank_info *info, lvni_core_notices *notices)
{
    if (info->nnodes <= 1) {
        return LVN_OK;
    }
    const lvn_status s = lvni_core_notice_error(
        notices, 119,
        "the ranks run on %d nodes, but this version of levin trains on one: several come later",
        info->nnodes);
    if (info->from[LVNI_RANK_INFO_NNODES] != NULL) {
        lvni_launch_env_found(environ, info->from[LVNI_RANK_INFO_NNODES], notices);
    } else {
        lvni_core_notice_found(notices, "nnodes=%d (source %s)", info->nnodes,
                               lvni_launch_source_name(info->source));
    }
    const char *node = info->source == LVNI_SOURCE_SLURM ? "#SBATCH --nodes=1, or srun --nodes=1"
                                                         : "start all ranks on one node";
    lvni_core_notice_fix(notices, "%s", node);
    return s;
}

/* E101 shows the command line behind srun: the program as it was called, and its arguments. */
static lvn_status write_arguments(const lvni_recipes_ranks_command *command, const char ***out,
                                  int *n)
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

static lvn_status find_rank_info(const lvni_core_config *c,
                                 const lvni_recipes_ranks_command *command,
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
    const lvn_status s = lvni_launch_rank_info_detect(environ, &o, notices, info);
    lvni_core_free(args);
    return s;
}

static lvn_status find_all(lvni_core_config *c, const lvni_recipes_ranks_command *command,
                           lvni_core_notices *notices, request *r)
{
    lvni_launch_visible visible;
    LVN_TRY(
        lvni_launch_env_strict(environ, lvni_core_config_switch(c, "strict"), notices, &r->strict));
    LVN_TRY(find_rank_info(c, command, notices, &r->info));
    LVN_TRY(check_one_node(&r->info, notices));
    LVN_TRY(lvni_launch_rank_info_check_address_here(&r->info, notices));
    LVN_TRY(lvni_recipes_accelerator_resolve(c));
    LVN_TRY(lvni_recipes_accelerator_visible(c, &visible));
    const lvn_status s = take_devices(c, command, &visible, notices, r);
    lvni_launch_visible_free(&visible);
    return s;
}

static lvn_status read_request(lvni_core_config *c, const lvni_recipes_ranks_command *command,
                               request *out)
{
    *out = (request){0};
    lvni_core_notices notices = {0};
    const lvn_status found = find_all(c, command, &notices, out); /* and whether to be strict */
    LVN_TRY(lvni_recipes_report_start(found, out->strict, lvni_core_config_is_on(c, "quiet"),
                                      &notices));
    if (lvni_core_config_has(c, "strict") && out->strict != lvni_core_config_bool(c, "strict")) {
        LVN_TRY(lvni_core_config_set(c, "strict", out->strict ? "true" : "false", "LEVIN_STRICT"));
    }
    const bool several = is_one_of_several(&out->info) || out->devices > 1;
    if (!is_one_of_several(&out->info) && command->recipe != NULL && command->command[0] == NULL &&
        several) {
        /* a user's program is not started again: its ranks are threads */
        out->threads = true;
        return set(c, "strategy",
                   strcmp(lvni_core_config_str(c, "strategy"), "ddp2") == 0 ? "ddp2" : "dp");
    }
    return set(c, "strategy",
               out->threads ? lvni_core_config_str(c, "strategy")
                            : name_of(several ? LVNI_MODE_DDP : LVNI_MODE_SINGLE));
}

static int share(int cores, int ranks)
{
    return cores / ranks > 1 ? cores / ranks : 1;
}

static lvni_recipes_rank rank_of(const request *r, int rank)
{
    const int cores = lvni_recipes_usable_cores();
    return (lvni_recipes_rank){.rank = rank,
                               .world = r->devices,
                               .device = r->index != NULL ? r->index[rank] : 0,
                               .cores = share(cores, r->devices),
                               .cores_all = cores};
}

/* Of the ranks that this command has or starts, all on this node. */
static lvn_status choose_transport(const lvni_core_config *c, const request *r,
                                   lvni_dist_choice *out)
{
    *out = (lvni_dist_choice){0};
    return r->devices > 1 ? lvni_recipes_choose_transport(c, r->devices, 1, r->threads, out)
                          : LVN_OK;
}

static lvn_status open_threads(const request *r, const lvni_dist_choice *transport,
                               lvni_recipes_ranks *out)
{
    out->how = r->devices > 1 ? "threads" : NULL;
    out->world = r->devices;
    out->rank = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)r->devices, sizeof *out->rank);
    lvni_dist_comm **comm = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)r->devices, sizeof *comm);
    lvn_status s = out->rank == NULL || comm == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (s == LVN_OK && r->devices > 1) {
        s = lvni_dist_comm_threads(r->devices, false, comm);
    }
    for (out->n = 0; s == LVN_OK && out->n < r->devices; out->n++) {
        out->rank[out->n] = rank_of(r, out->n);
        out->rank[out->n].comm = comm[out->n];
        out->rank[out->n].transport = *transport;
    }
    lvni_core_free(comm);
    return s;
}

static lvn_status check(const lvni_core_config *c, const lvni_recipes_ranks_command *command)
{
    return command->check == NULL ? LVN_OK : command->check(c);
}

/* By rank 0; the others wait for its result, so that an error is reported once. */
static lvn_status check_together(const lvni_core_config *c,
                                 const lvni_recipes_ranks_command *command,
                                 const lvni_recipes_rank *rank)
{
    const lvn_status own = rank->rank == 0 ? check(c, command) : LVN_OK;
    const lvn_error error = *lvn_last_error();
    const lvn_status s = lvni_dist_comm_agree_status(rank->comm, own, "the start");
    if (own != LVN_OK) {
        return lvn_error_adopt(&error);
    }
    if (s != LVN_OK && s != LVN_ERR_PEER) {
        LVN_FAIL(LVN_ERR_PEER, "rank 0 refuses to begin");
    }
    return s;
}

static lvn_status open_process(const lvni_core_config *c, const request *r,
                               const lvni_recipes_ranks_command *command, lvni_recipes_ranks *out)
{
    if (r->threads) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "strategy=%s is one process per node, and this is rank %d of %d: start one, or "
                 "omit strategy=",
                 lvni_core_config_str(c, "strategy"), r->info.rank, r->info.world);
    }
    out->how = "processes";
    out->world = r->info.world;
    LVN_TRY(lvni_recipes_check_restarts(c, &r->info, false));
    out->rank = lvni_core_calloc(LVNI_TAG_CONFIG, 1, sizeof *out->rank);
    if (out->rank == NULL) {
        return LVN_ERR_MEMORY;
    }
    out->n = 1;
    out->rank->device = r->mine > 0 ? r->mine : 0;
    lvni_log_set_follower(r->info.rank > 0);
    lvni_recipes_report_as_rank(r->info.rank);
    LVN_TRY(lvni_core_error_record_begin(lvni_launch_env_get(environ, "LEVIN_ERROR_FILE"),
                                         r->info.rank));
    LVN_TRY(lvni_core_error_record_catch_signals());
    LVN_TRY(lvni_recipes_rank_process_join(c, &r->info, out->rank, &out->process));
    return check_together(c, command, out->rank);
}

/* num_workers=. local: ranks of this node, which may be more than were started: this process has
 * them as threads, or is about to start them. W202, W208, W209. */
static int count_workers(const lvni_core_config *c, const lvni_launch_rank_info *info, int local,
                         const lvni_recipes_rank *rank, lvni_core_notices *notices)
{
    lvni_launch_rank_info seen = *info;
    if (local > info->local_world && info->local_world > 0) {
        /* they share the cores of this process, as those of a launcher do */
        seen.source = LVNI_SOURCE_LEVIN;
    }
    seen.local_world = local;
    const int cpus = lvni_recipes_usable_cores();
    const lvni_launch_workers_request o = {.asked =
                                               lvni_core_config_is_set(c, "num_workers")
                                                   ? (int)lvni_core_config_int(c, "num_workers")
                                                   : -1,
                                           .cpus = cpus,
                                           .bound = rank->cores == cpus && rank->cores_all > cpus};
    return lvni_launch_workers_choose(&seen, &o, notices);
}

/* For ranks of this process, of `local` on this node; warnings about it are reported. */
static lvn_status choose_workers(const lvni_core_config *c, const request *r, int local,
                                 lvni_recipes_rank *rank, int n)
{
    lvni_core_notices notices = {.rank = r->info.rank};
    if (!lvni_core_config_has(c, "num_workers")) {
        return LVN_OK;
    }
    for (int i = 0; i < n; i++) {
        rank[i].workers = i > 0 ? rank->workers : count_workers(c, &r->info, local, rank, &notices);
    }
    return lvni_recipes_report_start(LVN_OK, r->strict, lvni_core_config_is_on(c, "quiet"),
                                     &notices);
}

/* Before ranks are started or threads become ranks. *made: of the directory that was claimed. */
static lvn_status prepare_alone(const lvni_core_config *c, const request *r,
                                const lvni_recipes_ranks_command *command, bool starts, char **dir,
                                size_t *made)
{
    lvni_recipes_rank first = rank_of(r, 0);
    LVN_TRY(lvni_recipes_check_restarts(c, &r->info, starts));
    LVN_TRY(check(c, command));
    if (starts && r->strict) { /* before there are ranks; else rank 0 reports it */
        LVN_TRY(choose_workers(c, r, r->devices, &first, 1));
    }
    if (command->recipe != NULL && r->devices > 1) { /* rather than by many ranks */
        LVN_TRY(lvni_recipes_check_plan(c, &first));
    }
    if (!starts) {
        return LVN_OK;
    }
    if (*dir != NULL) { /* its logs are those of the run that is there */
        LVN_TRY(lvni_recipes_run_dir_check_free(*dir));
    } else if (command->recipe != NULL) {
        LVN_TRY(lvni_recipes_run_dir_claim(command->recipe, dir, made));
    }
    lvni_core_signals_hand_over();
    return LVN_OK;
}

/* This process was not started as one of several. */
static lvn_status open_alone(const lvni_core_config *c, const request *r,
                             const lvni_recipes_ranks_command *command, lvni_recipes_ranks *out)
{
    char *dir = NULL;
    size_t made = 0;
    lvni_dist_choice transport;
    LVN_TRY(choose_transport(c, r, &transport));
    LVN_TRY(command->recipe == NULL ? LVN_OK : lvni_recipes_run_dir_choose(c, &dir));
    const bool starts = r->devices > 1 && !r->threads && command->command[0] != NULL;
    lvn_status s = prepare_alone(c, r, command, starts, &dir, &made);
    if (s == LVN_OK) {
        s = starts ? lvni_recipes_rank_start(c, command, dir, made)
                   : open_threads(r, &transport, out);
    }
    if (made > 0) { /* still here: no rank was started */
        lvni_recipes_run_dir_unclaim(dir, made);
    }
    lvni_core_free(dir);
    return s;
}

/* With the status of the command, whose error is the thread's. */
static lvn_status close_ranks(lvni_recipes_ranks *ranks, lvn_status status)
{
    lvn_status s = status;
    if (ranks->process != NULL) {
        lvni_core_signals_hold(); /* the launcher ends all ranks when the first has failed */
        /* the communicator goes with it */
        s = lvni_recipes_rank_process_leave(ranks->process, status, ranks->kept);
    } else {
        if (status != LVN_OK) {
            lvn_error_append("%-s", ranks->kept);
        }
        for (int i = 0; i < ranks->n; i++) {
            lvni_dist_comm_destroy(ranks->rank[i].comm);
        }
    }
    lvni_core_free(ranks->rank);
    lvni_core_pin_entries_destroy(ranks->pins);
    *ranks = (lvni_recipes_ranks){0};
    lvni_log_set_follower(false);
    return s;
}

/* A choice counts for all ranks: that of the first whose number comes. */
static lvn_status agree_on_pin(void *user, const char *key, const char *value,
                               char counts[LVNI_PIN_TEXT])
{
    enum { WAIT_S = 60 };
    lvni_control *control = user;
    char value_key[LVNI_PIN_TEXT + 16], turn_key[LVNI_PIN_TEXT + 16];
    int64_t turn = 0;
    snprintf(value_key, sizeof value_key, "pin/%s", key);
    snprintf(turn_key, sizeof turn_key, "pin-turn/%s", key);
    LVN_TRY(lvni_control_add(control, turn_key, 1, &turn));
    if (turn == 1) {
        snprintf(counts, LVNI_PIN_TEXT, "%s", value);
        return lvni_control_set(control, value_key, value, strlen(value));
    }
    char *bytes = NULL;
    size_t n;
    LVN_TRY(lvni_control_get(control, value_key, WAIT_S, &bytes, &n));
    snprintf(counts, LVNI_PIN_TEXT, "%s", bytes);
    lvni_core_free(bytes);
    return LVN_OK;
}

/* One list for the ranks of this process; those of other processes are asked. */
static lvn_status make_pins(lvni_recipes_ranks *ranks)
{
    LVN_TRY(lvni_core_pin_entries_create(&ranks->pins));
    for (int i = 0; i < ranks->n; i++) {
        ranks->rank[i].pins = ranks->pins;
    }
    if (ranks->n > 0 && ranks->rank->control != NULL) {
        lvni_core_pin_entries_agree_by(ranks->pins, agree_on_pin, ranks->rank->control);
    }
    return LVN_OK;
}

static lvn_status open_ranks(lvni_core_config *c, const lvni_recipes_ranks_command *command,
                             lvni_recipes_ranks *out)
{
    *out = (lvni_recipes_ranks){0};
    request r;
    lvn_status s = read_request(c, command, &r);
    if (s == LVN_OK) {
        s = is_one_of_several(&r.info) ? open_process(c, &r, command, out)
                                       : open_alone(c, &r, command, out);
    }
    /* all are on one node */
    const int local = !is_one_of_several(&r.info) ? r.devices
                      : r.info.local_world > 0    ? r.info.local_world
                                                  : r.info.world;
    if (s == LVN_OK) {
        s = choose_workers(c, &r, local, out->rank, out->n);
    }
    request_free(&r);
    if (s == LVN_OK) {
        s = make_pins(out);
    }
    return s == LVN_OK ? LVN_OK : close_ranks(out, s);
}

lvn_status lvni_recipes_ranks_run(lvni_core_config *config,
                                  const lvni_recipes_ranks_command *command)
{
    lvni_recipes_ranks ranks;
    LVN_TRY(open_ranks(config, command, &ranks));
    return close_ranks(&ranks, command->run(command->user, &ranks));
}

lvn_status lvni_recipes_ranks_estimate(lvni_core_config *c, lvni_recipes_rank *out)
{
    request r;
    const lvni_recipes_ranks_command none = {0};
    lvn_status s = read_request(c, &none, &r);
    *out = (lvni_recipes_rank){0};
    if (s == LVN_OK) {
        *out = rank_of(&r, 0);
        s = choose_transport(c, &r, &out->transport);
    }
    if (s == LVN_OK) {
        s = choose_workers(c, &r, r.devices, out, 1);
    }
    request_free(&r);
    return s;
}
