/* How ranks connect over TCP (net_stream.h), and the end of it. Every rank listens at an address of
 * its own and gives it to the others (the caller's exchange) with a random key; a rank connects to
 * all ranks below it and shows their key, so that any other connection to the port is closed. */
#include "dist/net/net_address.h"
#include "dist/net/net_stream.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* CONNECT_S is less than the ranks wait for each other's cards, so that who is missing is known. */
enum { CONNECT_S = 40, HELLO_S = 2, NEWCOMERS = 64, PEER_TIMEOUT_S = 10, NAMED = 4 };

/* What a rank gives to the others. */
typedef struct card {
    int32_t status; /* of what it has done so far */
    int32_t pid;
    lvni_net_address at;
    unsigned char key[LVNI_NET_KEY];
} card;

/* The first bytes of a connection. */
typedef struct hello {
    unsigned char key[LVNI_NET_KEY];
    int32_t rank;
} hello;

static lvn_status start_listening(const char *address, card *mine, int *fd)
{
    LVN_ARG(lvni_net_address_parse(address, &mine->at), "%s is not an address of TCP", address);
    socklen_t size = lvni_net_address_size(&mine->at);
    if (getrandom(mine->key, sizeof mine->key, 0) != (ssize_t)sizeof mine->key) {
        LVN_FAIL(LVN_ERR_IO, "the system gives no random bytes: %s", strerror(errno));
    }
    *fd = socket(mine->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0 || bind(*fd, &mine->at.any, size) != 0 || listen(*fd, 1024) != 0 ||
        getsockname(*fd, &mine->at.any, &size) != 0) {
        LVN_FAIL(LVN_ERR_IO, "cannot listen at %s for the other ranks: %s", address,
                 strerror(errno));
    }
    return LVN_OK;
}

/* A moment later than the store would notice, which knows more of the cause. */
static double silent_s(const lvni_dist_comm_options *o)
{
    return (o->peer_timeout_s > 0 ? o->peer_timeout_s : PEER_TIMEOUT_S) + 2;
}

/* A connection whose other host no longer answers ends, be it idle or with bytes on their way: two
 * hosts may lose each other while both still reach the store. A host answers for a process that
 * only computes. */
static void set_options(int fd, const lvni_dist_comm_options *o)
{
    const double limit_s = silent_s(o);
    const int on = 1, asked_s = limit_s < 8 ? 1 : (int)(limit_s / 8), times = 8,
              silent_ms = (int)(limit_s * 1000);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &asked_s, sizeof asked_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &asked_s, sizeof asked_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof silent_ms);
}

static bool has_ended(const lvni_dist_comm_options *o)
{
    return o->over != NULL && o->over(o->user);
}

/* As connect(), except that it ends with the run, and where the host is silent: one without power
 * would keep it for minutes, and a process that only computes keeps no rank waiting. 0 or an
 * errno. */
static int connect_within(int fd, const lvni_net_address *to, const lvni_dist_comm_options *o)
{
    enum { LOOK_MS = 50 };
    const uint64_t start = lvni_core_now_ns();
    if (connect(fd, &to->any, lvni_net_address_size(to)) == 0) {
        return 0;
    }
    int error = errno;
    while (error == EINPROGRESS || error == EINTR) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        socklen_t size = sizeof error;
        if (poll(&p, 1, LOOK_MS) > 0) {
            return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
        }
        if (has_ended(o)) {
            return ECANCELED;
        }
        if (lvni_core_seconds_since(start) > silent_s(o)) {
            return ETIMEDOUT;
        }
    }
    return error;
}

