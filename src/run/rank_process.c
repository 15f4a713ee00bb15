/* One process of several (rank_impl.h): rendezvous, communicator, in this order, and back. Called
 * by ranks.c. */
#include "run/rank_impl.h"

#include "control/control.h"
#include "control/store.h"
#include "core/alloc.h"
#include "core/error.h"
#include "launch/env_vars.h"
#include "launch/rank_info.h"
#include "log/run_log.h"
#include "run/devices.h"
#include "run/error_record.h"
#include "run/run_dir.h"
#include "trainer/trainer.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* that the store waits for the others to leave: after a good end, after a failure */
static const double GOODBYE_S = 10.0, FAREWELL_S = 1.0;

/* Its connection closes a moment before it ends. */
static bool ends_soon(const lvni_control *control, int rank)
{
    bool ended = lvni_control_has_ended(control, rank);
    for (int i = 0; i < 40 && !ended; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        ended = lvni_control_has_ended(control, rank);
    }
    return ended;
}

/* On the control channel's thread: wakes threads that wait for a peer. */
static void on_abort(void *user, const lvni_control_cause *cause)
{
    lvni_run_rank_process *p = user;
    char sentence[1024];
    lvni_control_cause_sentence(cause, sentence, sizeof sentence);
    lvni_dist_comm *comm = atomic_load(&p->comm);
    if (comm != NULL) {
        /* the number of a process is none of its threads' */
        lvni_dist_comm_abort_for(comm, p->threads ? -1 : cause->rank, sentence);
    }
}

static lvn_status exchange(void *user, const void *mine, size_t bytes, void *all)
{
    lvni_run_rank_process *p = user;
    char name[32];
    lvni_control_bytes *got;
    snprintf(name, sizeof name, "segment-%d", p->exchanges++);
    LVN_TRY(lvni_control_gather(p->control, name, mine, bytes, 60.0, &got));
    lvn_status s = LVN_OK;
    for (int i = 0; i < lvni_control_world(p->control); i++) {
        if (got[i].n != bytes) {
            s = lvn_error_set(LVN_ERR_MISMATCH, __FILE__, __LINE__,
                              "rank %d gives %zu bytes about its memory, not %zu", i, got[i].n,
                              bytes);
            break;
        }
        memcpy((char *)all + (size_t)i * bytes, got[i].data, bytes);
    }
    lvni_core_free(got);
    return s;
}

/* Reports the failure to the others; cause: the run's, that of the rank that was first. */
static bool report_failure(const lvni_run_rank_process *p, lvn_status failed,
                           lvni_control_cause *cause)
{
    const lvn_error error = *lvn_last_error();
    const lvni_dist_comm *comm = atomic_load(&p->comm);
    *cause = (lvni_control_cause){.kind = lvni_control_cause_of_status(failed),
                                  .step = -1,
                                  .named = comm != NULL && lvni_dist_comm_first_failed(comm) >= 0};
    snprintf(cause->message, sizeof cause->message, "%.*s", (int)sizeof cause->message - 1,
             error.message);
    snprintf(cause->place, sizeof cause->place, "%s",
             error.n_frames > 0 ? error.frames[error.n_frames - 1] : "");
    lvni_control_fail(p->control, cause);
    const bool known = lvni_control_get_cause(p->control, cause);
    lvn_error_adopt(&error);
    return known;
}

/* This rank cannot connect to the others, which may wait for it. */
static void cannot_connect(void *user)
{
    lvni_control_cause cause;
    (void)report_failure(user, LVN_ERR_PEER, &cause);
}

/* Another rank has failed, or the run is stopped: what it waits for will not come. */
static bool is_over(void *user)
{
    const lvni_run_rank_process *p = user;
    lvni_control_cause cause;
    return lvni_control_get_cause(p->control, &cause);
}

/* Where other nodes reach this process: by the address over which it reaches the store. On the
 * store's own host, where that may be the loopback or a bridge of containers, by the one at which
 * others reach the store. */
