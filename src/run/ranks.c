/* Which ranks a run has (ranks.h): configuration and environment become a request, which this
 * process fulfils with threads (rank_start.c), as one of several processes (rank_process.c), or by
 * becoming the launcher of its ranks. */
#include "run/ranks.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/signals.h"
#include "launch/env_vars.h"
#include "launch/rank_resources.h"
#include "log/run_log.h"
#include "run/devices.h"
#include "run/error_record.h"
#include "run/options.h"
#include "run/rank_impl.h"
#include "run/run_dir.h"
#include "run/watchdog.h"
#include "trainer/trainer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int share(int cores, int ranks)
{
    return cores / ranks > 1 ? cores / ranks : 1;
}

static lvni_run_rank rank_of(const lvni_run_rank_request *r, int rank)
{
    const int cores = lvni_run_usable_cores();
    return (lvni_run_rank){.rank = rank,
                           .world = r->devices,
                           .device = r->index != NULL ? r->index[rank] : 0,
                           .cores = share(cores, r->devices),
                           .cores_all = cores};
}

/* Of the ranks that this command has or starts, all on this node. */
static lvn_status choose_transport(const lvni_core_config *c, const lvni_run_rank_request *r,
                                   lvni_dist_choice *out)
{
    *out = (lvni_dist_choice){0};
    return r->devices > 1 ? lvni_run_choose_transport(c, r->devices, 1, NULL, r->threads, out)
                          : LVN_OK;
}

static lvn_status open_threads(const lvni_run_rank_request *r, const lvni_dist_choice *transport,
                               lvni_run_ranks *out)
{
    out->how = r->devices > 1 ? "threads" : NULL;
    out->world = r->devices;
    out->rank = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)r->devices, sizeof *out->rank);
    lvni_dist_comm **comm = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)r->devices, sizeof *comm);
    lvn_status s;
    LVNI_TRY_DONE(s, out->rank == NULL || comm == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVNI_TRY_DONE(s, r->devices > 1 ? lvni_dist_comm_threads(r->devices, false, comm) : LVN_OK);
    for (out->n = 0; out->n < r->devices; out->n++) {
        out->rank[out->n] = rank_of(r, out->n);
        out->rank[out->n].comm = comm[out->n];
        out->rank[out->n].transport = *transport;
        if (comm[out->n] != NULL) {
            lvni_dist_choice_apply(transport, comm[out->n]);
        }
        out->rank[out->n].nodes = r->threads ? 1 : 0;
    }
done:
    lvni_core_free(comm);
    return s;
}

static lvn_status check(const lvni_core_config *c, const lvni_run_ranks_command *command)
{
    return command->check == NULL ? LVN_OK : command->check(c);
}

/* By rank 0; the others wait for its result, so that an error is reported once. */
static lvn_status check_together(const lvni_core_config *c, const lvni_run_ranks_command *command,
                                 const lvni_run_rank *rank)
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

/* What the ranks of a process do first, each on its thread. */
typedef struct start {
    const lvni_core_config *config;
    const lvni_run_ranks_command *command;
} start;

static lvn_status begin_together(void *user, const lvni_run_rank *rank)
{
    const start *s = user;
    uint64_t ns;
    LVN_TRY(lvni_dist_comm_try(rank->comm, &ns));
    lvni_log_line(LVNI_LOG_DEBUG, "%d ranks %s: the first sum of 1 MiB took %.2f ms", rank->world,
                  lvni_dist_choice_does(&rank->transport), (double)ns * 1e-6);
    return check_together(s->config, s->command, rank);
}

/* The ranks of this process: itself, or with ddp2 a thread for each device of its node. */
static lvn_status make_ranks(const lvni_run_rank_request *r, lvni_run_ranks *out)
{
    const int n = r->threads ? r->devices : 1;
    out->rank = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)n, sizeof *out->rank);
    if (out->rank == NULL) {
        return LVN_ERR_MEMORY;
    }
    out->n = n;
    for (int i = 0; i < n; i++) {
        out->rank[i].device = r->threads && r->index != NULL ? r->index[i]
                              : r->mine > 0                  ? r->mine
                                                             : 0;
    }
    return LVN_OK;
}

