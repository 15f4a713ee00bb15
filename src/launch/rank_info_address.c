/* Where the ranks connect: the address of the store's host, the ports to try, the kind of
 * rendezvous; and whether that address is one of this host's. The check runs on the store's host,
 * so that a wrong one is reported at once and not by the time-out of all others; where all ranks
 * are on one node, on each of them (rank_info.h). */
#include "launch/rank_info_impl.h"

#include "core/alloc.h"
#include "core/machine.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define SPECIAL_STEPS UINT64_C(4294967280)
enum {
    FIRST = 15000,
    COUNT = 10000,
    STRIDE = 1237,
    CUSTOMARY = 29500,
    PRIVILEGED = 1024,
    LAST = 65535,
    ADDRESSES = 64,
    TEXT = NI_MAXHOST
};

int lvni_launch_rank_info_port(uint64_t job, uint64_t step, uint64_t restart, int k)
{
    const uint64_t s = step >= SPECIAL_STEPS ? 0 : step;
    const uint64_t o = (job + 101 * s + 1009 * restart) % COUNT;
    return FIRST + (int)((o + STRIDE * (uint64_t)k) % COUNT);
}

const char *lvni_launch_rank_info_route(const lvni_launch_rank_info *info)
{
    return info->on_node ? "127.0.0.1" : info->master_addr;
}

static bool by_mpi(lvni_launch_source source)
{
    return source >= LVNI_SOURCE_OMPI && source <= LVNI_SOURCE_PMI;
}

static lvn_status set_address(const lvni_launch_rank_query *ask, lvni_launch_rank_info *info,
                              const char *from, const char *address)
{
    if (strlen(address) >= sizeof info->master_addr) {
        const lvn_status s =
            lvni_core_notice_error(ask->notices, 100, "%s is longer than an address can be", from);
        lvni_core_notice_found(ask->notices, "%s='%.60s...'", from, address);
        return s;
    }
    snprintf(info->master_addr, sizeof info->master_addr, "%s", address);
    info->from[LVNI_RANK_INFO_MASTER_ADDR] = from;
    return LVN_OK;
}

static lvn_status find_address(const lvni_launch_rank_query *ask, lvni_launch_rank_info *info)
{
    static const char *const names[] = {"LEVIN_MASTER_ADDR", "MASTER_ADDR", NULL};
    const char *name = lvni_launch_env_first(ask->env, names);
    info->master_given = true;
    if (ask->options->master_addr != NULL) {
        return set_address(ask, info, "--master-addr", ask->options->master_addr);
    }
    if (name != NULL) {
        return set_address(ask, info, name, lvni_launch_env_get(ask->env, name));
    }
    info->master_given = false;
    if (info->source == LVNI_SOURCE_SLURM && info->hosts.n > 0) {
        return set_address(ask, info, info->from[LVNI_RANK_INFO_HOSTS],
                           lvni_launch_hosts_name(&info->hosts, 0));
    }
    snprintf(info->master_addr, sizeof info->master_addr, "%s",
             info->nnodes == 1 ? "127.0.0.1" : "");
    return LVN_OK;
}

static lvn_status no_address(const lvni_launch_rank_query *ask, const lvni_launch_rank_info *info)
{
    const lvn_status s = lvni_core_notice_error(
        ask->notices, 109,
        "there may be several nodes, and the address of the first is not given (source %s)",
        lvni_launch_source_name(info->source));
    lvni_core_notice_found(ask->notices, "source=%s world=%d nnodes=%s",
                           lvni_launch_source_name(info->source), info->world,
                           info->nnodes > 1 ? "several" : "unknown");
    lvni_launch_env_found(ask->env, "MASTER_ADDR", ask->notices);
    lvni_core_notice_fix(
        ask->notices, "MASTER_ADDR=HOST (levin launch --master-addr HOST) with the host of rank 0");
    lvni_core_notice_fix(
        ask->notices,
        "or LEVIN_RDZV=file:DIR (levin train: rdzv=file:DIR), a directory that all nodes see");
    return s;
}

