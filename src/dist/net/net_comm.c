/* How ranks that share no memory connect, and the end. Every rank listens at an address of its own
 * and gives it to the others (the caller's exchange) with a random key; a rank connects to all
 * ranks below it and shows their key, so that any other connection to the port is closed. */
#include "dist/net/net_impl.h"

#include "core/alloc.h"
#include "core/machine.h"
#include "core/thread.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* CONNECT_S is less than the ranks wait for each other's cards, so that who is missing is known. */
enum { CONNECT_S = 40, HELLO_S = 2, NEWCOMERS = 64 };

/* What a rank gives to the others. */
typedef struct card {
    int32_t status; /* of what it has done so far */
    int32_t pid;
    struct sockaddr_in at;
    unsigned char key[LVNI_NET_KEY];
} card;

/* The first bytes of a connection. */
typedef struct hello {
    unsigned char key[LVNI_NET_KEY];
    int32_t rank;
} hello;

/* ---- what any thread may call ---- */

static void net_abort(lvni_dist_comm *comm, int first, const char *why)
{
    lvni_net_comm *c = (lvni_net_comm *)comm;
    pthread_mutex_lock(&c->lock);
    lvni_net_abort_locked(c, first, why);
    pthread_mutex_unlock(&c->lock);
}

static int first_failed(const lvni_dist_comm *comm)
{
    lvni_net_comm *c = (lvni_net_comm *)(uintptr_t)comm;
    pthread_mutex_lock(&c->lock);
    const int first = c->aborted ? c->first_failed : -1;
    pthread_mutex_unlock(&c->lock);
    return first;
}

static lvn_status health(lvni_dist_comm *comm)
{
    lvni_net_comm *c = (lvni_net_comm *)comm;
    pthread_mutex_lock(&c->lock);
    const lvn_status s = lvni_net_health_locked(c);
    pthread_mutex_unlock(&c->lock);
    return s;
}

static lvn_status net_wait(lvni_dist_comm *comm, const lvni_dist_wait *wait)
{
    lvni_net_comm *c = (lvni_net_comm *)comm;
    pthread_mutex_lock(&c->lock);
    const lvn_status s = lvni_net_wait_locked(c, wait);
    pthread_mutex_unlock(&c->lock);
    return s;
}

