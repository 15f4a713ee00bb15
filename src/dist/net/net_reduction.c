/* The gradient of a step over messages (dist/reduction.h). A bucket goes this way: a rank for which
 * it is final sends each other rank that rank's slice of its leaves; a rank that has all leaves of
 * its own slice adds them in the fixed tree, piece by piece, by however many threads, and sends the
 * sum with its squares to all. With one leaf per rank a rank sends and receives 2 (W-1)/W of the
 * set.
 *
 * Who may write what, and when:
 *
 *   a set     by its rank from finish to ready; finish waits until all of it is sent.
 *   theirs    by the receiver. A rank sends slices of step t + 1 after its finish of step t, for
 *             which it needed this rank's totals, which were added from what lay there.
 *   total     of a bucket by its owner, or by the receiver: after this rank's ready, without which
 *             nothing of the bucket can be added.
 *   start and note of a step lie twice, for odd and even steps: those of step t + 2 come after this
 *             rank's finish of step t + 1.
 *
 * Counters of messages count those of all steps together. */
#include "dist/net/net_reduction.h"

#include "core/machine.h"

#include <stddef.h>
#include <string.h>

static lvni_net_reduction *of(lvni_dist_reduction *r)
{
    return (lvni_net_reduction *)r;
}

static lvni_net_comm *net_of(const lvni_net_reduction *r)
{
    return (lvni_net_comm *)r->base.comm;
}

static lvni_net_other *own_of(const lvni_net_reduction *r)
{
    return &r->other[r->base.comm->rank];
}

/* What a slice has of [used_begin, used_end) of the norm's floats, and of those behind. Returns how
 * many parts there are. */
static int cut_parts(const lvni_net_reduction *r, int64_t used_begin, int64_t used_end,
                     lvni_plan_range slice, lvni_plan_range part[2])
{
    const int64_t n = r->base.o.n, end = slice.start + slice.count,
                  behind = lvni_dist_reduction_tail(&r->base);
    const int64_t range[2][2] = {{used_begin, used_end < behind ? used_end : behind}, {behind, n}};
    int parts = 0;
    for (int i = 0; i < 2; i++) {
        const int64_t from = range[i][0] > slice.start ? range[i][0] : slice.start,
                      to = range[i][1] < end ? range[i][1] : end;
        if (from < to) {
            part[parts++] = (lvni_plan_range){from, to - from};
        }
    }
    return parts;
}

/* The parts of a slice that are added in a step (lvni_dist_reduction_use). */
static int used_parts(const lvni_net_reduction *r, const lvni_net_beginning *s,
                      lvni_plan_range slice, lvni_plan_range part[2])
{
    return cut_parts(r, s->used_begin, s->used_end, slice, part);
}

/* Those of which all ranks get the total. */
static int total_parts(const lvni_net_reduction *r, const lvni_net_beginning *s,
                       lvni_plan_range slice, lvni_plan_range part[2])
{
    return r->base.o.parts ? cut_parts(r, 0, 0, slice, part) : used_parts(r, s, slice, part);
}

static int64_t used_floats(const lvni_net_reduction *r, const lvni_net_beginning *s,
                           lvni_plan_range slice)
{
    lvni_plan_range part[2];
    int64_t n = 0;
    for (int i = used_parts(r, s, slice, part); i > 0; i--) {
        n += part[i - 1].count;
    }
    return n;
}

static int64_t total_floats(const lvni_net_reduction *r, const lvni_net_beginning *s,
                            lvni_plan_range slice)
{
    lvni_plan_range part[2];
    int64_t n = 0;
    for (int i = total_parts(r, s, slice, part); i > 0; i--) {
        n += part[i - 1].count;
    }
    return n;
}

/* Sums of squares of a slice: its blocks that begin within the norm's floats. */
static lvni_net_part squares_of(const lvni_net_reduction *r, lvni_plan_range slice)
{
    const int64_t block = LVNI_REDUCTION_BLOCK, n = r->base.o.n_norm - slice.start,
                  count = n < slice.count ? n : slice.count;
    return (lvni_net_part){r->base.partial + slice.start / block,
                           count > 0 ? (size_t)((count + block - 1) / block) * sizeof(double) : 0};
}

