/* Which ranks a run has (ranks.h). */
#include "recipes/ranks.h"

#include "core/alloc.h"
#include "core/error_record.h"
#include "core/host_name.h"
#include "core/signals.h"
#include "launch/env_vars.h"
#include "launch/launch.h"
#include "launch/run_mode.h"
#include "launch/who.h"
#include "log/run_log.h"
#include "recipes/accelerator.h"
#include "recipes/rank_devices.h"
#include "recipes/rank_process.h"
#include "recipes/rank_start.h"
#include "recipes/rank_workers.h"
#include "recipes/report_error.h"
#include "recipes/run_dir.h"
#include "recipes/train_options.h"

#include <errno.h>
#include <levin/device.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What configuration and environment ask for. */
typedef struct wish {
    lvni_who who;
    int devices; /* of this node; on the CPU its ranks */
    int *index;  /* their numbers on the machine; NULL: the CPU */
    int mine;    /* one process of several: its number among them, -1: the CPU */
    bool threads;
    bool strict; /* warnings are errors */
} wish;

static void wish_free(wish *w)
{
    lvni_who_free(&w->who);
    lvni_free(w->index);
    *w = (wish){0};
}

static lvn_status set(lvni_config *c, const char *key, const char *value)
{
    return strcmp(lvni_config_str(c, key), value) == 0
               ? LVN_OK
               : lvni_config_set(c, key, value, "resolved at start");
}

static lvni_run_mode mode_named(const char *strategy)
{
    static const char *const names[] = {"auto", "single",  "dp",     "ddp",
                                        "ddp2", "sharded", "balance"};
    int i = 0;
    while (strcmp(names[i], strategy) != 0) { /* the row's choices, in this order */
        i++;
    }
    return (lvni_run_mode)i;
}

static const char *name_of(lvni_run_mode mode)
{
    return mode == LVNI_MODE_SINGLE ? "single"
           : mode == LVNI_MODE_DP   ? "dp"
           : mode == LVNI_MODE_DDP2 ? "ddp2"
                                    : "ddp";
}

static bool is_one_of_several(const lvni_who *who)
{
    return who->world > 1;
}

/* A task of srun starts no others, also when it is the only one: its step has a task for each
 * device, or somebody made a mistake. A plan may ask about any number of devices, wherever it is
 * printed. */
static bool is_started_rank(const lvni_who *who, const lvni_ranks_command *command)
{
    return is_one_of_several(who) ||
           (who->source == LVNI_SOURCE_SLURM && (command->recipe != NULL || command->uses));
}

/* A list has one for each rank of this node. */
static bool is_told(const wish *w, const lvni_device_choice *choice)
{
    return choice->listed && choice->n == w->who.local_world && w->who.local_rank >= 0 &&
           !w->threads;
}

/* Which of the chosen devices is this rank's; the only rank of its step has that one alone. */
static lvn_status take_mine(const lvni_config *c, const lvni_device_choice *choice,
                            const lvni_visible *visible, lvni_notices *notices, wish *w)
{
    char host[256];
    lvni_host_name(host, sizeof host);
    const lvni_hosts *hosts = &w->who.hosts;
    const bool listed = w->who.node_rank >= 0 && (size_t)w->who.node_rank < hosts->n;
    const lvni_who_devices d = {.choice = choice,
                                .visible = visible,
                                .key = lvni_config_spelled(c, "devices"),
                                .origin = lvni_config_origin(c, "devices"),
                                .threads = w->threads,
                                .allow_shared = lvni_config_bool(c, "allow_shared_device"),
                                .host = listed ? lvni_hosts_name(hosts, (size_t)w->who.node_rank)
                                               : host};
    lvni_who seen = w->who;
    if (seen.local_world == LVNI_WHO_UNKNOWN) {
        /* all ranks are on one node in this version, or refused when they meet */
        seen.local_world = seen.world;
    }
    LVN_TRY(lvni_who_check_devices(&seen, environ, &d, notices));
    LVN_TRY(lvni_who_device(&w->who, environ, &d, notices, &w->mine));
    /* also where ranks share devices */
    w->mine = is_told(w, choice) ? choice->index[w->who.local_rank] : w->mine;
    if (w->mine >= 0) {
        w->mine = visible->device[w->mine].physical;
    }
    if (!w->threads && !is_one_of_several(&w->who)) {
        w->devices = 1;
        if (w->index != NULL) {
            w->index[0] = w->mine;
        }
    }
    return LVN_OK;
}

