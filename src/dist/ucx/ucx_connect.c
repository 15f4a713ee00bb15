/* How ranks find each other over UCX (ucx_impl.h), the end of it, and the transport's table. Every
 * rank gives its worker's address, and a key that it wants to see, to all others (the caller's
 * exchange). UCX connects by itself. */
#include "dist/ucx/ucx_impl.h"

#include "core/alloc.h"
#include "core/machine.h"
#include "dist/net/net_address.h"
#include "dist/ucx/ucx_ports.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

/* CONNECT_S is less than the ranks wait for each other's cards, so that who is missing is known. */
enum { CONNECT_S = 40, LOOK_NS = 100000000 };
#define REMEDY "set UCX_TLS and UCX_NET_DEVICES, or use transport=net"

/* What a rank gives to the others first; its address, as long as the longest of all, follows. */
typedef struct card {
    int32_t status; /* of what it has done so far */
    int32_t pid;
    uint32_t address_bytes;
    unsigned char key[LVNI_NET_KEY];
} card;

static lvn_status check(const lvni_net_comm *c, const char *what, ucs_status_t status)
{
    if (status != UCS_OK) {
        LVN_FAIL(LVN_ERR_IO, "rank %d: UCX cannot %s: %s",
                 lvni_dist_comm_number(&c->base, c->base.rank), what,
                 lvni_ucx_wire_of(c)->api->status_string(status));
    }
    return LVN_OK;
}

/* ---- this rank's side ---- */

/* The interface that has this address: the others reach it, which is not known of any other. */
static bool interface_of(const char *address, char name[IF_NAMESIZE])
{
    lvni_net_address wanted;
    struct ifaddrs *list = NULL;
    bool found = false;
    if (!lvni_net_address_parse(address, &wanted) || getifaddrs(&list) != 0) {
        return false;
    }
    for (const struct ifaddrs *i = list; i != NULL && !found; i = i->ifa_next) {
        found = lvni_net_address_is(&wanted, i->ifa_addr);
        if (found) {
            strncpy(name, i->ifa_name, IF_NAMESIZE - 1);
            name[IF_NAMESIZE - 1] = '\0';
        }
    }
    freeifaddrs(list);
    return found;
}

/* Variables UCX_* of the user stand above all of it. The end of a process that shares memory is
 * noticed by asking. */
static void configure(const lvni_ucx_api *api, ucp_config_t *config, const char *address)
{
    char name[IF_NAMESIZE];
    if (getenv("UCX_NET_DEVICES") == NULL && !lvni_ucx_has_active_port(LVNI_UCX_PORTS) &&
        interface_of(address, name)) {
        (void)api->config_modify(config, "NET_DEVICES", name);
    }
    if (getenv("UCX_KEEPALIVE_INTERVAL") == NULL) {
        (void)api->config_modify(config, "KEEPALIVE_INTERVAL", "500ms");
    }
    if (getenv("UCX_WARN_UNUSED_ENV_VARS") == NULL) {
        (void)api->config_modify(config, "WARN_UNUSED_ENV_VARS", "n");
    }
}

static lvn_status open_context(lvni_net_comm *c, const char *address)
{
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    ucp_config_t *config;
    LVN_TRY(check(c, "read its configuration", w->api->config_read(NULL, NULL, &config)));
    configure(w->api, config, address);
    const ucp_params_t params = {.field_mask =
                                     UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                                 .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                                 .estimated_num_eps = (size_t)c->base.world};
    const ucs_status_t s =
        w->api->init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &w->context);
    w->api->config_release(config);
    return check(c, "start", s);
}

static lvn_status handle(lvni_net_comm *c, unsigned id, ucp_am_recv_callback_t callback)
{
    const lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    const ucp_am_handler_param_t param = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
        .id = id,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = callback,
        .arg = c};
    return check(c, "take messages", w->api->worker_set_am_recv_handler(w->worker, &param));
}

static lvn_status open_worker(lvni_net_comm *c)
{
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    LVN_TRY(check(c, "make a worker", w->api->worker_create(w->context, &params, &w->worker)));
    LVN_TRY(check(c, "wait for events", w->api->worker_get_efd(w->worker, &w->events)));
    LVN_TRY(handle(c, LVNI_UCX_MESSAGE, lvni_ucx_message));
    LVN_TRY(handle(c, LVNI_UCX_HELLO, lvni_ucx_hello));
    return handle(c, LVNI_UCX_HEARD, lvni_ucx_heard);
}