/* ---- sending, with the lock held ---- */

static void send_job(lvni_net_reduction *r, lvni_net_job *job)
{
    job->left = &r->jobs;
    lvni_net_job_send(net_of(r), job);
}

static void no_memory(lvni_net_reduction *r)
{
    lvni_net_abort_locked(net_of(r), -1, "a rank has no memory to send its gradients");
}

/* The same small message to all; the memory stays until the end of the next step. */
static void send_all(lvni_net_reduction *r, lvni_net_kind kind, void *data, size_t bytes)
{
    lvni_net_comm *c = net_of(r);
    for (int i = 1; i < c->base.world; i++) {
        lvni_net_job *job =
            lvni_net_job_new(c, (c->base.rank + i) % c->base.world, kind, r->id, r->step, 0);
        if (job == NULL) {
            no_memory(r);
            return;
        }
        job->part[job->n_parts++] = (lvni_net_part){data, bytes};
        job->uncounted = kind == LVNI_NET_BEGIN ? bytes : 0;
        send_job(r, job);
    }
}

static void add_parts(lvni_net_part *to, int *n, float *set, const lvni_plan_range *part, int parts)
{
    for (int i = 0; i < parts; i++) {
        to[(*n)++] = (lvni_net_part){set + part[i].start, (size_t)part[i].count * sizeof(float)};
    }
}

/* Each other rank's slice of bucket b, of all leaves of this one. */
static void send_slices(lvni_net_reduction *r, int b)
{
    lvni_net_comm *c = net_of(r);
    for (int i = 1; i < c->base.world; i++) {
        const int to = (c->base.rank + i) % c->base.world;
        const lvni_plan_range slice = lvni_net_slice(r, b, to);
        if (slice.count == 0) {
            continue;
        }
        lvni_net_job *job = lvni_net_job_new(c, to, LVNI_NET_SLICE, r->id, r->step, b);
        if (job == NULL) {
            no_memory(r);
            return;
        }
        const lvni_net_beginning *s = &own_of(r)->start[r->step & 1];
        lvni_plan_range part[2];
        const int parts = used_parts(r, s, slice, part);
        for (int k = 0; k < own_of(r)->n_leaves[r->step & 1]; k++) {
            add_parts(job->part, &job->n_parts, r->set[s->leaf[k].slot], part, parts);
        }
        send_job(r, job);
    }
}

/* This rank's slice of the sum of bucket b. */
static void send_total(lvni_net_reduction *r, int b)
{
    lvni_net_comm *c = net_of(r);
    const lvni_plan_range slice = lvni_net_slice(r, b, c->base.rank);
    for (int i = 1; i < c->base.world; i++) {
        lvni_net_job *job = lvni_net_job_new(c, (c->base.rank + i) % c->base.world, LVNI_NET_TOTAL,
                                             r->id, r->step, b);
        if (job == NULL) {
            no_memory(r);
            return;
        }
        if (r->plan.n_sources > 0) {
            lvni_plan_range part[2];
            const int parts = total_parts(r, &own_of(r)->start[r->step & 1], slice, part);
            add_parts(job->part, &job->n_parts, r->total, part, parts);
            job->part[job->n_parts++] = squares_of(r, slice);
            job->uncounted = squares_of(r, slice).bytes;
        }
        send_job(r, job);
    }
}

/* ---- receiving, with the lock held ---- */

static lvni_net_reduction *find(const lvni_net_comm *c, uint32_t id)
{
    for (lvni_net_reduction *r = c->reductions; r != NULL; r = r->next) {
        if (r->id == id) {
            return r;
        }
    }
    return NULL;
}

static size_t bytes_of(const lvni_net_incoming *p)
{
    size_t bytes = 0;
    for (int i = 0; i < p->n_parts; i++) {
        bytes += p->part[i].bytes;
    }
    return bytes;
}