/* torchrun's agent listens on MASTER_PORT itself: the ports after it are ours. */
static void after_agent(lvni_launch_rank_info *info, int port)
{
    for (info->n_ports = 0; info->n_ports < LVNI_RANK_INFO_PORTS; info->n_ports++) {
        const int p = port + 1 + info->n_ports;
        info->ports[info->n_ports] = p > LAST ? FIRST + p - LAST - 1 : p;
    }
}

static lvn_status given_port(const lvni_launch_rank_query *ask, lvni_launch_rank_info *info,
                             bool *given)
{
    static const char *const names[] = {"LEVIN_MASTER_PORT", "MASTER_PORT", NULL};
    const char *name = lvni_launch_env_first(ask->env, names),
               *agent = lvni_launch_env_get(ask->env, "TORCHELASTIC_USE_AGENT_STORE");
    uint64_t port = (uint64_t)ask->options->master_port;
    *given = port != 0 || name != NULL;
    if (!*given) {
        return LVN_OK;
    }
    info->from[LVNI_RANK_INFO_MASTER_PORT] = port != 0 ? "--master-port" : name;
    if (port == 0 &&
        (!lvni_launch_env_digits(lvni_launch_env_get(ask->env, name), LAST, &port) || port == 0)) {
        const lvn_status s = lvni_core_notice_error(ask->notices, 100, "%s='%s' is not a port",
                                                    name, lvni_launch_env_get(ask->env, name));
        lvni_core_notice_found(ask->notices, "%s='%s'; expected: a number from 1 to 65535", name,
                               lvni_launch_env_get(ask->env, name));
        lvni_core_notice_fix(ask->notices, "another port, or unset it");
        return s;
    }
    if (port < PRIVILEGED) {
        lvni_core_notice_warn(ask->notices, 205,
                              "port %d needs the rights of root: ports from 1024 on do not",
                              (int)port);
    }
    info->ports[0] = (int)port;
    info->n_ports = 1;
    if (info->source == LVNI_SOURCE_TORCHRUN && agent != NULL && strcmp(agent, "True") == 0) {
        after_agent(info, (int)port);
    }
    return LVN_OK;
}

static lvn_status find_ports(const lvni_launch_rank_query *ask, lvni_launch_rank_info *info)
{
    bool given = false;
    LVN_TRY(given_port(ask, info, &given));
    if (given || info->rdzv == LVNI_RDZV_FILE) {
        return LVN_OK;
    }
    if (info->source == LVNI_SOURCE_SLURM) {
        for (info->n_ports = 0; info->n_ports < LVNI_RANK_INFO_PORTS; info->n_ports++) {
            info->ports[info->n_ports] = lvni_launch_rank_info_port(
                info->slurm.job_id, info->slurm.step_id, (uint64_t)info->restart, info->n_ports);
        }
        return LVN_OK;
    }
    info->ports[0] = CUSTOMARY;
    info->n_ports = 1;
    lvni_core_notice_warn(
        ask->notices, 204,
        "no port is given, so 29500 is taken; a second run on this host needs another "
        "one (MASTER_PORT)");
    return LVN_OK;
}

/* "tcp", "file:DIR"; NULL: not given. For ranks of levin's launcher its address and port hold, and
 * not LEVIN_RDZV, which the user has set for all runs. */
static const char *given_rdzv(const lvni_launch_rank_query *ask, const lvni_launch_rank_info *info)
{
    const char *given = ask->options->rdzv;
    return given != NULL || info->source == LVNI_SOURCE_LEVIN
               ? given
               : lvni_launch_env_get(ask->env, "LEVIN_RDZV");
}

static lvn_status bad_rdzv(const lvni_launch_rank_query *ask, const char *rdzv)
{
    const char *name = ask->options->rdzv != NULL ? "rdzv" : "LEVIN_RDZV";
    const lvn_status s = lvni_core_notice_error(
        ask->notices, 100, "%s='%.80s' is neither tcp nor file:DIR", name, rdzv);
    lvni_core_notice_found(ask->notices, "%s='%.300s'", name, rdzv);
    lvni_core_notice_fix(
        ask->notices,
        "%s=file:DIR, a directory that all ranks see, of at most %d bytes; or omit it", name,
        LVNI_RANK_INFO_TEXT - 1);
    return s;
}

