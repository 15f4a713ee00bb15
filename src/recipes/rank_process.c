/* One process of several (rank_impl.h): rendezvous, communicator, in this order, and back. Called
 * by ranks.c. */
#include "recipes/rank_impl.h"

#include "control/control.h"
#include "control/store.h"
#include "core/alloc.h"
#include "core/error.h"
#include "launch/env_vars.h"
#include "launch/rank_info.h"
#include "log/run_log.h"
#include "recipes/devices.h"
#include "recipes/report_error.h"
#include "recipes/run_dir.h"
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
    lvni_recipes_rank_process *p = user;
    char sentence[1024];
    lvni_control_cause_sentence(cause, sentence, sizeof sentence);
    lvni_dist_comm *comm = atomic_load(&p->comm);
    if (comm != NULL) {
        lvni_dist_comm_abort_for(comm, cause->rank, sentence);
    }
}

static lvn_status exchange(void *user, const void *mine, size_t bytes, void *all)
{
    lvni_recipes_rank_process *p = user;
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

/* Another rank has failed, or the run is stopped: what it waits for will not come. */
static bool is_over(void *user)
{
    const lvni_recipes_rank_process *p = user;
    lvni_control_cause cause;
    return lvni_control_get_cause(p->control, &cause);
}

/* Over the transport that fits where the ranks are. */
static lvn_status connect_comm(const lvni_core_config *config, lvni_recipes_rank_process *p,
                               lvni_recipes_rank *rank, lvni_dist_comm **out)
{
    const lvni_control_member *members = lvni_control_members(p->control);
    int *host = lvni_core_calloc(LVNI_TAG_DIST, (size_t)rank->world, sizeof *host);
    if (host == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int r = 0; r < rank->world; r++) {
        host[r] = members[r].host_index;
    }
    const lvni_dist_comm_options o = {.rank = rank->rank,
                                      .world = rank->world,
                                      .exchange = exchange,
                                      .address = "127.0.0.1",
                                      .over = is_over,
                                      .user = p,
                                      .host = host};
    lvn_status s = lvni_recipes_choose_transport(
        config, rank->world, lvni_control_nodes(p->control), false, &rank->transport);
    if (s == LVN_OK) {
        s = lvni_dist_choice_connect(&rank->transport, &o, out);
    }
    lvni_core_free(host);
    return s;
}

static lvn_status open_comm(const lvni_core_config *config, lvni_recipes_rank_process *p,
                            lvni_recipes_rank *rank)
{
    if (lvni_control_nodes(p->control) > 1) {
        const lvni_control_member *m = lvni_control_members(p->control);
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "ranks on %d nodes (rank 0 on %s, rank %d on %s): several nodes come with a later "
                 "version; start all ranks on one",
                 lvni_control_nodes(p->control), m[0].host, rank->world - 1,
                 m[rank->world - 1].host);
    }
    lvni_dist_comm *comm;
    LVN_TRY(connect_comm(config, p, rank, &comm));
    atomic_store(&p->comm, comm); /* from here on leaving destroys it, whatever fails */
    lvni_control_cause cause;
    if (lvni_control_get_cause(p->control, &cause)) {
        /* it came before there was a communicator to abort */
        on_abort(p, &cause);
    }
    uint64_t ns;
    LVN_TRY(lvni_dist_comm_try(comm, &ns));
    lvni_log_line(LVNI_LOG_DEBUG, "%d ranks %s: the first sum of 1 MiB took %.2f ms", rank->world,
                  lvni_dist_choice_does(&rank->transport), (double)ns * 1e-6);
    return LVN_OK;
}