static lvn_status open_process(const lvni_core_config *c, const lvni_run_rank_request *r,
                               const lvni_run_ranks_command *command, lvni_run_ranks *out)
{
    out->how = r->threads ? "threads of a process on each node" : "processes";
    LVN_TRY(lvni_run_check_restarts(c, &r->info, false));
    LVN_TRY(make_ranks(r, out));
    lvni_log_set_follower(r->info.rank > 0);
    lvni_run_report_as_rank(r->info.rank);
    LVN_TRY(lvni_core_error_record_begin(
        lvni_launch_env_get(lvni_run_environment(), "LEVIN_ERROR_FILE"), r->info.rank));
    LVN_TRY(lvni_core_error_record_catch_signals());
    LVN_TRY(lvni_run_rank_process_join(c, &r->info, r->threads, out->rank, out->n, &out->process));
    out->world = out->rank->world;
    start s = {c, command};
    /* a rank that is the whole process reports its failure over the control channel first */
    return out->n == 1 ? begin_together(&s, out->rank)
                       : lvni_run_ranks_each(out, begin_together, &s);
}

/* num_workers=. local: ranks of this node, which may be more than were started: this process has
 * them as threads, or is about to start them. W202, W208, W209. */
static int count_workers(const lvni_core_config *c, const lvni_launch_rank_info *info, int local,
                         const lvni_run_rank *rank, lvni_core_notices *notices)
{
    lvni_launch_rank_info seen = *info;
    if (local > info->local_world && info->local_world > 0) {
        /* they share the cores of this process, as those of a launcher do */
        seen.source = LVNI_SOURCE_LEVIN;
    }
    seen.local_world = local;
    const int cpus = lvni_run_usable_cores();
    const lvni_launch_workers_request o = {.asked =
                                               lvni_core_config_is_set(c, "num_workers")
                                                   ? (int)lvni_core_config_int(c, "num_workers")
                                                   : -1,
                                           .cpus = cpus,
                                           .bound = rank->cores == cpus && rank->cores_all > cpus};
    return lvni_launch_workers_choose(&seen, &o, notices);
}

/* For ranks of this process, of `local` on this node; warnings about it are reported. */
static lvn_status choose_workers(const lvni_core_config *c, const lvni_run_rank_request *r,
                                 int local, lvni_run_rank *rank, int n)
{
    lvni_core_notices notices = {.rank = r->info.rank};
    if (!lvni_core_config_has(c, "num_workers")) {
        return LVN_OK;
    }
    for (int i = 0; i < n; i++) {
        rank[i].workers = i > 0 ? rank->workers : count_workers(c, &r->info, local, rank, &notices);
    }
    return lvni_run_report_start(LVN_OK, r->strict, lvni_core_config_is_on(c, "quiet"), &notices);
}

/* Before ranks are started or threads become ranks. *made: of the directory that was claimed. */
static lvn_status prepare_alone(const lvni_core_config *c, const lvni_run_rank_request *r,
                                const lvni_run_ranks_command *command, bool starts, char **dir,
                                size_t *made)
{
    lvni_run_rank first = rank_of(r, 0);
    LVN_TRY(lvni_run_check_restarts(c, &r->info, starts));
    LVN_TRY(check(c, command));
    if (starts && r->strict) { /* before there are ranks; else rank 0 reports it */
        LVN_TRY(choose_workers(c, r, r->devices, &first, 1));
    }
    if (command->recipe != NULL && r->devices > 1) { /* rather than by many ranks */
        LVN_TRY(lvni_run_check_plan(c, &first));
    }
    if (!starts) {
        return LVN_OK;
    }
    if (*dir != NULL) { /* its logs are those of the run that is there */
        LVN_TRY(lvni_run_dir_check_free(*dir));
    } else if (command->recipe != NULL && !lvni_run_is_dev_run(c)) {
        LVN_TRY(lvni_run_dir_claim(command->recipe, dir, made));
    }
    lvni_core_signals_hand_over();
    return LVN_OK;
}

