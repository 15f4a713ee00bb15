/* Is the address of the store one of this host's (rank_info.h)? Asked on the store's host, so that
 * a wrong one is told at once and not by the time-out of all others; where all ranks are on one
 * node, by each of them. */
#include "launch/rank_info_impl.h"

#include "core/alloc.h"
#include "core/host_name.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum { ADDRESSES = 64, TEXT = NI_MAXHOST };

/* Addresses as text; those beyond the room are left out. */
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
                                               const char *const *meant, int n_meant,
                                               lvni_core_notices *notices)
{
    for (int i = 0; i < n_meant; i++) {
        for (int k = 0; k < n_own; k++) {
            if (strcmp(meant[i], own[k]) == 0) {
                return LVN_OK;
            }
        }
    }
    lvni_core_str addresses_here = {.len = 0}, addresses_meant = {.len = 0};
    join(own, n_own, &addresses_here);
    join(meant, n_meant, &addresses_meant);
    const char *from = info->from[LVNI_RANK_INFO_MASTER_ADDR];
    const lvn_status s = lvni_core_notice_error(
        notices, 111, "the master address %s is none of this host's, which has to host the store",
        info->master_addr);
    lvni_core_notice_found(notices, "%s=%s", from != NULL ? from : "master address",
                           info->master_addr);
    lvni_core_notice_found(notices, "it %s%s", n_meant > 0 ? "is " : "cannot be resolved",
                           lvni_core_str_text(&addresses_meant));
    lvni_core_notice_found(notices, "addresses of this host: %s",
                           lvni_core_str_text(&addresses_here));
    lvni_core_notice_fix(notices, "unset MASTER_ADDR, or give the address of the host of rank 0");
    notices->own = info->store_host;
    lvni_core_str_free(&addresses_here);
    lvni_core_str_free(&addresses_meant);
    return s;
}

static void add(addresses *a, const struct sockaddr *s)
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
            add(a, i->ifa_addr);
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
        add(a, i->ai_addr);
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
    /* where all are on one node, all see it, and nobody waits for the one who does */
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
