/* Collectives and group exchanges over messages (net_impl.h). Every call has a number, the same on
 * all ranks, which its messages carry; sums are added in the fixed tree over ranks (plan/tree.h).
 * Memory of the caller is sent from where it lies, so a call ends only when all of it is sent. */
#include "dist/net/net_impl.h"

#include "core/alloc.h"
#include "core/error.h"

#include <stdio.h>
#include <string.h>

/* ---- messages of a call ---- */

static lvni_net_comm *net(lvni_dist_comm *comm)
{
    return (lvni_net_comm *)comm;
}

/* With the lock held. */
static lvn_status post(lvni_net_comm *c, int peer, lvni_net_kind kind, uint32_t id, uint64_t seq,
                       const void *data, size_t bytes, int64_t *left)
{
    lvni_net_job *job = lvni_net_job_new(c, peer, kind, id, seq, 0);
    if (job == NULL) {
        lvni_net_abort_locked(c, -1, "a rank has no memory for a message");
        return LVN_ERR_MEMORY;
    }
    lvni_net_part part = {NULL, bytes};
    memcpy(&part.p, &data, sizeof data); /* it is only read */
    job->part[job->n_parts++] = part;
    job->left = left;
    lvni_net_job_send(c, job);
    return LVN_OK;
}

typedef struct mail_wait {
    lvni_net_comm *c;
    int peer;
    uint32_t kind, id;
    uint64_t seq;
    lvni_net_mail **found;
} mail_wait;

static bool mail_over(void *user)
{
    mail_wait *w = user;
    for (lvni_net_mail **m = &w->c->peer[w->peer].mail; *m != NULL; m = &(*m)->next) {
        const lvni_net_header *h = &(*m)->header;
        if (h->kind == w->kind && h->id == w->id && h->seq == w->seq) {
            w->found = m;
            return true;
        }
    }
    return false;
}

static bool mail_needs(void *user, int rank)
{
    return rank == ((mail_wait *)user)->peer;
}

/* With the lock held: the next message of `peer`, now the caller's. */
static lvn_status take_any(lvni_net_comm *c, int peer, lvni_net_kind kind, uint32_t id,
                           uint64_t seq, lvni_net_mail **out)
{
    mail_wait w = {.c = c, .peer = peer, .kind = (uint32_t)kind, .id = id, .seq = seq};
    const lvni_dist_wait wait = {.over = mail_over, .needs = mail_needs, .user = &w};
    *out = NULL;
    LVN_TRY(lvni_net_wait_locked(c, &wait));
    *out = *w.found;
    *w.found = (*out)->next;
    lvni_dist_comm_add_bytes(&c->base, 0, (*out)->header.bytes);
    return LVN_OK;
}

static void drop(lvni_net_mail *mail)
{
    if (mail != NULL) {
        lvni_core_free(mail->data);
        lvni_core_free(mail);
    }
}

/* The same of a call, in which all ranks know how much each of them sends. */
static lvn_status take(lvni_net_comm *c, int peer, uint64_t seq, size_t bytes, lvni_net_mail **out)
{
    LVN_TRY(take_any(c, peer, LVNI_NET_CALL, 0, seq, out));
    if ((*out)->header.bytes == bytes) {
        return LVN_OK;
    }
    char why[LVNI_NET_WHY];
    snprintf(why, sizeof why,
             "rank %d sends %llu bytes in call %llu, and rank %d expects %zu: they call different "
             "collectives, or the same with different sizes",
             peer, (unsigned long long)(*out)->header.bytes, (unsigned long long)seq, c->base.rank,
             bytes);
    lvni_net_abort_locked(c, -1, why);
    LVN_FAIL(LVN_ERR_MISMATCH, "%-s", why);
}