static void ring(lvni_dist_comm *comm)
{
    lvni_net_comm *c = (lvni_net_comm *)comm;
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* The lowest rank that is left gets it: ranks agree on who that is without a message. */
static bool claim(lvni_dist_comm *comm)
{
    lvni_net_comm *c = (lvni_net_comm *)comm;
    pthread_mutex_lock(&c->lock);
    bool mine = !c->claimed;
    for (int rank = 0; rank < comm->rank; rank++) {
        mine = mine && (c->peer[rank].gone || (c->aborted && rank == c->first_failed));
    }
    for (int rank = 0; rank < comm->world; rank++) {
        mine = mine && !c->peer[rank].claimed; /* it has left since */
    }
    c->claimed = c->claimed || mine;
    pthread_mutex_unlock(&c->lock);
    return mine;
}

/* ---- the end ---- */

static void destroy(lvni_dist_comm *comm)
{
    lvni_net_comm *c = (lvni_net_comm *)comm;
    lvni_net_stop(c);
    for (int rank = 0; c->peer != NULL && rank < comm->world; rank++) {
        lvni_net_peer *p = &c->peer[rank];
        if (p->fd >= 0) {
            close(p->fd);
        }
        for (lvni_net_mail *m = p->mail, *next; m != NULL; m = next) {
            next = m->next;
            lvni_core_free(m->data);
            lvni_core_free(m);
        }
        if (p->coming != NULL) {
            lvni_core_free(p->coming->data);
            lvni_core_free(p->coming);
        }
    }
    for (int list = 0; list < 2; list++) {
        for (lvni_net_job *job = list == 0 ? c->spare : c->first, *next; job != NULL; job = next) {
            next = job->next;
            lvni_core_free(job->own);
            lvni_core_free(job);
        }
    }
    for (int i = 0; i < 2; i++) {
        if (c->wake[i] >= 0) {
            close(c->wake[i]);
        }
    }
    pthread_cond_destroy(&c->changed);
    pthread_cond_destroy(&c->queued);
    pthread_mutex_destroy(&c->lock);
    lvni_dist_sum_plan_free(&c->plan);
    lvni_core_free(c->source);
    lvni_core_free(c->peer);
    lvni_core_free(c);
}

/* Two copies through the kernel; small messages cost a wake-up of two threads. */
static int score(lvni_dist_call_kind call, lvni_dist_memory memory, size_t bytes)
{
    (void)call;
    return (memory == LVNI_DIST_MEMORY_HOST ? 20 : 15) - (bytes < LVNI_NET_SMALL ? 10 : 0);
}

const lvni_dist_transport lvni_dist_transport_net = {
    .name = "net",
    .does = "exchange messages",
    .max_ranks = LVNI_NET_MAX_RANKS,
    .score = score,
    .connect = lvni_dist_comm_net,
    .abilities = LVNI_DIST_MESSAGES,
    .destroy = destroy,
    .abort = net_abort,
    .first_failed = first_failed,
    .health = health,
    .agree = lvni_net_agree,
    .barrier = lvni_net_barrier,
    .all_reduce = lvni_net_all_reduce,
    .reduce_scatter = lvni_net_reduce_scatter,
    .all_gather = lvni_net_all_gather,
    .broadcast = lvni_net_broadcast,
    .all_to_all = lvni_net_all_to_all,
    .region_open = lvni_dist_local_region_open,
    .region_reserve = lvni_dist_local_region_reserve,
    .region_close = lvni_dist_local_region_close,
    .region_discard = lvni_dist_local_region_close,
    .reduction_create = lvni_net_reduction_create,
    .exchange_create = lvni_net_exchange_create,
    .wait = net_wait,
    .ring = ring,
    .claim = claim,
};

/* ---- the beginning ---- */

static lvn_status make_private(const lvni_dist_comm_options *o, lvni_net_comm **out)
{
    lvni_net_comm *c = LVNI_NEW(LVNI_TAG_DIST, lvni_net_comm);
    *out = c;
    if (c == NULL) {
        return LVN_ERR_MEMORY;
    }
    c->base = (lvni_dist_comm){
        .ops = &lvni_dist_transport_net, .rank = o->rank, .world = o->world, .check = o->check};
    c->wake[0] = c->wake[1] = c->first_failed = -1;
    pthread_mutex_init(&c->lock, NULL);
    lvni_core_cond_init(&c->changed);
    lvni_core_cond_init(&c->queued);
    const size_t world = (size_t)o->world;
    c->peer = lvni_core_calloc(LVNI_TAG_DIST, world, sizeof *c->peer);
    c->source = lvni_core_calloc(LVNI_TAG_DIST, world, sizeof *c->source);
    lvni_plan_tree_node *leaf = lvni_core_calloc(LVNI_TAG_DIST, world, sizeof *leaf);
    lvn_status s = lvni_dist_sum_plan_init(&c->plan, o->world);
    for (int r = 0; r < o->world && c->peer != NULL; r++) {
        c->peer[r].fd = -1;
    }
    if (s == LVN_OK && c->peer != NULL && c->source != NULL && leaf != NULL) {
        for (int r = 0; r < o->world; r++) {
            leaf[r] = (lvni_plan_tree_node){r, r + 1, r};
        }
        lvni_dist_sum_plan_make(&c->plan, o->world, leaf, o->world);
    } else {
        s = LVN_ERR_MEMORY;
    }
    lvni_core_free(leaf);
    LVN_TRY(s);
    if (pipe2(c->wake, O_CLOEXEC) != 0) {
        c->wake[0] = c->wake[1] = -1;
        LVN_FAIL(LVN_ERR_IO, "rank %d cannot open a pipe: %s", o->rank, strerror(errno));
    }
    return LVN_OK;
}

static lvn_status start_listening(const char *address, card *mine, int *fd)
{
    socklen_t size = sizeof mine->at;
    mine->at = (struct sockaddr_in){.sin_family = AF_INET};
    LVN_ARG(inet_pton(AF_INET, address, &mine->at.sin_addr) == 1, "%s is not an IPv4 address",
            address);
    if (getrandom(mine->key, sizeof mine->key, 0) != (ssize_t)sizeof mine->key) {
        LVN_FAIL(LVN_ERR_IO, "the system gives no random bytes: %s", strerror(errno));
    }
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&mine->at, size) != 0 || listen(*fd, 1024) != 0 ||
        getsockname(*fd, (struct sockaddr *)&mine->at, &size) != 0) {
        LVN_FAIL(LVN_ERR_IO, "cannot listen at %s for the other ranks: %s", address,
                 strerror(errno));
    }
    return LVN_OK;
}