/* The devices by their numbers on the machine. */
static lvn_status take_devices(const lvni_config *c, const lvni_ranks_command *command,
                               const lvni_visible *visible, lvni_notices *notices, wish *w)
{
    lvni_device_choice choice = {0};
    LVN_TRY(lvni_rank_devices(c, &w->who, visible, command->uses, notices, &choice));
    w->devices = choice.n;
    const lvni_run_mode mode =
        lvni_run_mode_choose(mode_named(lvni_config_str(c, "strategy")), choice.n,
                             w->who.nnodes > 0 ? w->who.nnodes : 1, notices);
    w->threads = lvni_run_mode_threads(mode);
    lvn_status s = LVN_OK;
    if (choice.index != NULL) {
        w->index = lvni_calloc(LVNI_TAG_CONFIG, (size_t)choice.n, sizeof *w->index);
        s = w->index == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    for (int i = 0; s == LVN_OK && choice.index != NULL && w->index != NULL && i < choice.n; i++) {
        w->index[i] = visible->device[choice.index[i]].physical;
    }
    if (s == LVN_OK && is_started_rank(&w->who, command)) {
        s = take_mine(c, &choice, visible, notices, w);
    } else if (s == LVN_OK && choice.no_gpu && (command->recipe != NULL || command->uses)) {
        /* a plan may ask about devices of another machine */
        lvni_who_warn_of_cpu(choice.n, notices);
    }
    lvni_device_choice_free(&choice);
    return s;
}

/* Before the ranks look for each other, and told by the first of them alone. */
static lvn_status check_one_node(const lvni_who *who, lvni_notices *notices)
{
    if (who->nnodes <= 1) {
        return LVN_OK;
    }
    const lvn_status s = lvni_notice_error(
        notices, 119,
        "the ranks run on %d nodes, but this version of levin trains on one: several come later",
        who->nnodes);
    if (who->from[LVNI_WHO_NNODES] != NULL) {
        lvni_env_found(environ, who->from[LVNI_WHO_NNODES], notices);
    } else {
        lvni_notice_found(notices, "nnodes=%d (source %s)", who->nnodes,
                          lvni_source_name(who->source));
    }
    const char *node = who->source == LVNI_SOURCE_SLURM ? "#SBATCH --nodes=1, or srun --nodes=1"
                                                        : "start all ranks on one node";
    lvni_notice_fix(notices, "%s", node);
    return s;
}

/* E101 shows the command line behind srun: the program as it was called, and its words. */
static lvn_status write_words(const lvni_ranks_command *command, const char ***out, int *n)
{
    const char **words = lvni_calloc(LVNI_TAG_CONFIG, (size_t)command->n + 3, sizeof *words);
    if (words == NULL) {
        return LVN_ERR_MEMORY;
    }
    *n = 0;
    words[(*n)++] = program_invocation_name;
    for (int i = 0; i < 2 && command->command[i] != NULL; i++) {
        words[(*n)++] = command->command[i];
    }
    for (int i = 0; i < command->n; i++) {
        words[(*n)++] = command->words[i];
    }
    *out = words;
    return LVN_OK;
}

static lvn_status find_who(const lvni_config *c, const lvni_ranks_command *command,
                           lvni_notices *notices, lvni_who *who)
{
    const bool given =
        lvni_config_has(c, "num_nodes") && lvni_config_layer(c, "num_nodes") != LVNI_LAYER_DEFAULT;
    const bool way =
        lvni_config_has(c, "rdzv") && lvni_config_layer(c, "rdzv") != LVNI_LAYER_DEFAULT;
    lvni_who_options o = {.nodes = given ? (int)lvni_config_int(c, "num_nodes") : 0,
                          .launcher = command->recipe == NULL,
                          .rdzv = way ? lvni_config_str(c, "rdzv") : NULL};
    const char **words = NULL;
    LVN_TRY(write_words(command, &words, &o.n_words));
    o.words = words;
    const lvn_status s = lvni_who_detect(environ, &o, notices, who);
    lvni_free(words);
    return s;
}

static lvn_status find_all(lvni_config *c, const lvni_ranks_command *command, lvni_notices *notices,
                           wish *w)
{
    lvni_visible visible;
    LVN_TRY(lvni_env_strict(environ, lvni_config_told(c, "strict"), notices, &w->strict));
    LVN_TRY(find_who(c, command, notices, &w->who));
    LVN_TRY(check_one_node(&w->who, notices));
    LVN_TRY(lvni_who_check_address_here(&w->who, notices));
    LVN_TRY(lvni_accelerator_resolve(c));
    LVN_TRY(lvni_visible_make(lvni_env_raw(environ, "CUDA_VISIBLE_DEVICES"),
                              lvni_accelerator_is_sim(c) ? lvn_device_count(LVN_DEVICE_SIM) : 0,
                              NULL, &visible));
    const lvn_status s = take_devices(c, command, &visible, notices, w);
    lvni_visible_free(&visible);
    return s;
}

static lvn_status read_wish(lvni_config *c, const lvni_ranks_command *command, wish *out)
{
    *out = (wish){0};
    lvni_notices notices = {0};
    const lvn_status found = find_all(c, command, &notices, out); /* and whether to be strict */
    LVN_TRY(lvni_report_start(found, out->strict, lvni_config_says(c, "quiet"), &notices));
    if (lvni_config_has(c, "strict") && out->strict != lvni_config_bool(c, "strict")) {
        LVN_TRY(lvni_config_set(c, "strict", out->strict ? "true" : "false", "LEVIN_STRICT"));
    }
    const bool several = is_one_of_several(&out->who) || out->devices > 1;
    if (!is_one_of_several(&out->who) && command->recipe != NULL && command->command[0] == NULL &&
        several) {
        /* a program of somebody's own is not started again: its ranks are threads */
        out->threads = true;
        return set(c, "strategy",
                   strcmp(lvni_config_str(c, "strategy"), "ddp2") == 0 ? "ddp2" : "dp");
    }
    return set(c, "strategy",
               out->threads ? lvni_config_str(c, "strategy")
                            : name_of(several ? LVNI_MODE_DDP : LVNI_MODE_SINGLE));
}

static int share(int cores, int ranks)
{
    return cores / ranks > 1 ? cores / ranks : 1;
}

static lvni_rank rank_of(const wish *w, int rank)
{
    const int cores = lvni_usable_cores();
    return (lvni_rank){.rank = rank,
                       .world = w->devices,
                       .device = w->index != NULL ? w->index[rank] : 0,
                       .cores = share(cores, w->devices),
                       .cores_all = cores};
}

static lvn_status open_threads(const wish *w, lvni_ranks *out)
{
    out->how = w->devices > 1 ? "threads" : NULL;
    out->world = w->devices;
    out->rank = lvni_calloc(LVNI_TAG_CONFIG, (size_t)w->devices, sizeof *out->rank);
    lvni_comm **comm = lvni_calloc(LVNI_TAG_CONFIG, (size_t)w->devices, sizeof *comm);
    lvn_status s = out->rank == NULL || comm == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (s == LVN_OK && w->devices > 1) {
        s = lvni_comm_threads(w->devices, false, comm);
    }
    for (out->n = 0; s == LVN_OK && out->n < w->devices; out->n++) {
        out->rank[out->n] = rank_of(w, out->n);
        out->rank[out->n].comm = comm[out->n];
    }
    lvni_free(comm);
    return s;
}

static lvn_status check(const lvni_config *c, const lvni_ranks_command *command)
{
    return command->check == NULL ? LVN_OK : command->check(c);
}

/* By rank 0; the others wait for what it finds, so that nobody tells the same mistake once more. */
static lvn_status check_together(const lvni_config *c, const lvni_ranks_command *command,
                                 const lvni_rank *rank)
{
    const lvn_status own = rank->rank == 0 ? check(c, command) : LVN_OK;
    const lvn_error error = *lvn_last_error();
    const lvn_status s = lvni_comm_agree_status(rank->comm, own, "the start");
    if (own != LVN_OK) {
        return lvn_error_adopt(&error);
    }
    if (s != LVN_OK && s != LVN_ERR_PEER) {
        LVN_FAIL(LVN_ERR_PEER, "rank 0 refuses to begin");
    }
    return s;
}

static lvn_status open_process(const lvni_config *c, const wish *w,
                               const lvni_ranks_command *command, lvni_ranks *out)
{
    if (w->threads) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "strategy=%s is one process per node, and this is rank %d of %d: start one, or "
                 "leave strategy= out",
                 lvni_config_str(c, "strategy"), w->who.rank, w->who.world);
    }
    out->how = "processes";
    out->world = w->who.world;
    LVN_TRY(lvni_check_restarts(c, &w->who, false));
    out->rank = lvni_calloc(LVNI_TAG_CONFIG, 1, sizeof *out->rank);
    if (out->rank == NULL) {
        return LVN_ERR_MEMORY;
    }
    out->n = 1;
    out->rank->device = w->mine > 0 ? w->mine : 0;
    lvni_log_set_follower(w->who.rank > 0);
    lvni_report_as_rank(w->who.rank);
    LVN_TRY(lvni_error_record_begin(lvni_env_get(environ, "LEVIN_ERROR_FILE"), w->who.rank));
    LVN_TRY(lvni_error_record_catch_signals());
    LVN_TRY(lvni_rank_process_join(c, &w->who, out->rank, &out->process));
    return check_together(c, command, out->rank);
}