/* Those bytes into `to`. */
static lvn_status take_into(lvni_net_comm *c, int peer, uint64_t seq, size_t bytes, void *to)
{
    lvni_net_mail *mail;
    lvn_status s;
    LVNI_TRY_DONE(s, take(c, peer, seq, bytes, &mail));
    if (bytes > 0) {
        memcpy(to, mail->data, bytes);
    }
done:
    drop(mail);
    return s;
}
/* One message to and from each other rank: `bytes` from in + rank * in_stride; what rank r sends
 * goes to out + r * bytes. */
static lvn_status swap_all(lvni_net_comm *c, const char *in, size_t in_stride, size_t bytes,
                           char *out)
{
    const uint64_t seq = ++c->seq;
    const int world = c->base.world, rank = c->base.rank;
    int64_t left = 0;
    pthread_mutex_lock(&c->lock);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_net_health_locked(c));
    for (int i = 1; i < world; i++) {
        const int to = (rank + i) % world; /* not all to the same one first */
        LVNI_TRY_DONE(
            s, post(c, to, LVNI_NET_CALL, 0, seq, in + (size_t)to * in_stride, bytes, &left));
    }
    const char *own = in + (size_t)rank * in_stride;
    if (bytes > 0 && own != out + (size_t)rank * bytes) {
        memmove(out + (size_t)rank * bytes, own, bytes);
    }
    for (int i = 1; i < world; i++) {
        const int from = (rank + i) % world;
        LVNI_TRY_DONE(s, take_into(c, from, seq, bytes, out + (size_t)from * bytes));
    }
done:
    lvni_net_flush_locked(c, &left);
    pthread_mutex_unlock(&c->lock);
    return s;
}

lvn_status lvni_net_barrier(lvni_dist_comm *comm)
{
    char none[1] = {0};
    return swap_all(net(comm), none, 0, 0, none);
}

lvn_status lvni_net_all_gather(lvni_dist_comm *comm, const void *in, size_t bytes, void *out)
{
    return swap_all(net(comm), in, 0, bytes, out);
}

/* Every rank answers: a call ends with all ranks in it, so that none runs ahead of the others
 * without bound, or goes on without one that is lost. */
lvn_status lvni_net_broadcast(lvni_dist_comm *comm, void *data, size_t bytes, int root)
{
    lvni_net_comm *c = net(comm);
    const uint64_t seq = ++c->seq;
    const bool sends = comm->rank == root;
    int64_t left = 0;
    pthread_mutex_lock(&c->lock);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_net_health_locked(c));
    if (!sends) {
        LVNI_TRY_DONE(s, take_into(c, root, seq, bytes, data));
        s = post(c, root, LVNI_NET_CALL, 0, seq, NULL, 0, &left);
        goto done;
    }
    for (int i = 1; i < comm->world; i++) {
        LVNI_TRY_DONE(s,
                      post(c, (root + i) % comm->world, LVNI_NET_CALL, 0, seq, data, bytes, &left));
    }
    for (int i = 1; i < comm->world; i++) {
        LVNI_TRY_DONE(s, take_into(c, (root + i) % comm->world, seq, 0, NULL));
    }
done:
    lvni_net_flush_locked(c, &left);
    pthread_mutex_unlock(&c->lock);
    return s;
}

/* ---- sums ---- */

/* Sends elements [from[r], to[r]) of `in` to each rank r, and adds what came for this rank: out =
 * the sum, `n` elements. */
static lvn_status add_slices(lvni_net_comm *c, const char *in, const size_t *from, size_t n_mine,
                             void *out, lvn_dtype dtype, lvni_dist_reduce how)
{
    const uint64_t seq = ++c->seq;
    const int world = c->base.world, rank = c->base.rank;
    const size_t size = lvn_dtype_size(dtype);
    int64_t left = 0;
    lvni_net_mail *mail[LVNI_NET_MAX_RANKS];
    memset(mail, 0, (size_t)world * sizeof(lvni_net_mail *));
    pthread_mutex_lock(&c->lock);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_net_health_locked(c));
    for (int i = 1; i < world; i++) {
        const int to = (rank + i) % world;
        LVNI_TRY_DONE(s, post(c, to, LVNI_NET_CALL, 0, seq, in + from[to] * size,
                              (from[to + 1] - from[to]) * size, &left));
    }
    for (int i = 1; i < world; i++) {
        const int peer = (rank + i) % world;
        LVNI_TRY_DONE(s, take(c, peer, seq, n_mine * size, &mail[peer]));
        c->source[peer] = mail[peer]->data;
    }
