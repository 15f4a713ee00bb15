/* Where the ranks meet: the address of the store's host and the ports to try (who.h). */
#include "launch/who_impl.h"

#include <stdio.h>
#include <string.h>

#define SPECIAL_STEPS UINT64_C(4294967280)
enum {
    FIRST = 15000,
    COUNT = 10000,
    STRIDE = 1237,
    CUSTOMARY = 29500,
    PRIVILEGED = 1024,
    LAST = 65535
};

int lvni_who_port(uint64_t job, uint64_t step, uint64_t restart, int k)
{
    const uint64_t s = step >= SPECIAL_STEPS ? 0 : step;
    const uint64_t o = (job + 101 * s + 1009 * restart) % COUNT;
    return FIRST + (int)((o + STRIDE * (uint64_t)k) % COUNT);
}

const char *lvni_who_dial(const lvni_who *who)
{
    return who->on_node ? "127.0.0.1" : who->master_addr;
}

static bool by_mpi(lvni_source source)
{
    return source >= LVNI_SOURCE_OMPI && source <= LVNI_SOURCE_PMI;
}

static lvn_status set_address(const lvni_who_ask *ask, lvni_who *who, const char *from,
                              const char *address)
{
    if (strlen(address) >= sizeof who->master_addr) {
        const lvn_status s =
            lvni_notice_error(ask->notices, 100, "%s is longer than an address can be", from);
        lvni_notice_found(ask->notices, "%s='%.60s...'", from, address);
        return s;
    }
    snprintf(who->master_addr, sizeof who->master_addr, "%s", address);
    who->from[LVNI_WHO_MASTER_ADDR] = from;
    return LVN_OK;
}

static lvn_status find_address(const lvni_who_ask *ask, lvni_who *who)
{
    static const char *const names[] = {"LEVIN_MASTER_ADDR", "MASTER_ADDR", NULL};
    const char *name = lvni_env_first(ask->env, names);
    who->master_given = true;
    if (ask->options->master_addr != NULL) {
        return set_address(ask, who, "--master-addr", ask->options->master_addr);
    }
    if (name != NULL) {
        return set_address(ask, who, name, lvni_env_get(ask->env, name));
    }
    who->master_given = false;
    if (who->source == LVNI_SOURCE_SLURM && who->hosts.n > 0) {
        return set_address(ask, who, who->from[LVNI_WHO_HOSTS], lvni_hosts_name(&who->hosts, 0));
    }
    snprintf(who->master_addr, sizeof who->master_addr, "%s", who->nnodes == 1 ? "127.0.0.1" : "");
    return LVN_OK;
}

static lvn_status no_address(const lvni_who_ask *ask, const lvni_who *who)
{
    const lvn_status s = lvni_notice_error(
        ask->notices, 109,
        "there may be several nodes, and nothing tells the address of the first (source %s)",
        lvni_source_name(who->source));
    lvni_notice_found(ask->notices, "source=%s world=%d nnodes=%s", lvni_source_name(who->source),
                      who->world, who->nnodes > 1 ? "several" : "unknown");
    lvni_env_found(ask->env, "MASTER_ADDR", ask->notices);
    lvni_notice_fix(ask->notices,
                    "MASTER_ADDR=HOST (levin launch --master-addr HOST) with the host of rank 0");
    lvni_notice_fix(
        ask->notices,
        "or LEVIN_RDZV=file:DIR (levin train: rdzv=file:DIR), a directory that all nodes see");
    return s;
}

/* torchrun's agent listens on MASTER_PORT itself: the ports behind it are ours. */
static void after_agent(lvni_who *who, int port)
{
    for (who->n_ports = 0; who->n_ports < LVNI_WHO_PORTS; who->n_ports++) {
        const int p = port + 1 + who->n_ports;
        who->ports[who->n_ports] = p > LAST ? FIRST + p - LAST - 1 : p;
    }
}

static lvn_status given_port(const lvni_who_ask *ask, lvni_who *who, bool *given)
{
    static const char *const names[] = {"LEVIN_MASTER_PORT", "MASTER_PORT", NULL};
    const char *name = lvni_env_first(ask->env, names),
               *agent = lvni_env_get(ask->env, "TORCHELASTIC_USE_AGENT_STORE");
    uint64_t port = (uint64_t)ask->options->master_port;
    *given = port != 0 || name != NULL;
    if (!*given) {
        return LVN_OK;
    }
    who->from[LVNI_WHO_MASTER_PORT] = port != 0 ? "--master-port" : name;
    if (port == 0 && (!lvni_env_digits(lvni_env_get(ask->env, name), LAST, &port) || port == 0)) {
        const lvn_status s = lvni_notice_error(ask->notices, 100, "%s='%s' is not a port", name,
                                               lvni_env_get(ask->env, name));
        lvni_notice_found(ask->notices, "%s='%s'; expected: a number from 1 to 65535", name,
                          lvni_env_get(ask->env, name));
        lvni_notice_fix(ask->notices, "another port, or unset it");
        return s;
    }
    if (port < PRIVILEGED) {
        lvni_notice_warn(ask->notices, 205,
                         "port %d needs the rights of root: ports from 1024 on do not", (int)port);
    }
    who->ports[0] = (int)port;
    who->n_ports = 1;
    if (who->source == LVNI_SOURCE_TORCHRUN && agent != NULL && strcmp(agent, "True") == 0) {
        after_agent(who, (int)port);
    }
    return LVN_OK;
}