static void set_options(int fd)
{
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static lvn_status connect_to(const lvni_net_comm *c, int rank, const card *card_of_rank, int *fd)
{
    const card *theirs = &card_of_rank[rank];
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || connect(*fd, (const struct sockaddr *)&theirs->at, sizeof theirs->at) != 0) {
        char text[INET_ADDRSTRLEN] = "";
        LVN_FAIL(LVN_ERR_PEER, "rank %d cannot connect to rank %d at %s:%d: %s", c->base.rank, rank,
                 inet_ntop(AF_INET, &theirs->at.sin_addr, text, sizeof text),
                 (int)ntohs(theirs->at.sin_port), strerror(errno));
    }
    set_options(*fd);
    hello h = {.rank = c->base.rank};
    memcpy(h.key, theirs->key, sizeof h.key);
    if (send(*fd, &h, sizeof h, MSG_NOSIGNAL) != (ssize_t)sizeof h) {
        LVN_FAIL(LVN_ERR_PEER, "rank %d cannot send to rank %d: %s", c->base.rank, rank,
                 strerror(errno));
    }
    return LVN_OK;
}

/* A connection that has not shown all of its first bytes. */
typedef struct newcomer {
    int fd;
    size_t got;
    uint64_t since_ns;
    hello hello;
} newcomer;

/* Those that wait, the oldest first: one that sends nothing keeps no rank waiting. */
typedef struct gate {
    int n;
    newcomer waiting[NEWCOMERS];
} gate;

static void gate_drop(gate *g, int i, bool closes)
{
    if (closes) {
        close(g->waiting[i].fd);
    }
    g->n--;
    memmove(&g->waiting[i], &g->waiting[i + 1], (size_t)(g->n - i) * sizeof g->waiting[0]);
}

/* What is there to accept, as far as there is room; where there is none the oldest has to go. Each
 * is read at least once. */
static lvn_status gate_accept(gate *g, int rank, int listening)
{
    if (g->n == NEWCOMERS) {
        gate_drop(g, 0, true);
    }
    while (g->n < NEWCOMERS) {
        const int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) {
            return LVN_OK;
        }
        if (fd < 0) {
            LVN_FAIL(LVN_ERR_IO, "rank %d cannot accept the other ranks: %s", rank,
                     strerror(errno));
        }
        g->waiting[g->n++] = (newcomer){.fd = fd, .since_ns = lvni_core_now_ns()};
    }
    return LVN_OK;
}

/* The rank that a whole hello is of; -1: of no rank of this run that is missing. */
static int rank_of(const lvni_net_comm *c, const hello *h, const card *mine)
{
    unsigned char differs = 0;
    for (size_t i = 0; i < sizeof h->key; i++) {
        differs |= h->key[i] ^ mine->key[i];
    }
    return differs == 0 && h->rank > c->base.rank && h->rank < c->base.world &&
                   c->peer[h->rank].fd < 0
               ? h->rank
               : -1;
}

/* Reads what there is of the first bytes of all, and lets ranks in. Returns how many. */
static int gate_read(gate *g, lvni_net_comm *c, const card *mine)
{
    int came = 0;
    for (int i = g->n - 1; i >= 0; i--) {
        newcomer *w = &g->waiting[i];
        const ssize_t n =
            recv(w->fd, (char *)&w->hello + w->got, sizeof w->hello - w->got, MSG_DONTWAIT);
        w->got += n > 0 ? (size_t)n : 0;
        if (w->got == sizeof w->hello) {
            const int rank = rank_of(c, &w->hello, mine);
            if (rank >= 0) {
                set_options(w->fd);
                c->peer[rank].fd = w->fd;
                came++;
            }
            gate_drop(g, i, rank < 0);
        } else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ||
                   lvni_core_seconds_since(w->since_ns) > HELLO_S) {
            gate_drop(g, i, true);
        }
    }
    return came;
}