static lvn_status find_rdzv(const lvni_launch_rank_query *ask, lvni_launch_rank_info *info)
{
    const char *rdzv = given_rdzv(ask, info);
    info->rdzv = LVNI_RDZV_TCP;
    if (rdzv != NULL && strncmp(rdzv, "file:", 5) == 0 && rdzv[5] != '\0' &&
        strlen(rdzv + 5) < sizeof info->rdzv_dir) {
        info->rdzv = LVNI_RDZV_FILE;
        snprintf(info->rdzv_dir, sizeof info->rdzv_dir, "%s", rdzv + 5);
    } else if (rdzv != NULL && strcmp(rdzv, "tcp") != 0) {
        return bad_rdzv(ask, rdzv);
    } else if (info->source == LVNI_SOURCE_LEVIN &&
               lvni_launch_env_get(ask->env, "LEVIN_STORE_FD") != NULL) {
        info->rdzv = LVNI_RDZV_FD;
        return lvni_launch_env_int(ask->env, "LEVIN_STORE_FD", ask->notices, &info->store_fd);
    }
    return LVN_OK;
}

lvn_status lvni_launch_rank_info_find_master(const lvni_launch_rank_query *ask,
                                             lvni_launch_rank_info *info)
{
    if (info->world == 1) {
        if (info->source == LVNI_SOURCE_SLURM) {
            LVN_TRY(find_address(ask, info)); /* for the record */
            return find_ports(ask, info);
        }
        return LVN_OK;
    }
    LVN_TRY(find_rdzv(ask, info));
    LVN_TRY(find_address(ask, info));
    info->on_node = info->nnodes == 1 && !info->master_given;
    if (info->rdzv == LVNI_RDZV_TCP && *info->master_addr == '\0') {
        if (given_rdzv(ask, info) != NULL || !by_mpi(info->source)) {
            /* tcp was asked for, or a launcher that usually sets an address has not */
            return no_address(ask, info);
        }
        info->rdzv = LVNI_RDZV_FILE;
    }
    return find_ports(ask, info);
}

/* ---- is the address one of this host's? ---- */

/* Addresses as text, at most ADDRESSES of them. */
typedef struct addresses {
    int n;
    char text[ADDRESSES][TEXT];
    const char *list[ADDRESSES];
} addresses;

static void join(const char *const *list, int n, lvni_core_str *out)
{
    for (int i = 0; i < n; i++) {
        lvni_core_str_printf(out, "%s%s", i > 0 ? " " : "", list[i]);
    }
}

lvn_status lvni_launch_rank_info_check_address(const lvni_launch_rank_info *info,
                                               const char *const *own, int n_own,
                                               const char *const *resolved, int n_resolved,
                                               lvni_core_notices *notices)
{
    for (int i = 0; i < n_resolved; i++) {
        for (int k = 0; k < n_own; k++) {
            if (strcmp(resolved[i], own[k]) == 0) {
                return LVN_OK;
            }
        }
    }
    lvni_core_str here = {.len = 0}, of_name = {.len = 0};
    join(own, n_own, &here);
    join(resolved, n_resolved, &of_name);
    const char *from = info->from[LVNI_RANK_INFO_MASTER_ADDR];
    const lvn_status s = lvni_core_notice_error(
        notices, 111, "the master address %s is not one of this host, which hosts the store",
        info->master_addr);
    lvni_core_notice_found(notices, "%s=%s", from != NULL ? from : "master address",
                           info->master_addr);
    lvni_core_notice_found(notices, "it %s%s", n_resolved > 0 ? "is " : "cannot be resolved",
                           lvni_core_str_text(&of_name));
    lvni_core_notice_found(notices, "addresses of this host: %s", lvni_core_str_text(&here));
    lvni_core_notice_fix(notices, "unset MASTER_ADDR, or give the address of the host of rank 0");
    notices->own = info->store_host;
    lvni_core_str_free(&here);
    lvni_core_str_free(&of_name);
    return s;
}

static void add_address(addresses *a, const struct sockaddr *s)
{
    const socklen_t n =
        s->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (a->n < ADDRESSES && (s->sa_family == AF_INET || s->sa_family == AF_INET6) &&
        getnameinfo(s, n, a->text[a->n], TEXT, NULL, 0, NI_NUMERICHOST) == 0) {
        a->list[a->n] = a->text[a->n];
        a->n++;
    }
}