/* c->wire */
static lvn_status make_wire(lvni_net_comm *c, const char *address)
{
    const char *missing;
    const lvni_ucx_api *api = lvni_ucx_load(&missing);
    if (api == NULL) {
        LVN_FAIL(LVN_ERR_NOT_FOUND, "UCX is not there: %s", missing);
    }
    lvni_ucx_wire *w = LVNI_NEW(LVNI_TAG_DIST, lvni_ucx_wire);
    if (w == NULL) {
        return LVN_ERR_MEMORY;
    }
    c->wire = w;
    w->api = api;
    w->peer = lvni_core_calloc(LVNI_TAG_DIST, (size_t)c->base.world, sizeof *w->peer);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->peer == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (w->wake < 0 || getrandom(w->key, sizeof w->key, 0) != (ssize_t)sizeof w->key) {
        LVN_FAIL(LVN_ERR_IO, "rank %d cannot open a descriptor: %s", c->base.rank, strerror(errno));
    }
    /* UCX starts a thread that must not take the program's signals */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    lvn_status s = open_context(c, address);
    if (s == LVN_OK) {
        s = open_worker(c);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return s;
}

static void close_wire(lvni_net_comm *c)
{
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    for (int rank = 0; w->peer != NULL && rank < c->base.world; rank++) {
        lvni_ucx_drop_early(c, rank);
        lvni_ucx_close_peer(c, rank);
    }
    if (w->worker != NULL) {
        w->api->worker_destroy(w->worker);
    }
    if (w->context != NULL) {
        w->api->cleanup(w->context);
    }
    if (w->wake >= 0) {
        close(w->wake);
    }
    for (lvni_ucx_sending *s = w->spare_sending, *next; s != NULL; s = next) {
        next = s->next;
        lvni_core_free(s);
    }
    for (lvni_ucx_receiving *r = w->spare_receiving, *next; r != NULL; r = next) {
        next = r->next;
        lvni_core_free(r);
    }
    lvni_core_free(w->peer);
    lvni_core_free(w);
}

/* ---- all ranks' ---- */

static lvn_status open_peer(lvni_net_comm *c, int rank, const ucp_address_t *address)
{
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                  UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                                  UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                    .address = address,
                                    .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                    .err_handler = {.cb = lvni_ucx_failed, .arg = &w->peer[rank]}};
    const ucs_status_t s = w->api->ep_create(w->worker, &params, &w->peer[rank].ep);
    if (s != UCS_OK) {
        LVN_FAIL(LVN_ERR_PEER, "rank %d: UCX cannot connect to rank %d: %s; " REMEDY,
                 lvni_dist_comm_number(&c->base, c->base.rank),
                 lvni_dist_comm_number(&c->base, rank), w->api->status_string(s));
    }
    return LVN_OK;
}

/* The first rank whose hello is missing; -1: none. With the lock held. */
static int first_missing(const lvni_net_comm *c)
{
    for (int rank = 0; rank < c->base.world; rank++) {
        if (rank != c->base.rank && !lvni_ucx_wire_of(c)->peer[rank].met) {
            return rank;
        }
    }
    return -1;
}

static lvn_status await_hellos(lvni_net_comm *c, const lvni_dist_comm_options *o)
{
    const uint64_t start = lvni_core_now_ns();
    bool late = false, over = false, lost = false;
    pthread_mutex_lock(&c->lock);
    int missing;
    while ((missing = first_missing(c)) >= 0 && !late && !over && !lost) {
        const struct timespec until = lvni_core_timespec(lvni_core_now_ns() + LOOK_NS);
        (void)pthread_cond_timedwait(&c->changed, &c->lock, &until);
        late = lvni_core_seconds_since(start) > CONNECT_S;
        lost = c->peer[missing].gone;
        over = o->over != NULL && o->over(o->user);
    }
    missing = first_missing(c);
    pthread_mutex_unlock(&c->lock);
    if (missing >= 0 && over) {
        LVN_FAIL(LVN_ERR_PEER, "the run ended while its ranks connected");
    }
    if (missing >= 0) {
        LVN_FAIL(late ? LVN_ERR_TIMEOUT : LVN_ERR_PEER,
                 "rank %d and rank %d do not reach each other over UCX%s; " REMEDY,
                 lvni_dist_comm_number(&c->base, c->base.rank),
                 lvni_dist_comm_number(&c->base, missing), late ? " in time" : "");
    }
    return LVN_OK;
}

/* addresses: stride bytes of each rank, of which the first 4 are its status */
static lvn_status open_peers(lvni_net_comm *c, const lvni_dist_comm_options *o, const card *all,
                             const char *addresses, size_t stride)
{
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    for (int i = 1; i < c->base.world; i++) {
        const int rank = (c->base.rank + i) % c->base.world;
        c->peer[rank].pid = all[rank].pid;
        c->peer[rank].elsewhere = o->host != NULL && o->host[rank] != o->host[c->base.rank];
        memcpy(w->peer[rank].key, all[rank].key, sizeof w->peer[rank].key);
        const void *at = addresses + (size_t)rank * stride + 2 * sizeof(int32_t);
        LVN_TRY(open_peer(c, rank, at));
    }
    LVN_TRY(lvni_ucx_start(c));
    return await_hellos(c, o);
}