static lvn_status find_ports(const lvni_who_ask *ask, lvni_who *who)
{
    bool given = false;
    LVN_TRY(given_port(ask, who, &given));
    if (given || who->rdzv == LVNI_RDZV_FILE) {
        return LVN_OK;
    }
    if (who->source == LVNI_SOURCE_SLURM) {
        for (who->n_ports = 0; who->n_ports < LVNI_WHO_PORTS; who->n_ports++) {
            who->ports[who->n_ports] = lvni_who_port(who->slurm.job_id, who->slurm.step_id,
                                                     (uint64_t)who->restart, who->n_ports);
        }
        return LVN_OK;
    }
    who->ports[0] = CUSTOMARY;
    who->n_ports = 1;
    lvni_notice_warn(ask->notices, 204,
                     "no port is given, so 29500 is taken; a second run on this host needs another "
                     "one (MASTER_PORT)");
    return LVN_OK;
}

/* "tcp", "file:DIR"; NULL: nobody said. A launcher of levin's tells its ranks where they meet:
 * nearer than what the user has set for all runs. */
static const char *told_way(const lvni_who_ask *ask, const lvni_who *who)
{
    const char *given = ask->options->rdzv;
    return given != NULL || who->source == LVNI_SOURCE_LEVIN ? given
                                                             : lvni_env_get(ask->env, "LEVIN_RDZV");
}

static lvn_status bad_way(const lvni_who_ask *ask, const char *rdzv)
{
    const char *name = ask->options->rdzv != NULL ? "rdzv" : "LEVIN_RDZV";
    const lvn_status s =
        lvni_notice_error(ask->notices, 100, "%s='%.80s' is neither tcp nor file:DIR", name, rdzv);
    lvni_notice_found(ask->notices, "%s='%.300s'", name, rdzv);
    lvni_notice_fix(
        ask->notices,
        "%s=file:DIR, a directory that all ranks see, of at most %d bytes; or leave it out", name,
        LVNI_WHO_TEXT - 1);
    return s;
}

static lvn_status find_way(const lvni_who_ask *ask, lvni_who *who)
{
    const char *rdzv = told_way(ask, who);
    who->rdzv = LVNI_RDZV_TCP;
    if (rdzv != NULL && strncmp(rdzv, "file:", 5) == 0 && rdzv[5] != '\0' &&
        strlen(rdzv + 5) < sizeof who->rdzv_dir) {
        who->rdzv = LVNI_RDZV_FILE;
        snprintf(who->rdzv_dir, sizeof who->rdzv_dir, "%s", rdzv + 5);
    } else if (rdzv != NULL && strcmp(rdzv, "tcp") != 0) {
        return bad_way(ask, rdzv);
    } else if (who->source == LVNI_SOURCE_LEVIN &&
               lvni_env_get(ask->env, "LEVIN_STORE_FD") != NULL) {
        who->rdzv = LVNI_RDZV_FD;
        return lvni_env_int(ask->env, "LEVIN_STORE_FD", ask->notices, &who->store_fd);
    }
    return LVN_OK;
}

lvn_status lvni_who_find_master(const lvni_who_ask *ask, lvni_who *who)
{
    if (who->world == 1) { /* nobody to meet */
        if (who->source == LVNI_SOURCE_SLURM) {
            LVN_TRY(find_address(ask, who)); /* for the record */
            return find_ports(ask, who);
        }
        return LVN_OK;
    }
    LVN_TRY(find_way(ask, who));
    LVN_TRY(find_address(ask, who));
    who->on_node = who->nnodes == 1 && !who->master_given;
    if (who->rdzv == LVNI_RDZV_TCP && *who->master_addr == '\0') {
        if (told_way(ask, who) != NULL || !by_mpi(who->source)) {
            /* tcp was asked for, or a launcher that usually tells an address has not */
            return no_address(ask, who);
        }
        who->rdzv = LVNI_RDZV_FILE;
    }
    return find_ports(ask, who);
}