static void gate_wait(const gate *g, int listening)
{
    struct pollfd p[NEWCOMERS + 1] = {{.fd = listening, .events = POLLIN}};
    for (int i = 0; i < g->n; i++) {
        p[i + 1] = (struct pollfd){.fd = g->waiting[i].fd, .events = POLLIN};
    }
    (void)poll(p, (nfds_t)g->n + 1, 100);
}

static lvn_status accept_others(lvni_net_comm *c, const lvni_dist_comm_options *o, int listening,
                                const card *mine)
{
    const uint64_t start = lvni_core_now_ns();
    gate g = {.n = 0};
    lvn_status s = LVN_OK;
    for (int missing = c->base.world - 1 - c->base.rank; missing > 0 && s == LVN_OK;) {
        gate_wait(&g, listening);
        s = gate_accept(&g, c->base.rank, listening);
        missing -= gate_read(&g, c, mine);
        if (s == LVN_OK && missing > 0 && o->over != NULL && o->over(o->user)) {
            s = lvn_error_set(LVN_ERR_PEER, __FILE__, __LINE__,
                              "the run ended while its ranks connected");
        }
        if (s == LVN_OK && missing > 0 && lvni_core_seconds_since(start) > CONNECT_S) {
            s = lvn_error_set(LVN_ERR_TIMEOUT, __FILE__, __LINE__,
                              "%d of the ranks above rank %d did not connect within %d s", missing,
                              c->base.rank, CONNECT_S);
        }
    }
    while (g.n > 0) {
        gate_drop(&g, 0, true);
    }
    return s;
}

static lvn_status connect_all(lvni_net_comm *c, const lvni_dist_comm_options *o, int listening,
                              const card *all)
{
    for (int rank = 0; rank < c->base.world; rank++) {
        c->peer[rank].pid = all[rank].pid;
        c->peer[rank].elsewhere = o->host != NULL && o->host[rank] != o->host[c->base.rank];
        if (rank < c->base.rank) {
            LVN_TRY(connect_to(c, rank, all, &c->peer[rank].fd));
        }
    }
    LVN_TRY(accept_others(c, o, listening, &all[c->base.rank]));
    return lvni_net_start(c);
}

static lvn_status exchange_cards(const lvni_dist_comm_options *o, const card *mine, card *all)
{
    LVN_TRY(o->exchange(o->user, mine, sizeof *mine, all));
    for (int rank = 0; rank < o->world && mine->status == LVN_OK; rank++) {
        if (all[rank].status != LVN_OK) {
            const lvn_status theirs = (lvn_status)all[rank].status;
            LVN_FAIL(theirs, "rank %d cannot connect to the others: %s", rank,
                     lvn_status_text(theirs));
        }
    }
    return (lvn_status)mine->status;
}

lvn_status lvni_dist_comm_net(const lvni_dist_comm_options *o, lvni_dist_comm **out)
{
    *out = NULL;
    LVN_ARG(o->world >= 1 && o->world <= LVNI_NET_MAX_RANKS && o->rank >= 0 && o->rank < o->world &&
                o->exchange != NULL && o->address != NULL,
            "rank %d of %d, with%s an exchange; at most %d ranks", o->rank, o->world,
            o->exchange != NULL ? "" : "out", LVNI_NET_MAX_RANKS);
    card mine = {.pid = (int32_t)getpid()};
    card *all = lvni_core_calloc(LVNI_TAG_DIST, (size_t)o->world, sizeof *all);
    if (all == NULL) {
        return LVN_ERR_MEMORY; /* the others learn of it when this process ends, as of any end */
    }
    lvni_net_comm *c;
    int listening = -1;
    lvn_status s = make_private(o, &c);
    if (s == LVN_OK) {
        s = start_listening(o->address, &mine, &listening);
    }
    mine.status = (int32_t)s;
    s = exchange_cards(o, &mine, all);
    if (s == LVN_OK) {
        mine.status = (int32_t)connect_all(c, o, listening, all);
        s = exchange_cards(o, &mine, all);
    }
    if (listening >= 0) {
        close(listening);
    }
    lvni_core_free(all);
    if (s != LVN_OK && c != NULL) {
        lvni_dist_comm_destroy(&c->base);
        return s;
    }
    *out = c != NULL ? &c->base : NULL;
    return s;
}