/* For ranks of this process, of `local` on this node, and what there is to say about it. */
static lvn_status choose_workers(const lvni_config *c, const wish *w, int local, lvni_rank *rank,
                                 int n)
{
    lvni_notices notices = {.rank = w->who.rank};
    if (!lvni_config_has(c, "num_workers")) {
        return LVN_OK;
    }
    for (int i = 0; i < n; i++) {
        rank[i].workers =
            i > 0 ? rank->workers : lvni_rank_workers(c, &w->who, local, rank, &notices);
    }
    return lvni_report_start(LVN_OK, w->strict, lvni_config_says(c, "quiet"), &notices);
}

/* Nobody has started this process as one of several. */
static lvn_status open_alone(const lvni_config *c, const wish *w, const lvni_ranks_command *command,
                             lvni_ranks *out)
{
    char *dir = NULL;
    size_t made = 0;
    LVN_TRY(command->recipe == NULL ? LVN_OK : lvni_run_dir_choose(c, &dir));
    const bool starts = w->devices > 1 && !w->threads && command->command[0] != NULL;
    lvn_status s = lvni_check_restarts(c, &w->who, starts);
    s = s == LVN_OK ? check(c, command) : s;
    lvni_rank first = rank_of(w, 0);
    if (s == LVN_OK && starts && w->strict) { /* before there are ranks; else rank 0 tells it */
        s = choose_workers(c, w, w->devices, &first, 1);
    }
    /* rather than by many ranks */
    s = s == LVN_OK && command->recipe != NULL && w->devices > 1 ? lvni_check_plan(c, &first) : s;
    /* its logs are those of the run that is there */
    s = s == LVN_OK && dir != NULL && starts ? lvni_run_dir_check_free(dir) : s;
    s = s == LVN_OK && dir == NULL && starts && command->recipe != NULL
            ? lvni_run_dir_claim(command->recipe, &dir, &made)
            : s;
    if (s == LVN_OK && starts) {
        lvni_core_signals_hand_over();
    }
    s = s != LVN_OK ? s : starts ? lvni_rank_start(c, command, dir, made) : open_threads(w, out);
    if (made > 0) { /* still here: no rank was started */
        lvni_run_dir_unclaim(dir, made);
    }
    lvni_free(dir);
    return s;
}

