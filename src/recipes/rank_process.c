/* One process of several (rank_impl.h): how it authenticates, then store, control channel, shared
 * segment, in this order, and back. Called by ranks.c. */
#include "recipes/rank_impl.h"

#include "control/auth.h"
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

struct lvni_recipes_rank_process {
    lvni_control_store *store; /* NULL: another process has it */
    lvni_control *control;
    _Atomic(lvni_dist_comm *) comm; /* read by the control channel's thread */
    int exchanges;
    char *out; /* the run directory, where this rank knows it */
    int rank;
    /* NULL before the rendezvous; read by the control channel's thread */
    _Atomic(const lvni_control_member *) members;
};

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

static void report(void *user, const char *line)
{
    (void)user;
    lvni_log_line(LVNI_LOG_WARNING, "%-s", line);
}

/* Also by a rank other than 0: while there is no store, rank 0 may not be there either. */
static void report_waiting(void *user, const char *line)
{
    const bool was = lvni_log_set_follower(false);
    report(user, line);
    lvni_log_set_follower(was);
}

static double seconds_of(const char *text, double fallback)
{
    double s = 0.0;
    return text != NULL && sscanf(text, "%lf", &s) == 1 && s > 0.0 ? s : fallback;
}

/* The directory of the rendezvous without a launcher: given, or the parent of the run directory. */
static lvn_status rendezvous_dir(const lvni_launch_rank_info *info, const lvni_core_config *config,
                                 char **out)
{
    /* predict has none */
    const char *run =
        lvni_core_config_has(config, "out") ? lvni_core_config_str(config, "out") : ".";
    const char *slash = run == NULL ? NULL : strrchr(run, '/');
    lvni_core_str dir = {0};
    if (info->rdzv_dir[0] != '\0') {
        lvni_core_str_append(&dir, info->rdzv_dir);
    } else if (slash != NULL) {
        lvni_core_str_append_n(&dir, run, slash > run ? (size_t)(slash - run) : 1);
    } else {
        lvni_core_str_append(&dir, run == NULL ? "out" : ".");
    }
    *out = lvni_core_str_take(&dir);
    return *out == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* The node of each rank, for messages about missing ones. NULL: of several nodes, which one is not
 * known before the rank connects. */
static lvn_status name_hosts(const lvni_launch_rank_info *info, const char ***out)
{
    *out = NULL;
    if (info->hosts.n != 1) {
        return LVN_OK;
    }
    const char **hosts = lvni_core_calloc(LVNI_TAG_CONTROL, (size_t)info->world, sizeof *hosts);
    for (int r = 0; hosts != NULL && r < info->world; r++) {
        hosts[r] = lvni_launch_hosts_name(&info->hosts, 0);
    }
    *out = hosts;
    return hosts == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* ---- authentication ---- */

/* How the ranks of a run, whichever launcher started them, authenticate. */
typedef struct rank_auth {
    lvni_control_auth how;        /* on the store's host, which chooses for all */
    const char *run_key, *secret; /* of the environment; borrowed */
    const char *key_dir;          /* borrowed */
    const char *munge_socket;     /* NULL: MUNGE's own; inside of slurm */
    bool closed;                  /* every rank must authenticate */
    lvni_launch_slurm_auth slurm;
} rank_auth;

/* By the store's host alone, before any rank joins: the others get it from the store. */
static lvni_control_auth choose_how(const lvni_launch_rank_info *info, const char *dir,
                                    const rank_auth *a)
{
    if (a->run_key != NULL || a->secret != NULL) {
        return LVNI_AUTH_KEY;
    }
    if (info->slurm.job && a->slurm.munge) {
        if (lvni_control_munge_probe(a->munge_socket) == LVN_OK) {
            return LVNI_AUTH_MUNGE;
        }
        lvni_log_line(
            LVNI_LOG_WARNING,
            "the ranks authenticate with a key in a file in %s, as MUNGE does not work here: %s",
            dir, lvn_last_error()->message);
    }
    return a->closed ? LVNI_AUTH_FILE : LVNI_AUTH_OPEN;
}

/* In this order: the launcher's key and LEVIN_TOKEN; in a Slurm job MUNGE where it works on the
 * store's host, else a file in `dir`; a file also where a file is the rendezvous. Otherwise any
 * process may join, which warn_open reports. *out is to be freed in every case. */
static lvn_status choose_auth(const lvni_launch_rank_info *info, const char *dir, rank_auth *out)
{
    *out = (rank_auth){.run_key = lvni_launch_env_get(environ, "LEVIN_RUN_KEY"),
                       .secret = lvni_launch_env_get(environ, "LEVIN_TOKEN"),
                       .key_dir = dir,
                       .closed = info->slurm.job || info->rdzv == LVNI_RDZV_FILE};
    if (info->slurm.job) {
        LVN_TRY(lvni_launch_slurm_auth_read(environ, &out->slurm));
        out->munge_socket =
            out->slurm.socket.len > 0 ? lvni_core_str_text(&out->slurm.socket) : NULL;
    }
    if (!info->store_host) {
        return LVN_OK;
    }
    out->how = choose_how(info, dir, out);
    static const char *const names[] = {[LVNI_AUTH_OPEN] = "nothing",
                                        [LVNI_AUTH_KEY] = "a key of the environment",
                                        [LVNI_AUTH_FILE] = "a key in a file",
                                        [LVNI_AUTH_MUNGE] = "MUNGE"};
    lvni_log_line(LVNI_LOG_DEBUG, "the ranks authenticate with %s", names[out->how]);
    return LVN_OK;
}

/* Once the store listens. */
static void warn_open(const rank_auth *auth, int port)
{
    if (auth->how == LVNI_AUTH_OPEN) {
        lvni_log_line(
            LVNI_LOG_WARNING,
            "any process that reaches port %d of this host can join this run: set LEVIN_TOKEN to "
            "one secret text for all ranks",
            port);
    }
}

static void auth_free(rank_auth *auth)
{
    lvni_launch_slurm_auth_free(&auth->slurm);
}

/* ---- joining ---- */

static lvn_status open_store(const lvni_launch_rank_info *info, const lvni_core_config *config,
                             const rank_auth *auth, double timeout_s, lvni_recipes_rank_process *p)
{
    static const int any = 0;
    const char *dir = info->rdzv == LVNI_RDZV_FILE ? auth->key_dir : NULL;
    lvni_control_store_options o;
    if (!info->store_host) {
        return LVN_OK;
    }
    lvni_control_store_options_init(&o);
    o.listen_fd = info->store_fd;
    o.address = info->on_node ? "127.0.0.1" : info->master_given ? info->master_addr : NULL;
    o.ports = dir != NULL ? &any : info->ports;
    o.n_ports = dir != NULL ? 1 : (size_t)info->n_ports;
    o.rdzv_dir = dir;
    o.peer_timeout_s = lvni_core_config_float(config, "peer_timeout_s");
    o.world = info->world;
    o.rank = info->rank;
    o.job_key = info->job_key;
    o.run_id = info->run_id;
    o.run_key = auth->run_key;
    o.secret = auth->secret;
    o.auth = auth->how;
    o.key_dir = auth->key_dir;
    o.munge_socket = auth->munge_socket;
    o.munge_timeout_s = timeout_s / 4 < o.munge_timeout_s ? timeout_s / 4 : o.munge_timeout_s;
    o.rdzv_timeout_s = timeout_s;
    o.report = report;
    o.allow_shared_device = lvni_core_config_bool(config, "allow_shared_device");
    const char **hosts;
    LVN_TRY(name_hosts(info, &hosts));
    o.rank_hosts = hosts;
    const lvn_status s = lvni_control_store_create(&o, &p->store);
    lvni_core_free(hosts);
    if (s == LVN_OK) {
        warn_open(auth, lvni_control_store_port(p->store));
    }
    return s;
}

static lvn_status connect_control(const lvni_launch_rank_info *info, const lvni_core_config *config,
                                  const rank_auth *auth, double timeout_s,
                                  lvni_recipes_rank_process *p)
{
    lvni_control_options o;
    lvni_control_options_init(&o);
    const int own = p->store == NULL ? 0 : lvni_control_store_port(p->store);
    o.host = lvni_launch_rank_info_route(info);
    o.ports = own != 0 ? &own : info->ports;
    o.n_ports = own != 0 ? 1 : (size_t)info->n_ports;
    o.rdzv_dir = info->rdzv == LVNI_RDZV_FILE ? auth->key_dir : NULL;
    o.rank = info->rank;
    o.world = info->world;
    o.job_key = info->job_key;
    o.run_id = info->run_id;
    o.run_key = auth->run_key;
    o.secret = auth->secret;
    o.key_dir = auth->key_dir;
    o.munge_socket = auth->munge_socket;
    o.munge_timeout_s = timeout_s / 4 < o.munge_timeout_s ? timeout_s / 4 : o.munge_timeout_s;
    o.closed = auth->closed;
    o.rdzv_timeout_s = timeout_s;
    /* the launcher has it for rank 0, however late that comes */
    o.taken_timeout_s = info->source == LVNI_SOURCE_LEVIN ? 0 : o.taken_timeout_s;
    o.peer_timeout_s = lvni_core_config_float(config, "peer_timeout_s");
    o.on_abort = on_abort;
    o.report = report_waiting;
    o.user = p;
    return lvni_control_connect(&o, &p->control);
}

static lvn_status rendezvous(const lvni_launch_rank_info *info, const lvni_core_config *config,
                             const char *device, const lvni_recipes_rank_process *p)
{
    lvni_control_facts facts;
    lvni_control_facts_room room;
    lvni_core_str yaml = {0};
    char mask[4096];
    lvni_control_facts_init(&facts, &room);
    lvni_recipes_rank_print_cores(mask, sizeof mask);
    lvn_status s = lvni_core_config_write_as_given(config, &yaml);
    facts.local_rank = info->local_rank;
    facts.node_rank = info->node_rank;
    facts.device = device;
    facts.config = lvni_core_str_text(&yaml);
    facts.fingerprint = mask;
    if (s == LVN_OK) {
        s = lvni_control_rendezvous(p->control, &facts);
    }
    lvni_core_str_free(&yaml);
    return s;
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
    const double timeout_s = seconds_of(lvni_launch_env_get(environ, "LEVIN_RDZV_TIMEOUT"), 300.0);
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
    char *dir = NULL;
    LVN_TRY(rendezvous_dir(info, config, &dir));
    rank_auth auth;
    lvn_status s = choose_auth(info, dir, &auth);
    if (s == LVN_OK) {
        s = open_store(info, config, &auth, timeout_s, p);
    }
    if (s == LVN_OK) {
        s = connect_control(info, config, &auth, timeout_s, p);
    }
    auth_free(&auth);
    lvni_core_free(dir);
    LVN_TRY(s);
    LVN_TRY(rendezvous(info, config, device, p));
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