/* This process was not started as one of several. */
static lvn_status open_alone(const lvni_core_config *c, const lvni_run_rank_request *r,
                             const lvni_run_ranks_command *command, lvni_run_ranks *out)
{
    char *dir = NULL;
    size_t made = 0;
    lvni_dist_choice transport;
    LVN_TRY(choose_transport(c, r, &transport));
    LVN_TRY(command->recipe == NULL || lvni_run_is_dev_run(c) ? LVN_OK
                                                              : lvni_run_dir_choose(c, &dir));
    const bool starts = r->devices > 1 && !r->threads && command->command[0] != NULL;
    lvn_status s = prepare_alone(c, r, command, starts, &dir, &made);
    if (s == LVN_OK && !starts) { /* of `levin sweep`, which has started it */
        s = lvni_core_error_record_begin(
            lvni_launch_env_get(lvni_run_environment(), "LEVIN_ERROR_FILE"), 0);
    }
    if (s == LVN_OK) {
        s = starts ? lvni_run_rank_start(c, command, dir, made) : open_threads(r, &transport, out);
    }
    if (made > 0) { /* still here: no rank was started */
        lvni_run_dir_unclaim(dir, made);
    }
    lvni_core_free(dir);
    return s;
}

/* With the status of the command, whose error is the thread's. */
static lvn_status close_ranks(lvni_run_ranks *ranks, lvn_status status)
{
    lvn_status s = status;
    lvni_run_watchdog_stop(ranks->watchdog);
    if (ranks->process != NULL) {
        lvni_core_signals_hold(); /* the launcher ends all ranks when the first has failed */
        /* the communicator goes with it */
        s = lvni_run_rank_process_leave(ranks->process, status, ranks->kept);
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
    *ranks = (lvni_run_ranks){0};
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
static lvn_status make_pins(lvni_run_ranks *ranks)
{
    LVN_TRY(lvni_core_pin_entries_create(&ranks->pins));
    for (int i = 0; i < ranks->n; i++) {
        ranks->rank[i].pins = ranks->pins;
    }
    if (ranks->process != NULL) {
        lvni_core_pin_entries_agree_by(ranks->pins, agree_on_pin, ranks->process->control);
    }
    return LVN_OK;
}

/* Those that the request asks for, on their devices. */
static lvn_status open_requested(lvni_core_config *c, const lvni_run_ranks_command *command,
                                 lvni_run_ranks *out)
{
    lvni_run_rank_request r;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_run_rank_request_read(c, command, &r));
    const bool several = lvni_run_is_one_of_several(&r.info);
    LVNI_TRY_DONE(s, several ? open_process(c, &r, command, out) : open_alone(c, &r, command, out));
    const int local = !several || r.threads    ? r.devices
                      : r.info.local_world > 0 ? r.info.local_world
                                               : r.info.world;
    s = choose_workers(c, &r, local, out->rank, out->n);
done:
    lvni_run_rank_request_free(&r);
    return s;
}

static lvn_status open_ranks(lvni_core_config *c, const lvni_run_ranks_command *command,
                             lvni_run_ranks *out)
{
    *out = (lvni_run_ranks){0};
    lvn_status s;
    LVNI_TRY_DONE(s, open_requested(c, command, out));
    LVNI_TRY_DONE(s, make_pins(out));
    LVNI_TRY_DONE(
        s, lvni_run_watchdog_start(c, out, out->process != NULL ? out->process->control : NULL,
                                   out->process != NULL ? out->process->rank : 0, &out->watchdog));
    return LVN_OK;
done:
    return close_ranks(out, s);
}

lvn_status lvni_run_ranks_run(lvni_core_config *config, const lvni_run_ranks_command *command)
{
    lvni_run_ranks ranks;
    LVN_TRY(open_ranks(config, command, &ranks));
    return close_ranks(&ranks, command->run(command->user, &ranks));
}

typedef struct shared {
    const lvni_run_rank *first; /* of this process, which the caller's text is of */
    char *text;
    size_t room;
} shared;

/* Called by lvni_run_ranks_each. */
static lvn_status share_text(void *user, const lvni_run_rank *rank)
{
    const shared *s = user;
    char *own = lvni_core_calloc(LVNI_TAG_DIST, s->room, 1);
    if (own == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (rank->rank == 0) {
        memcpy(own, s->text, s->room);
    }
    const lvn_status status = lvni_dist_comm_broadcast(rank->comm, own, s->room, 0);
    if (status == LVN_OK && rank == s->first && rank->rank != 0) {
        memcpy(s->text, own, s->room);
    }
    lvni_core_free(own);
    return status;
}

lvn_status lvni_run_ranks_share(const lvni_run_ranks *ranks, char *text, size_t room)
{
    shared s = {.first = ranks->rank, .text = text, .room = room};
    return ranks->world > 1 ? lvni_run_ranks_each(ranks, share_text, &s) : LVN_OK;
}

/* How it went in a process. */
typedef struct outcome {
    int32_t status;
    char message[sizeof((lvn_error *)NULL)->message];
} outcome;

typedef struct agreement {
    const lvni_run_rank *first; /* of this process, which stands for it */
    outcome mine, all;
} agreement;

/* Called by lvni_run_ranks_each. */
static lvn_status gather_outcomes(void *user, const lvni_run_rank *rank)
{
    agreement *a = user;
    const bool first = rank == a->first;
    const outcome mine = first ? a->mine : (outcome){0};
    outcome *all = lvni_core_calloc(LVNI_TAG_DIST, (size_t)rank->world, sizeof *all);
    if (all == NULL) {
        return LVN_ERR_MEMORY;
    }
    const lvn_status s = lvni_dist_comm_all_gather(rank->comm, &mine, sizeof mine, all);
    for (int i = 0; first && s == LVN_OK && a->all.status == LVN_OK && i < rank->world; i++) {
        a->all = all[i];
    }
    lvni_core_free(all);
    return s;
}

lvn_status lvni_run_ranks_agree(const lvni_run_ranks *ranks, lvn_status mine)
{
    const lvn_error error = *lvn_last_error();
    agreement a = {.first = ranks->rank, .mine = {.status = mine}};
    if (ranks->world == 1) {
        return mine;
    }
    if (mine != LVN_OK) {
        memcpy(a.mine.message, error.message, sizeof a.mine.message);
    }
    LVN_TRY(lvni_run_ranks_each(ranks, gather_outcomes, &a));
    if (a.all.status == LVN_OK) {
        return LVN_OK;
    }
    if (memcmp(&a.all, &a.mine, sizeof a.all) == 0) {
        return lvn_error_adopt(&error);
    }
    LVN_FAIL((lvn_status)a.all.status, "%s", a.all.message);
}

/* Called by lvni_run_ranks_each. */
static lvn_status agree_on_stop(void *user, const lvni_run_rank *rank)
{
    (void)user;
    int32_t signal_number = lvni_trainer_stop_signal();
    if (rank->comm != NULL) {
        LVN_TRY(lvni_dist_comm_all_reduce(rank->comm, &signal_number, &signal_number, 1, LVN_I32,
                                          LVNI_REDUCE_MAX));
        lvni_trainer_stop_record(signal_number);
    }
    if (signal_number != 0) {
        LVN_FAIL(LVN_ERR_CANCELLED, "%s", lvni_core_signal_name(signal_number));
    }
    return LVN_OK;
}

lvn_status lvni_run_ranks_check_stop(const lvni_run_ranks *ranks)
{
    return lvni_run_ranks_each(ranks, agree_on_stop, NULL);
}

lvn_status lvni_run_ranks_estimate(lvni_core_config *c, lvni_run_rank *out)
{
    lvni_run_rank_request r;
    const lvni_run_ranks_command none = {0};
    *out = (lvni_run_rank){0};
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_run_rank_request_read(c, &none, &r));
    *out = rank_of(&r, 0);
    LVNI_TRY_DONE(s, choose_transport(c, &r, &out->transport));
    s = choose_workers(c, &r, r.devices, out, 1);
done:
    lvni_run_rank_request_free(&r);
    return s;
}