static void place_slices(const lvni_net_reduction *r, int rank, lvni_net_incoming *p)
{
    const lvni_net_other *o = &r->other[rank];
    const int parity = (int)(p->header.seq & 1);
    lvni_plan_range part[2];
    const int parts = used_parts(r, &o->start[parity],
                                 lvni_net_slice(r, p->header.place, r->base.comm->rank), part);
    for (int k = 0; k < o->n_leaves[parity]; k++) {
        add_parts(p->part, &p->n_parts, o->theirs[k], part, parts);
    }
}

static bool place_beginning(const lvni_net_reduction *r, lvni_net_other *o, lvni_net_incoming *p)
{
    const int parity = (int)(p->header.seq & 1);
    const size_t head = offsetof(lvni_net_beginning, leaf);
    if (p->header.bytes < head || p->header.bytes > sizeof(lvni_net_beginning)) {
        return false;
    }
    o->n_leaves[parity] = (int)((p->header.bytes - head) / sizeof(lvni_plan_tree_node));
    for (int k = 0; k < o->n_leaves[parity]; k++) {
        o->theirs[k] = o->theirs[k] != NULL ? o->theirs[k] : lvni_net_reserve(r->base.o.n);
        if (o->theirs[k] == NULL) {
            return false;
        }
    }
    p->part[p->n_parts++] = (lvni_net_part){&o->start[parity], p->header.bytes};
    return true;
}

static bool place_total(lvni_net_reduction *r, int rank, lvni_net_incoming *p)
{
    const lvni_plan_range slice = lvni_net_slice(r, p->header.place, rank);
    const lvni_net_part squares = squares_of(r, slice);
    if (p->header.bytes == 0) {
        memset(squares.p, 0, squares.bytes); /* no rank had anything to add */
        return true;
    }
    lvni_plan_range part[2];
    const int parts = total_parts(r, &own_of(r)->start[r->step & 1], slice, part);
    add_parts(p->part, &p->n_parts, r->total, part, parts);
    p->part[p->n_parts++] = squares;
    return true;
}

bool lvni_net_reduction_is(const lvni_net_comm *c, uint32_t id)
{
    return find(c, id) != NULL;
}

bool lvni_net_reduction_place(lvni_net_comm *c, int rank, lvni_net_incoming *p)
{
    lvni_net_reduction *r = find(c, p->header.id);
    if (r == NULL) {
        return false;
    }
    lvni_net_other *o = &r->other[rank];
    const int parity = (int)(p->header.seq & 1);
    const bool bucket = p->header.kind == LVNI_NET_SLICE || p->header.kind == LVNI_NET_TOTAL;
    bool placed = true;
    if (bucket && (p->header.place < 0 || p->header.place >= r->base.buckets)) {
        return false;
    }
    if (p->header.kind == LVNI_NET_BEGIN) {
        placed = place_beginning(r, o, p);
    } else if (p->header.kind == LVNI_NET_NOTE) {
        placed = p->header.bytes <= r->base.o.message;
        o->note_bytes[parity] = p->header.bytes;
        p->part[p->n_parts++] = (lvni_net_part){o->note[parity], p->header.bytes};
    } else if (p->header.kind == LVNI_NET_SLICE) {
        place_slices(r, rank, p);
    } else {
        placed = place_total(r, rank, p);
    }
    return placed && bytes_of(p) == p->header.bytes;
}

/* All ranks' leaves, in the order of micro-batches. */
static void make_plan(lvni_net_reduction *r)
{
    int n = 0;
    const int world = r->base.comm->world, parity = (int)(r->step & 1);
    for (int rank = 0; rank < world; rank++) {
        const lvni_net_other *o = &r->other[rank];
        const bool own = rank == r->base.comm->rank;
        for (int i = 0; i < o->n_leaves[parity] && n < r->plan.room; i++, n++) {
            r->node[n] = o->start[parity].leaf[i];
            r->source[n] = own ? r->set[r->node[n].slot] : o->theirs[i];
        }
    }
    lvni_dist_sum_plan_make(&r->plan, r->base.o.micro_batches, r->node, n);
    r->planned = r->step;
}

/* One more rank's leaves of bucket b are here. The last one puts it into the queue. */
static void leaves_came(lvni_net_reduction *r, int b)
{
    const uint64_t world = (uint64_t)r->base.comm->world;
    if (++r->arrived[b] != (uint64_t)r->step * world) {
        return;
    }
    if (r->planned != r->step) {
        make_plan(r);
    }
    r->left[b] = (int)lvni_dist_reduction_slice_pieces(&r->base, b);
    r->queue[r->n_queue++] = b;
}