static lvn_status connect_to(const lvni_net_comm *c, const lvni_dist_comm_options *o, int rank,
                             const card *card_of_rank, int *fd)
{
    const card *theirs = &card_of_rank[rank];
    *fd = socket(theirs->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int error = *fd < 0 ? errno : connect_within(*fd, &theirs->at, o);
    if (error != 0) {
        char text[LVNI_NET_ADDRESS_TEXT];
        lvni_net_address_print(&theirs->at, text);
        LVN_FAIL(LVN_ERR_PEER,
                 "rank %d cannot connect to rank %d at %s: %s; let connections of these hosts "
                 "pass on all ports",
                 lvni_dist_comm_number(&c->base, c->base.rank),
                 lvni_dist_comm_number(&c->base, rank), text,
                 error == ECANCELED ? "the run ended meanwhile" : strerror(error));
    }
    set_options(*fd, o);
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
                   lvni_net_streams_of(c)->stream[h->rank].fd < 0
               ? h->rank
               : -1;
}

/* Reads what there is of the first bytes of all, and lets ranks in. Returns how many. */
static int gate_read(gate *g, lvni_net_comm *c, const lvni_dist_comm_options *o, const card *mine)
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
                set_options(w->fd, o);
                lvni_net_streams_of(c)->stream[rank].fd = w->fd;
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

/* "rank 3", "ranks 3, 5, 6, 7 and 2 more": those above this one that did not connect. */
static void name_missing(const lvni_net_comm *c, int missing, char *out, size_t room)
{
    int named = 0;
    size_t at = (size_t)snprintf(out, room, "rank%s", missing > 1 ? "s" : "");
    for (int r = c->base.rank + 1; r < c->base.world && named < NAMED; r++) {
        if (lvni_net_streams_of(c)->stream[r].fd < 0) {
            at += (size_t)snprintf(out + at, room - at, "%s %d", named++ > 0 ? "," : "",
                                   lvni_dist_comm_number(&c->base, r));
        }
    }
    if (missing > named) {
        snprintf(out + at, room - at, " and %d more", missing - named);
    }
}

static lvn_status miss(const lvni_net_comm *c, int missing, const card *mine)
{
    char names[96], text[LVNI_NET_ADDRESS_TEXT];
    lvni_net_address_print(&mine->at, text);
    name_missing(c, missing, names, sizeof names);
    LVN_FAIL(LVN_ERR_TIMEOUT,
             "%s did not connect to rank %d at %s within %d s; let connections of these hosts "
             "pass on all ports",
             names, lvni_dist_comm_number(&c->base, c->base.rank), text, CONNECT_S);
}

static lvn_status accept_others(lvni_net_comm *c, const lvni_dist_comm_options *o, int listening,
                                const card *mine)
{
    const uint64_t start = lvni_core_now_ns();
    gate g = {.n = 0};
    lvn_status s = LVN_OK;
    for (int missing = c->base.world - 1 - c->base.rank; missing > 0;) {
        gate_wait(&g, listening);
        LVNI_TRY_DONE(s, gate_accept(&g, c->base.rank, listening));
        missing -= gate_read(&g, c, o, mine);
        if (missing > 0 && has_ended(o)) {
            s = lvn_error_set(LVN_ERR_PEER, __FILE__, __LINE__,
                              "the run ended while its ranks connected");
            goto done;
        }
        if (missing > 0 && lvni_core_seconds_since(start) > CONNECT_S) {
            s = miss(c, missing, mine);
            goto done;
        }
    }
done:
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
            LVN_TRY(connect_to(c, o, rank, all, &lvni_net_streams_of(c)->stream[rank].fd));
        }
    }
    LVN_TRY(accept_others(c, o, listening, &all[c->base.rank]));
    return lvni_net_streams_start(c);
}

/* c->wire */
static lvn_status make_streams(lvni_net_comm *c)
{
    const size_t world = (size_t)c->base.world;
    lvni_net_streams *w = LVNI_NEW(LVNI_TAG_DIST, lvni_net_streams);
    if (w == NULL) {
        return LVN_ERR_MEMORY;
    }
    c->wire = w;
    lvni_core_cond_init(&w->queued);
    w->wake[0] = w->wake[1] = -1;
    w->stream = lvni_core_calloc(LVNI_TAG_DIST, world, sizeof *w->stream);
    if (w->stream == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (size_t r = 0; r < world; r++) {
        w->stream[r].fd = -1;
    }
    if (pipe2(w->wake, O_CLOEXEC) != 0) {
        w->wake[0] = w->wake[1] = -1;
        LVN_FAIL(LVN_ERR_IO, "rank %d cannot open a pipe: %s", c->base.rank, strerror(errno));
    }
    return LVN_OK;
}

static void close_streams(lvni_net_comm *c)
{
    lvni_net_streams *w = lvni_net_streams_of(c);
    for (int rank = 0; w->stream != NULL && rank < c->base.world; rank++) {
        if (w->stream[rank].fd >= 0) {
            close(w->stream[rank].fd);
        }
        lvni_net_drop(&w->stream[rank].in);
    }
    for (int i = 0; i < 2; i++) {
        if (w->wake[i] >= 0) {
            close(w->wake[i]);
        }
    }
    pthread_cond_destroy(&w->queued);
    lvni_core_free(w->stream);
    lvni_core_free(w);
}

static lvn_status connect_streams(lvni_net_comm *c, const lvni_dist_comm_options *o,
                                  lvn_status made)
{
    card mine = {.pid = (int32_t)getpid()};
    card *all = lvni_core_calloc(LVNI_TAG_DIST, (size_t)o->world, sizeof *all);
    if (all == NULL) {
        return LVN_ERR_MEMORY; /* the others learn of it when this process ends, as of any end */
    }
    int listening = -1;
    lvn_status s = made;
    if (s == LVN_OK) {
        s = make_streams(c);
    }
    if (s == LVN_OK) {
        s = start_listening(o->address, &mine, &listening);
    }
    mine.status = (int32_t)s;
    s = lvni_net_exchange_cards(o, &mine, sizeof mine, all);
    if (s == LVN_OK) {
        s = lvni_net_exchange_outcome(o, &mine, sizeof mine, all,
                                      connect_all(c, o, listening, all));
    }
    if (listening >= 0) {
        close(listening);
    }
    lvni_core_free(all);
    return s;
}

static const lvni_net_link streams = {.connect = connect_streams,
                                      .wake = lvni_net_streams_wake,
                                      .leave = lvni_net_streams_leave,
                                      .stop = lvni_net_streams_stop,
                                      .close = close_streams};

lvn_status lvni_dist_comm_net(const lvni_dist_comm_options *o, lvni_dist_comm **out)
{
    return lvni_net_comm_create(o, &lvni_dist_transport_net, &streams, out);
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
    LVNI_NET_OPERATIONS,
};