done:
    lvni_net_flush_locked(c, &left); /* `out` may be part of `in` */
    pthread_mutex_unlock(&c->lock);
    if (s == LVN_OK) {
        const void *own = in + from[rank] * size;
        memcpy(&c->source[rank], &own, sizeof own);
        lvni_dist_sum_run(&c->plan, c->source, out, 0, (int64_t)n_mine, dtype, how);
    }
    for (int peer = 0; peer < world; peer++) {
        drop(mail[peer]);
    }
    return s;
}

/* All numbers to all, added everywhere. */
static lvn_status reduce_small(lvni_net_comm *c, const void *in, void *out, int64_t n,
                               lvn_dtype dtype, lvni_dist_reduce how)
{
    char all[LVNI_NET_SMALL];
    const size_t bytes = (size_t)n * lvn_dtype_size(dtype);
    LVN_TRY(swap_all(c, in, 0, bytes, all));
    for (int r = 0; r < c->base.world; r++) {
        c->source[r] = all + (size_t)r * bytes;
    }
    lvni_dist_sum_run(&c->plan, c->source, out, 0, n, dtype, how);
    return LVN_OK;
}

/* After its own slice is summed: every rank's slice to everyone. */
static lvn_status spread_slices(lvni_net_comm *c, char *out, const size_t *from, size_t size)
{
    const uint64_t seq = ++c->seq;
    const int world = c->base.world, rank = c->base.rank;
    int64_t left = 0;
    lvn_status s = LVN_OK;
    pthread_mutex_lock(&c->lock);
    for (int i = 1; i < world; i++) {
        LVNI_TRY_DONE(s, post(c, (rank + i) % world, LVNI_NET_CALL, 0, seq, out + from[rank] * size,
                              (from[rank + 1] - from[rank]) * size, &left));
    }
    for (int i = 1; i < world; i++) {
        const int peer = (rank + i) % world;
        LVNI_TRY_DONE(s, take_into(c, peer, seq, (from[peer + 1] - from[peer]) * size,
                                   out + from[peer] * size));
    }
done:
    lvni_net_flush_locked(c, &left);
    pthread_mutex_unlock(&c->lock);
    return s;
}

lvn_status lvni_net_all_reduce(lvni_dist_comm *comm, const void *in, void *out, int64_t n,
                               lvn_dtype dtype, lvni_dist_reduce how)
{
    lvni_net_comm *c = net(comm);
    const size_t size = lvn_dtype_size(dtype);
    if ((size_t)n * size <= (size_t)LVNI_NET_SMALL / (size_t)comm->world) {
        return reduce_small(c, in, out, n, dtype, how);
    }
    size_t from[LVNI_NET_MAX_RANKS + 1];
    for (int r = 0; r <= comm->world; r++) {
        from[r] = (size_t)lvni_dist_slice_begin(n, comm->world, r);
    }
    LVN_TRY(add_slices(c, in, from, from[comm->rank + 1] - from[comm->rank],
                       (char *)out + from[comm->rank] * size, dtype, how));
    return spread_slices(c, out, from, size);
}

/* ---- group exchanges ---- */

typedef struct net_exchange {
    lvni_dist_group_exchange base;
    uint64_t round[2];                /* of the run that begins before this rank, and with it */
    lvni_dist_group_message *message; /* world */
    lvni_net_mail **mail;             /* what they point at */
} net_exchange;