static lvn_status join(const lvni_core_config *config, const lvni_launch_rank_info *info,
                       lvni_recipes_rank_process *p, lvni_recipes_rank *rank)
{
    char device[48] = "";
    if (lvni_recipes_accelerator_is_device(config)) {
        snprintf(device, sizeof device, "%s:%d", lvni_core_config_str(config, "accelerator"),
                 rank->device);
    }
    p->rank = rank->rank = info->rank;
    rank->world = info->world;
    if (lvni_core_config_has(config, "out") && lvni_core_config_is_set(config, "out")) {
        p->out = lvni_core_strdup(LVNI_TAG_DIST, lvni_core_config_str(config, "out"));
        if (p->out == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    LVN_TRY(lvni_recipes_rank_rendezvous(config, info, device, on_abort, p));
    atomic_store(&p->members, lvni_control_members(p->control));
    lvni_recipes_rank_share_cores(p->control, rank);
    LVN_TRY(open_comm(config, p, rank));
    rank->control = p->control; /* both borrowed: they end with the process's part in the run */
    rank->comm = atomic_load(&p->comm);
    return LVN_OK;
}

lvn_status lvni_recipes_rank_process_join(const lvni_core_config *config,
                                          const lvni_launch_rank_info *info,
                                          lvni_recipes_rank *rank, lvni_recipes_rank_process **out)
{
    *out = NULL;
    lvni_recipes_rank_process *p = LVNI_NEW(LVNI_TAG_DIST, lvni_recipes_rank_process);
    if (p == NULL) {
        return LVN_ERR_MEMORY;
    }
    const lvn_status s = join(config, info, p, rank);
    if (s != LVN_OK) {
        return lvni_recipes_rank_process_leave(p, s, "");
    }
    *out = p;
    return LVN_OK;
}

/* ---- leaving ---- */

/* Reports the failure to the others; where another rank was first, the error is about that one. */
static lvn_status fail(const lvni_recipes_rank_process *p, lvn_status failed)
{
    const lvn_error error = *lvn_last_error();
    const lvni_dist_comm *comm = atomic_load(&p->comm);
    lvni_control_cause cause = {.kind = lvni_control_cause_of_status(failed),
                                .step = -1,
                                .named = comm != NULL && lvni_dist_comm_first_failed(comm) >= 0};
    snprintf(cause.message, sizeof cause.message, "%.*s", (int)sizeof cause.message - 1,
             error.message);
    snprintf(cause.place, sizeof cause.place, "%s",
             error.n_frames > 0 ? error.frames[error.n_frames - 1] : "");
    lvni_control_fail(p->control, &cause);
    if (failed == LVN_ERR_PEER && lvni_control_get_cause(p->control, &cause) &&
        cause.kind != LVNI_CAUSE_PEER) {
        char sentence[1024];
        lvni_control_cause_sentence(&cause, sentence, sizeof sentence);
        LVN_FAIL(LVN_ERR_PEER, "%-s", sentence);
    }
    lvn_error_adopt(&error);
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

/* Exactly one of the ranks that are left. Before they share memory that is rank 1. */
static bool replaces_rank_0(const lvni_recipes_rank_process *p)
{
    lvni_dist_comm *comm = atomic_load(&p->comm);
    return p->rank > 0 && (comm != NULL ? lvni_dist_comm_claim(comm) : p->rank == 1);
}

/* Rank 0, which reports and saves for all, is lost, and no launcher of levin reports it: one of the
 * ranks that are left does. What the directory keeps is reported where rank 0 has ended for
 * certain, since a stopped process may continue; nothing is removed, as the run may be resumed
 * already. */
static void report_in_its_place(const lvni_recipes_rank_process *p)
{
    lvni_control_cause cause;
    int64_t step, epoch;
    const bool launched = lvni_launch_env_get(environ, "LEVIN_LAUNCHED") != NULL;
    if (launched || atomic_load(&p->members) == NULL ||
        !lvni_control_get_cause(p->control, &cause) || cause.rank != 0 ||
        cause.kind != LVNI_CAUSE_SIGNAL || !replaces_rank_0(p)) {
        return;
    }
    const lvn_error error = *lvn_last_error();
    const bool saved = p->out != NULL && ends_soon(p->control, 0) &&
                       lvni_recipes_run_dir_saved(p->out, &step, &epoch);
    lvn_error_adopt(&error);
    if (saved) {
        lvn_error_append("; step %lld (epoch %lld) is saved: resume=true goes on from there",
                         (long long)step, (long long)epoch + 1);
    }
    lvni_recipes_report_as_rank(0);
}

lvn_status lvni_recipes_rank_process_leave(lvni_recipes_rank_process *p, lvn_status failed,
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
    lvni_dist_comm *comm = atomic_exchange(&p->comm, NULL);
    /* its thread may be in on_abort: only then the communicator goes */
    lvni_control_destroy(p->control);
    lvni_dist_comm_destroy(comm);
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