static lvn_status find_address(lvni_run_rank_process *p, char *out, size_t room)
{
    typedef struct addresses {
        char own[LVNI_CONTROL_ADDRESS], store[LVNI_CONTROL_ADDRESS];
    } addresses;
    const lvni_control_member *m = lvni_control_members(p->control);
    const int world = lvni_control_world(p->control);
    addresses mine;
    memset(&mine, 0, sizeof mine); /* all of it is sent */
    addresses *all = lvni_core_calloc(LVNI_TAG_DIST, (size_t)world, sizeof *all);
    if (all == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_control_addresses(p->control, mine.own, mine.store);
    lvn_status s = exchange(p, &mine, sizeof mine, all);
    const char *found = mine.own;
    const bool at_home = strcmp(mine.own, mine.store) == 0 || strncmp(mine.own, "127.", 4) == 0 ||
                         strcmp(mine.own, "::1") == 0;
    for (int i = 0; i < world && s == LVN_OK && at_home && found == mine.own; i++) {
        found = m[i].host_index != m[p->rank].host_index ? all[i].store : found;
    }
    snprintf(out, room, "%s", found[0] != '\0' ? found : "127.0.0.1");
    lvni_core_free(all);
    return s;
}

/* Hosts, whose ranks can share memory, are numbered from 0. */
static int count_hosts(const lvni_run_rank_process *p)
{
    const lvni_control_member *m = lvni_control_members(p->control);
    int hosts = 0;
    for (int r = 0; r < lvni_control_world(p->control); r++) {
        hosts = m[r].host_index >= hosts ? m[r].host_index + 1 : hosts;
    }
    return hosts;
}

/* ddp2: each node has one process, or the ranks of a node would not be those of one. */
static lvn_status check_threads(const lvni_core_config *config, const lvni_run_rank_process *p)
{
    const lvni_control_member *m = lvni_control_members(p->control);
    const int world = lvni_control_world(p->control);
    for (int r = 0; r < world && p->threads && count_hosts(p) < world; r++) {
        for (int other = 0; other < r; other++) {
            if (m[other].host_index == m[r].host_index) {
                LVN_FAIL(LVN_ERR_USAGE,
                         "strategy=%s is one process per node, and %s has several: start one on "
                         "each node, or omit strategy=",
                         lvni_core_config_str(config, "strategy"), m[r].host);
            }
        }
    }
    return LVN_OK;
}

/* Over the transport that fits where the ranks are; host: of each process. */
static lvn_status connect_over(const lvni_core_config *config, lvni_run_rank_process *p,
                               const int *host, int ranks, lvni_dist_choice *transport)
{
    const int hosts = count_hosts(p);
    char address[64] = "127.0.0.1";
    LVN_TRY(hosts > 1 ? find_address(p, address, sizeof address) : LVN_OK);
    const lvni_dist_comm_options o = {.rank = p->rank,
                                      .world = lvni_control_world(p->control),
                                      .exchange = exchange,
                                      .address = address,
                                      .over = is_over,
                                      .fail = cannot_connect,
                                      .user = p,
                                      .peer_timeout_s =
                                          lvni_core_config_float(config, "peer_timeout_s"),
                                      .host = host};
    LVN_TRY(lvni_run_choose_transport(config, ranks, hosts, p->threads ? NULL : host, p->threads,
                                      transport));
    return p->threads ? lvni_dist_choice_connect_threads(transport, &o, p->n, p->comms)
                      : lvni_dist_choice_connect(transport, &o, p->comms);
}

static lvn_status connect_comm(const lvni_core_config *config, lvni_run_rank_process *p,
                               lvni_dist_choice *transport)
{
    const lvni_control_member *members = lvni_control_members(p->control);
    const int world = lvni_control_world(p->control);
    LVN_TRY(check_threads(config, p));
    int *host = lvni_core_calloc(LVNI_TAG_DIST, (size_t)world, sizeof *host);
    int *devices = lvni_core_calloc(LVNI_TAG_DIST, (size_t)world, sizeof *devices);
    lvn_status s;
    LVNI_TRY_DONE(s, host == NULL || devices == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVNI_TRY_DONE(s, p->threads ? exchange(p, &p->n, sizeof p->n, devices) : LVN_OK);
    int ranks = 0;
    for (int r = 0; r < world; r++) {
        host[r] = members[r].host_index;
        ranks += p->threads ? devices[r] : 1;
    }
    s = connect_over(config, p, host, ranks, transport);
done:
    lvni_core_free(devices);
    lvni_core_free(host);
    return s;
}

static lvn_status open_comm(const lvni_core_config *config, lvni_run_rank_process *p,
                            lvni_dist_choice *transport)
{
    LVN_TRY(connect_comm(config, p, transport));
    atomic_store(&p->comm, p->comms[0]); /* from here on leaving destroys it, whatever fails */
    lvni_control_cause cause;
    if (lvni_control_get_cause(p->control, &cause)) {
        /* it came before there was a communicator to abort */
        on_abort(p, &cause);
    }
    return LVN_OK;
}

static lvn_status join(const lvni_core_config *config, const lvni_launch_rank_info *info,
                       lvni_run_rank_process *p, lvni_run_rank *rank)
{
    char device[48] = "";
    if (lvni_run_accelerator_is_device(config) && !p->threads) {
        snprintf(device, sizeof device, "%s:%d", lvni_core_config_str(config, "accelerator"),
                 rank->device);
    }
    p->rank = rank->rank = info->rank;
    rank->world = info->world;
    p->comms = lvni_core_calloc(LVNI_TAG_DIST, (size_t)p->n, sizeof(lvni_dist_comm *));
    if (p->comms == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (lvni_core_config_has(config, "out") && lvni_core_config_is_set(config, "out")) {
        p->out = lvni_core_strdup(LVNI_TAG_DIST, lvni_core_config_str(config, "out"));
        if (p->out == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    LVN_TRY(lvni_run_rank_rendezvous(config, info, device, on_abort, p));
    atomic_store(&p->members, lvni_control_members(p->control));
    lvni_run_rank_share_cores(p->control, rank);
    LVN_TRY(open_comm(config, p, &rank->transport));
    for (int i = 0; i < p->n; i++) { /* all borrowed: they end with the process's part in the run */
        const int used = rank[i].device;
        rank[i] = *rank;
        rank[i].device = used;
        rank[i].comm = p->comms[i];
        rank[i].rank = lvni_dist_comm_rank(p->comms[i]);
        rank[i].world = lvni_dist_comm_world(p->comms[i]);
        /* threads agree on when to stop in the message of a step */
        rank[i].control = p->threads ? NULL : p->control;
        rank[i].nodes = p->threads ? info->world : 0;
    }
    for (int i = 0; i < p->n && p->threads; i++) {
        rank[i].cores = rank[i].cores / p->n > 1 ? rank[i].cores / p->n : 1;
    }
    return LVN_OK;
}

lvn_status lvni_run_rank_process_join(const lvni_core_config *config,
                                      const lvni_launch_rank_info *info, bool threads,
                                      lvni_run_rank *rank, int n, lvni_run_rank_process **out)
{
    *out = NULL;
    lvni_run_rank_process *p = LVNI_NEW(LVNI_TAG_DIST, lvni_run_rank_process);
    if (p == NULL) {
        return LVN_ERR_MEMORY;
    }
    p->n = n;
    p->threads = threads;
    const lvn_status s = join(config, info, p, rank);
    if (s != LVN_OK) {
        return lvni_run_rank_process_leave(p, s, "");
    }
    *out = p;
    return LVN_OK;
}

/* ---- leaving ---- */

/* Where another rank was first, the error is about that one. */
static lvn_status fail(const lvni_run_rank_process *p, lvn_status failed)
{
    lvni_control_cause cause;
    if (report_failure(p, failed, &cause) && failed == LVN_ERR_PEER &&
        (cause.kind != LVNI_CAUSE_PEER || cause.named)) { /* a communicator has less room for it */
        char sentence[1024];
        lvni_control_cause_sentence(&cause, sentence, sizeof sentence);
        LVN_FAIL(LVN_ERR_PEER, "%-s", sentence);
    }
    return failed;
}

/* First of all, as a launcher may stop this process when it sees others end. */
static void write_record(const char *kept)
{
    const lvn_error error = *lvn_last_error();
    lvn_error_append("%-s", kept);
    lvni_core_error_record_write(lvn_last_error(), (int)lvni_core_exit_of_error(lvn_last_error()));
    lvn_error_adopt(&error);
}

static bool claim(const lvni_run_rank_process *p, bool cut_off)
{
    bool mine = false;
    for (int i = 0; i < p->n; i++) { /* each knows of other ranks */
        mine = (cut_off ? lvni_dist_comm_claim_cut_off(p->comms[i])
                        : lvni_dist_comm_claim(p->comms[i])) ||
               mine;
    }
    return mine;
}

/* Exactly one of the ranks that are left; where the network between nodes has failed, one on each
 * side. Before they share memory that is rank 1. silent: rank 0 was, and perhaps all of its node.
 */
static bool replaces_rank_0(const lvni_run_rank_process *p, bool silent)
{
    /* The connections of other nodes' ranks close a moment after the cause is known. Those of a
     * silent node never do: its ranks are waited for, and lower nodes are a little earlier. */
    enum { CLOSE_LOOKS = 40, SILENT_LOOKS = 300, EARLIER_LOOKS = 10, MOST_EARLIER = 10 };
    if (p->rank == 0 || atomic_load(&p->comm) == NULL) {
        return p->rank == 1;
    }
    const int hosts = count_hosts(p), host = lvni_control_members(p->control)[p->rank].host_index;
    const bool may_be_cut_off = silent && hosts > 1 && host > 0;
    const int looks =
        may_be_cut_off ? SILENT_LOOKS + EARLIER_LOOKS * (host < MOST_EARLIER ? host : MOST_EARLIER)
        : hosts > 1    ? CLOSE_LOOKS
                       : 1;
    bool mine = claim(p, false);
    for (int look = 1; look < looks && !mine; look++) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        mine = claim(p, false);
    }
    return mine || (may_be_cut_off && claim(p, true));
}

/* Is rank 0 the one that was lost? The store, which is in its process, may have been heard last a
 * moment later by this rank than by the one that reported it to all. */
static bool lost_rank_0(const lvni_run_rank_process *p, bool *silent)
{
    lvni_control_cause cause;
    const lvni_dist_comm *comm = atomic_load(&p->comm);
    *silent = false;
    if (!lvni_control_get_cause(p->control, &cause)) {
        return false;
    }
    *silent = cause.kind == LVNI_CAUSE_PEER || !cause.ended;
    return (cause.rank == 0 && cause.kind == LVNI_CAUSE_SIGNAL) ||
           (cause.kind == LVNI_CAUSE_PEER && comm != NULL &&
            lvni_dist_comm_first_failed(comm) == 0);
}

/* Rank 0, which reports and saves for all, is lost, and no launcher of levin reports it: one of the
 * ranks that are left does. What the directory keeps is reported where rank 0 has ended for
 * certain, since a stopped process may continue; nothing is removed, as the run may be resumed
 * already. */
static void report_in_its_place(const lvni_run_rank_process *p)
{
    bool silent;
    int64_t step, epoch;
    const bool launched = lvni_launch_env_get(environ, "LEVIN_LAUNCHED") != NULL;
    if (launched || atomic_load(&p->members) == NULL || !lost_rank_0(p, &silent) ||
        !replaces_rank_0(p, silent)) {
        return;
    }
    const lvn_error error = *lvn_last_error();
    const bool saved =
        p->out != NULL && ends_soon(p->control, 0) && lvni_run_dir_saved(p->out, &step, &epoch);
    lvn_error_adopt(&error);
    if (saved) {
        lvn_error_append("; step %lld (epoch %lld) is saved: resume=true goes on from there",
                         (long long)step, (long long)epoch + 1);
    }
    lvni_run_report_as_rank(0);
}

lvn_status lvni_run_rank_process_leave(lvni_run_rank_process *p, lvn_status failed,
                                       const char *kept)
{
    if (p == NULL) {
        return failed;
    }
    lvn_status s = failed;
    if (s != LVN_OK && s != LVN_ERR_CANCELLED && s != LVN_ERR_PEER) {
        write_record(kept);
    }
    if (p->control != NULL && (s == LVN_OK || s == LVN_ERR_CANCELLED)) {
        const lvn_error error = *lvn_last_error();
        lvni_control_leave(p->control); /* an error now changes nothing */
        lvn_error_adopt(&error);
    } else if (p->control != NULL) {
        s = fail(p, failed);
        lvn_error_append("%-s", kept);
        if (s == LVN_ERR_PEER) {
            report_in_its_place(p);
        }
    }
    const lvn_error error = *lvn_last_error();
    (void)atomic_exchange(&p->comm, NULL);
    /* its thread may be in on_abort: only then the communicators go */
    lvni_control_destroy(p->control);
    for (int i = 0; i < p->n && p->comms != NULL; i++) {
        lvni_dist_comm_destroy(p->comms[i]);
    }
    lvni_core_free(p->comms);
    if (p->store != NULL) {
        (void)lvni_control_store_wait(p->store, s == LVN_OK || s == LVN_ERR_CANCELLED ? GOODBYE_S
                                                                                      : FAREWELL_S);
    }
    lvni_control_store_destroy(p->store);
    lvni_core_free(p->out);
    lvni_core_free(p);
    lvn_error_adopt(&error);
    return s;
}