static void forget(const net_exchange *x)
{
    for (int i = 0; i < x->base.comm->world; i++) {
        drop(x->mail[i]);
        x->mail[i] = NULL;
    }
}

static void exchange_destroy(lvni_dist_group_exchange *exchange)
{
    net_exchange *x = (net_exchange *)exchange;
    if (x->mail != NULL) {
        forget(x);
    }
    lvni_core_free(x->mail);
    lvni_core_free(x->message);
    lvni_core_free(x);
}

/* Among the others' messages, and valid as long. With the lock held. */
static lvn_status copy_own(lvni_net_comm *c, const void *mine, size_t bytes, lvni_net_mail **out)
{
    lvni_net_mail *m = LVNI_NEW(LVNI_TAG_DIST, lvni_net_mail);
    void *data = lvni_core_alloc(LVNI_TAG_DIST, bytes);
    if (m == NULL || data == NULL) {
        lvni_core_free(m);
        lvni_core_free(data);
        lvni_net_abort_locked(c, -1, "a rank has no memory for the messages of its group");
        return LVN_ERR_MEMORY;
    }
    memcpy(data, bytes > 0 ? mine : "", bytes);
    m->header.bytes = bytes;
    m->data = data;
    *out = m;
    return LVN_OK;
}

static lvn_status exchange_run(lvni_dist_group_exchange *exchange, int lo, int hi, const void *mine,
                               size_t bytes, const lvni_dist_group_message **message)
{
    net_exchange *x = (net_exchange *)exchange;
    lvni_net_comm *c = net(x->base.comm);
    const int rank = c->base.rank;
    const uint64_t round = ++x->round[rank == lo];
    const uint32_t id = (uint32_t)lo;
    int64_t left = 0;
    forget(x);
    pthread_mutex_lock(&c->lock);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_net_health_locked(c));
    for (int to = lo; to < hi; to++) {
        LVNI_TRY_DONE(s, to != rank ? post(c, to, LVNI_NET_GROUP, id, round, mine, bytes, &left)
                                    : LVN_OK);
    }
    for (int from = lo; from < hi; from++) {
        lvni_net_mail **m = &x->mail[from - lo];
        LVNI_TRY_DONE(s, from == rank ? copy_own(c, mine, bytes, m)
                                      : take_any(c, from, LVNI_NET_GROUP, id, round, m));
        x->message[from - lo] = (lvni_dist_group_message){(*m)->data, (size_t)(*m)->header.bytes};
    }
done:
    lvni_net_flush_locked(c, &left);
    pthread_mutex_unlock(&c->lock);
    *message = x->message;
    return s;
}

static const lvni_dist_exchange_ops exchange_ops = {.destroy = exchange_destroy,
                                                    .run = exchange_run};

lvn_status lvni_net_exchange_create(lvni_dist_comm *comm, int lo, int hi,
                                    lvni_dist_group_exchange **out)
{
    (void)lo, (void)hi;
    net_exchange *x = LVNI_NEW(LVNI_TAG_DIST, net_exchange);
    lvn_status s = x != NULL ? LVN_OK : LVN_ERR_MEMORY;
    if (x != NULL) {
        x->base = (lvni_dist_group_exchange){&exchange_ops, comm};
        x->message = lvni_core_calloc(LVNI_TAG_DIST, (size_t)comm->world, sizeof *x->message);
        x->mail = lvni_core_calloc(LVNI_TAG_DIST, (size_t)comm->world, sizeof *x->mail);
        s = x->message != NULL && x->mail != NULL ? LVN_OK : LVN_ERR_MEMORY;
    }
    s = lvni_dist_comm_agree_status(comm, s, "messages among ranks");
    if (s != LVN_OK) {
        if (x != NULL) {
            exchange_destroy(&x->base);
        }
        return s;
    }
    *out = &x->base;
    return LVN_OK;
}