void lvni_net_reduction_came(lvni_net_comm *c, int rank, const lvni_net_header *header)
{
    lvni_net_reduction *r = find(c, header->id);
    if (r == NULL) {
        return;
    }
    lvni_net_other *o = &r->other[rank];
    if (header->kind == LVNI_NET_BEGIN) {
        return;
    }
    if (header->kind == LVNI_NET_NOTE) {
        o->noted = (uint32_t)header->seq;
    } else if (header->kind == LVNI_NET_TOTAL) {
        o->totals++;
    } else {
        leaves_came(r, (int)header->place);
    }
}

/* ---- a step ---- */

static void begin(lvni_dist_reduction *base, const lvni_plan_tree_node *leaf, int n_leaves)
{
    lvni_net_reduction *r = of(base);
    lvni_net_comm *c = net_of(r);
    pthread_mutex_lock(&c->lock);
    r->step = base->step;
    lvni_net_other *own = own_of(r);
    lvni_net_beginning *s = &own->start[r->step & 1];
    own->n_leaves[r->step & 1] = n_leaves;
    s->used_begin = base->used_begin;
    s->used_end = base->used_end;
    for (int i = 0; i < n_leaves; i++) {
        s->leaf[i] = leaf[i];
    }
    r->n_queue = r->at = 0;
    r->at_piece = 0;
    atomic_store_explicit(&r->added_ns, 0, memory_order_relaxed);
    send_all(r, LVNI_NET_BEGIN, s,
             offsetof(lvni_net_beginning, leaf) + (size_t)n_leaves * sizeof *leaf);
    pthread_mutex_unlock(&c->lock);
}

static void ready_locked(lvni_net_reduction *r, int b)
{
    if (r->reported[b] == r->step) {
        return;
    }
    r->reported[b] = r->step;
    send_slices(r, b);
    if (lvni_net_slice(r, b, r->base.comm->rank).count > 0) {
        leaves_came(r, b);
    }
}