static void own_addresses(addresses *a)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) {
        return;
    }
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        if (i->ifa_addr != NULL) {
            add_address(a, i->ifa_addr);
        }
    }
    freeifaddrs(all);
}

static void resolve(const char *name, addresses *a)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    if (getaddrinfo(name, NULL, &hints, &all) != 0) {
        return;
    }
    for (const struct addrinfo *i = all; i != NULL; i = i->ai_next) {
        add_address(a, i->ai_addr);
    }
    freeaddrinfo(all);
}

/* 127.0.0.0/8 is the host itself, also where only 127.0.0.1 has an interface; Debian gives a host's
 * own name 127.0.1.1. */
static bool loops_back(const addresses *a)
{
    return a->n > 0 && (strncmp(a->text[0], "127.", 4) == 0 || strcmp(a->text[0], "::1") == 0);
}

/* A host knows its own name, with or without the domain, also where no resolver answers. */
static bool own_name(const char *name)
{
    char own[256];
    lvni_core_host_name(own, sizeof own);
    const size_t a = strcspn(own, "."), b = strcspn(name, ".");
    const bool both_full = own[a] == '.' && name[b] == '.';
    return both_full ? strcasecmp(own, name) == 0 : a == b && strncasecmp(own, name, a) == 0;
}

lvn_status lvni_launch_rank_info_check_address_here(const lvni_launch_rank_info *info,
                                                    lvni_core_notices *notices)
{
    /* where all are on one node, all check it, and none waits for another that failed */
    const bool here = info->store_host || info->nnodes == 1;
    if (!here || !info->master_given || info->rdzv != LVNI_RDZV_TCP ||
        own_name(info->master_addr)) {
        return LVN_OK;
    }
    addresses *both = lvni_core_calloc(LVNI_TAG_CORE, 2, sizeof *both);
    if (both == NULL) {
        return LVN_ERR_MEMORY;
    }
    resolve(info->master_addr, &both[0]);
    own_addresses(&both[1]);
    const lvn_status s = loops_back(&both[0])
                             ? LVN_OK
                             : lvni_launch_rank_info_check_address(
                                   info, both[1].list, both[1].n, both[0].list, both[0].n, notices);
    lvni_core_free(both);
    return s;
}

/* ---- where the store listens ---- */

static bool is_number(const char *address)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, address, bytes) == 1 || inet_pton(AF_INET6, address, bytes) == 1;
}

/* Other hosts cannot connect to it. */
static bool is_local(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0 ||
           strncmp(address, "fe80:", 5) == 0;
}

const char *lvni_launch_rank_info_listen(const lvni_launch_rank_info *info, const char *const *own,
                                         int n_own, const char *const *resolved, int n_resolved)
{
    if (info->on_node) {
        return "127.0.0.1";
    }
    if (info->master_given && (info->nnodes == 1 || is_number(info->master_addr))) {
        return info->master_addr;
    }
    if (info->rdzv != LVNI_RDZV_TCP && !info->master_given) {
        return NULL;
    }
    const char *only = NULL;
    for (int i = 0; i < n_own; i++) {
        if (!is_local(own[i]) && only != NULL && strcmp(own[i], only) != 0) {
            return NULL;
        }
        only = is_local(own[i]) ? only : own[i];
    }
    for (int i = 0; i < n_resolved && only != NULL; i++) {
        only = strcmp(resolved[i], only) == 0 ? only : NULL;
    }
    return n_resolved > 0 ? only : NULL;
}

lvn_status lvni_launch_rank_info_listen_here(const lvni_launch_rank_info *info, char *out,
                                             size_t size)
{
    addresses *both = lvni_core_calloc(LVNI_TAG_CORE, 2, sizeof *both);
    if (both == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (!info->on_node && *info->master_addr != '\0' && !is_number(info->master_addr)) {
        resolve(info->master_addr, &both[0]);
        own_addresses(&both[1]);
    }
    const char *at =
        lvni_launch_rank_info_listen(info, both[1].list, both[1].n, both[0].list, both[0].n);
    snprintf(out, size, "%s", at == NULL ? "" : at);
    lvni_core_free(both);
    return LVN_OK;
}