/* A copy of this worker's address: the original can be given back only before the link's thread
 * has the worker. */
static lvn_status copy_address(const lvni_net_comm *c, char **out, uint32_t *bytes)
{
    const lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    ucp_address_t *address;
    size_t n;
    LVN_TRY(check(c, "give an address", w->api->worker_get_address(w->worker, &address, &n)));
    *out = lvni_core_alloc(LVNI_TAG_DIST, n);
    if (*out != NULL) {
        memcpy(*out, address, n);
    }
    w->api->worker_release_address(w->worker, address);
    *bytes = (uint32_t)n;
    return *out != NULL ? LVN_OK : LVN_ERR_MEMORY;
}

/* The cards of all are known and good. */
static lvn_status exchange_addresses(lvni_net_comm *c, const lvni_dist_comm_options *o,
                                     const char *address, const card *mine, const card *all)
{
    size_t longest = 0;
    for (int rank = 0; rank < o->world; rank++) {
        longest = all[rank].address_bytes > longest ? all[rank].address_bytes : longest;
    }
    /* 8 bytes before the address: a status, and what keeps the address aligned */
    const size_t stride = (2 * sizeof(int32_t) + longest + 7) / 8 * 8;
    char *memory = lvni_core_calloc(LVNI_TAG_DIST, (size_t)o->world + 1, stride);
    if (memory == NULL) {
        return LVN_ERR_MEMORY; /* the others learn of it when this process ends, as of any end */
    }
    char *own = memory + (size_t)o->world * stride;
    memcpy(own + 2 * sizeof(int32_t), address, mine->address_bytes);
    lvn_status s = lvni_net_exchange_cards(o, own, stride, memory);
    if (s == LVN_OK) {
        s = lvni_net_exchange_outcome(o, own, stride, memory,
                                      open_peers(c, o, all, memory, stride));
    }
    lvni_core_free(memory);
    return s;
}

static lvn_status connect_ucx(lvni_net_comm *c, const lvni_dist_comm_options *o, lvn_status made)
{
    card mine = {.pid = (int32_t)getpid()};
    card *all = lvni_core_calloc(LVNI_TAG_DIST, (size_t)o->world, sizeof *all);
    char *address = NULL;
    if (all == NULL) {
        return LVN_ERR_MEMORY; /* as above */
    }
    lvn_status s = made;
    if (s == LVN_OK) {
        s = make_wire(c, o->address);
    }
    if (s == LVN_OK) {
        memcpy(mine.key, lvni_ucx_wire_of(c)->key, sizeof mine.key);
        s = copy_address(c, &address, &mine.address_bytes);
    }
    mine.status = (int32_t)s;
    s = lvni_net_exchange_cards(o, &mine, sizeof mine, all);
    if (s == LVN_OK && address != NULL) { /* all have one */
        s = exchange_addresses(c, o, address, &mine, all);
    }
    lvni_core_free(address);
    lvni_core_free(all);
    return s;
}

static const lvni_net_link link_ucx = {.connect = connect_ucx,
                                       .wake = lvni_ucx_wake,
                                       .leave = lvni_ucx_leave,
                                       .stop = lvni_ucx_stop,
                                       .close = close_wire};

lvn_status lvni_dist_comm_ucx(const lvni_dist_comm_options *o, lvni_dist_comm **out)
{
    return lvni_net_comm_create(o, &lvni_dist_transport_ucx, &link_ucx, out);
}

static const char *missing(void)
{
    const char *why;
    (void)lvni_ucx_load(&why);
    return why;
}

/* Over TCP alone net's own sockets do as well, and notice lost ranks by themselves. */
static const char *unfit(void)
{
    return lvni_ucx_has_active_port(LVNI_UCX_PORTS)
               ? missing()
               : "there is no active port of InfiniBand or RoCE here";
}

/* Quicker than sockets wherever there is anything else between the hosts. */
static int score(lvni_dist_call_kind call, lvni_dist_memory memory, size_t bytes)
{
    (void)call;
    return (memory == LVNI_DIST_MEMORY_HOST ? 30 : 25) - (bytes < LVNI_NET_SMALL ? 10 : 0);
}

const lvni_dist_transport lvni_dist_transport_ucx = {
    .name = "ucx",
    .does = "exchange messages over UCX",
    .max_ranks = LVNI_NET_MAX_RANKS,
    .score = score,
    .missing = missing,
    .unfit = unfit,
    .connect = lvni_dist_comm_ucx,
    .abilities = LVNI_DIST_MESSAGES,
    LVNI_NET_OPERATIONS,
};