static void ready(lvni_dist_reduction *base, int b)
{
    lvni_net_reduction *r = of(base);
    lvni_net_comm *c = net_of(r);
    pthread_mutex_lock(&c->lock);
    ready_locked(r, b);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static bool help(lvni_dist_reduction *base)
{
    lvni_net_reduction *r = of(base);
    lvni_net_comm *c = net_of(r);
    pthread_mutex_lock(&c->lock);
    if (c->aborted || r->at == r->n_queue) {
        pthread_mutex_unlock(&c->lock);
        return false;
    }
    const int b = r->queue[r->at];
    const int64_t piece = r->at_piece++;
    if (r->at_piece == lvni_dist_reduction_slice_pieces(base, b)) {
        r->at++;
        r->at_piece = 0;
    }
    float *total = r->plan.n_sources > 0 ? r->total : NULL;
    pthread_mutex_unlock(&c->lock);
    const uint64_t start = lvni_core_now_ns();
    (void)lvni_dist_reduction_add(base, &r->plan, r->source, total, b, piece);
    atomic_fetch_add_explicit(&r->added_ns, lvni_core_now_ns() - start, memory_order_relaxed);
    pthread_mutex_lock(&c->lock);
    if (--r->left[b] == 0) {
        send_total(r, b);
        r->added++;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return true;
}

/* Is there anything that `rank` has not sent of this step? */
static bool needs_rank(void *user, int rank)
{
    const lvni_net_reduction *r = user;
    const lvni_net_other *o = &r->other[rank];
    return rank != r->base.comm->rank &&
           (o->noted < r->step || o->totals < (uint64_t)r->step * (uint64_t)o->n_slices);
}

static bool is_whole(lvni_net_reduction *r)
{
    if (r->added < (int64_t)r->step * r->own_slices) {
        return false;
    }
    for (int rank = 0; rank < r->base.comm->world; rank++) {
        if (needs_rank(r, rank)) {
            return false;
        }
    }
    return true;
}

static bool can_go_on(void *user)
{
    lvni_net_reduction *r = user;
    return r->at < r->n_queue || is_whole(r);
}

/* Of this step, however early it came. Returns the leaves of all ranks. */
static int count_received(lvni_net_reduction *r)
{
    const int rank = r->base.comm->rank, parity = (int)(r->step & 1);
    int leaves = 0;
    uint64_t own = 0, totals = 0, notes = 0;
    for (int64_t b = 0; b < r->base.buckets; b++) {
        const lvni_net_beginning *s = &own_of(r)->start[parity];
        own += (uint64_t)used_floats(r, s, lvni_net_slice(r, b, rank));
        for (int from = 0; from < r->base.comm->world; from++) {
            totals += from == rank ? 0 : (uint64_t)total_floats(r, s, lvni_net_slice(r, b, from));
        }
    }
    for (int other_rank = 0; other_rank < r->base.comm->world; other_rank++) {
        leaves += r->other[other_rank].n_leaves[parity];
        notes += other_rank != rank ? r->other[other_rank].note_bytes[parity] : 0;
    }
    const uint64_t theirs = (uint64_t)(leaves - own_of(r)->n_leaves[parity]);
    lvni_dist_comm_add_bytes(r->base.comm, 0,
                             notes + (own * theirs + (leaves > 0 ? totals : 0)) * sizeof(float));
    return leaves;
}

static lvn_status finish(lvni_dist_reduction *base, const void *message, size_t bytes)
{
    lvni_net_reduction *r = of(base);
    lvni_net_comm *c = net_of(r);
    const lvni_dist_wait wait = {.over = can_go_on, .needs = needs_rank, .user = r};
    lvn_status s = LVN_OK;
    base->last = (lvni_dist_reduction_times){0};
    pthread_mutex_lock(&c->lock);
    lvni_net_other *own = own_of(r);
    own->note_bytes[r->step & 1] = bytes;
    memcpy(own->note[r->step & 1], bytes > 0 ? message : "", bytes);
    send_all(r, LVNI_NET_NOTE, own->note[r->step & 1], bytes);
    int64_t early = r->at_piece;
    for (int k = 0; k < r->at; k++) {
        early += lvni_dist_reduction_slice_pieces(base, r->queue[k]);
    }
    for (int b = 0; b < (int)base->buckets; b++) {
        ready_locked(r, b);
    }
    pthread_mutex_unlock(&c->lock);
    for (bool whole = false; !whole && s == LVN_OK;) {
        while (help(base)) {
        }
        pthread_mutex_lock(&c->lock);
        const uint64_t start = lvni_core_now_ns();
        s = lvni_net_wait_locked(c, &wait);
        base->last.waited_ns += lvni_core_now_ns() - start;
        whole = is_whole(r);
        if (s == LVN_OK && !whole) {
            s = lvni_net_health_locked(c); /* after an abort pieces that are left stay */
        }
        if (whole) {
            lvni_net_flush_locked(c, &r->jobs); /* the sets are the caller's again */
        }
        pthread_mutex_unlock(&c->lock);
    }
    LVN_TRY(s);
    const int leaves = count_received(r);
    for (int64_t b = 0; b < base->buckets; b++) {
        base->last.pieces += lvni_dist_reduction_slice_pieces(base, b);
    }
    base->last.pieces_early = early;
    base->last.added_ns = atomic_load_explicit(&r->added_ns, memory_order_relaxed);
    base->total = leaves > 0 ? r->total : NULL;
    return LVN_OK;
}

static float *set(lvni_dist_reduction *base, int i)
{
    return of(base)->set[i];
}

static const void *get_message(lvni_dist_reduction *base, int rank, size_t *bytes)
{
    const lvni_net_other *o = &of(base)->other[rank];
    *bytes = o->note_bytes[base->finished & 1];
    return o->note[base->finished & 1];
}

const lvni_dist_reduction_ops lvni_net_reduction_ops = {
    .destroy = lvni_net_reduction_destroy,
    .set = set,
    .begin = begin,
    .ready = ready,
    .help = help,
    .finish = finish,
    .get_message = get_message,
};
