/* How one process of several finds the others (rank_impl.h): the directory of the rendezvous, how
 * all authenticate, the store where this process is its host, the control channel. Called by
 * rank_process.c. */
#include "run/rank_impl.h"

#include "control/auth.h"
#include "control/store.h"
#include "core/alloc.h"
#include "core/error.h"
#include "launch/env_vars.h"
#include "log/run_log.h"
#include "run/devices.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
                             const rank_auth *auth, double timeout_s, lvni_run_rank_process *p)
{
    static const int any = 0;
    const char *dir = info->rdzv == LVNI_RDZV_FILE ? auth->key_dir : NULL;
    lvni_control_store_options o;
    if (!info->store_host) {
        return LVN_OK;
    }
    char address[sizeof info->master_addr];
    LVN_TRY(lvni_launch_rank_info_listen_here(info, address, sizeof address));
    lvni_control_store_options_init(&o);
    o.listen_fd = info->store_fd;
    o.address = address[0] != '\0' ? address : NULL;
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
                                  lvni_run_on_abort on_abort, lvni_run_rank_process *p)
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

static lvn_status exchange_facts(const lvni_launch_rank_info *info, const lvni_core_config *config,
                                 const char *device, const lvni_run_rank_process *p)
{
    lvni_control_facts facts;
    lvni_control_facts_room room;
    lvni_core_str yaml = {0};
    char mask[4096];
    lvni_control_facts_init(&facts, &room);
    lvni_run_rank_print_cores(mask, sizeof mask);
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

lvn_status lvni_run_rank_rendezvous(const lvni_core_config *config,
                                    const lvni_launch_rank_info *info, const char *device,
                                    lvni_run_on_abort on_abort, lvni_run_rank_process *p)
{
    double timeout_s = 300.0;
    lvni_core_notices none = {0}; /* rank_request.c has refused what cannot be read */
    LVN_TRY(lvni_launch_env_seconds(environ, "LEVIN_RDZV_TIMEOUT", &none, &timeout_s));
    char *dir = NULL;
    LVN_TRY(rendezvous_dir(info, config, &dir));
    rank_auth auth;
    lvn_status s;
    LVNI_TRY_DONE(s, choose_auth(info, dir, &auth));
    LVNI_TRY_DONE(s, open_store(info, config, &auth, timeout_s, p));
    s = connect_control(info, config, &auth, timeout_s, on_abort, p);
done:
    auth_free(&auth);
    lvni_core_free(dir);
    LVN_TRY(s);
    return exchange_facts(info, config, device, p);
}