lvn_status lvni_ranks_open(lvni_config *c, const lvni_ranks_command *command, lvni_ranks *out)
{
    *out = (lvni_ranks){0};
    wish w;
    lvn_status s = read_wish(c, command, &w);
    if (s == LVN_OK) {
        s = is_one_of_several(&w.who) ? open_process(c, &w, command, out)
                                      : open_alone(c, &w, command, out);
    }
    /* all are on one node */
    const int local = !is_one_of_several(&w.who) ? w.devices
                      : w.who.local_world > 0    ? w.who.local_world
                                                 : w.who.world;
    s = s == LVN_OK ? choose_workers(c, &w, local, out->rank, out->n) : s;
    wish_free(&w);
    return s == LVN_OK ? LVN_OK : lvni_ranks_close(out, s);
}

lvn_status lvni_ranks_close(lvni_ranks *ranks, lvn_status status)
{
    lvn_status s = status;
    if (ranks->process != NULL) {
        lvni_core_signals_hold(); /* the launcher ends all ranks when the first has failed */
        /* the communicator goes with it */
        s = lvni_rank_process_leave(ranks->process, status, ranks->kept);
    } else {
        if (status != LVN_OK) {
            lvn_error_append("%-s", ranks->kept);
        }
        for (int i = 0; i < ranks->n; i++) {
            lvni_comm_destroy(ranks->rank[i].comm);
        }
    }
    lvni_free(ranks->rank);
    *ranks = (lvni_ranks){0};
    lvni_log_set_follower(false);
    return s;
}

lvn_status lvni_ranks_foresee(lvni_config *c, lvni_rank *out)
{
    wish w;
    const lvni_ranks_command none = {0};
    lvn_status s = read_wish(c, &none, &w);
    *out = s == LVN_OK ? rank_of(&w, 0) : (lvni_rank){0};
    s = s == LVN_OK ? choose_workers(c, &w, w.devices, out, 1) : s;
    wish_free(&w);
    return s;
}
