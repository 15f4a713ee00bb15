/* The steps of a reduction in two levels (dist/reduction.h). A bucket goes this way: every rank of
 * a node calls ready; the last one writes it into the node's queue; each channel adds its slice of
 * the bucket, for each sub-tree that the node owes, into a set of the outer reduction, and calls
 * ready there: between nodes the slices travel and are added while other buckets are still being
 * computed. In finish a channel copies its sums into the node's total. A node sends and receives
 * 2 (N-1)/N of the gradient, when what its ranks have is one sub-tree.
 *
 * Who may write what, and when:
 *   a set, leaves and message   by its rank from finish to ready, begin and finish. The channels of
 *             the node read them before they have delivered, which finish waits for.
 *   total, partial sums, messages of all ranks   by channels after all ranks of all nodes have
 *             arrived: none reads the last step's. */
#include "core/machine.h"
#include "dist/levels/levels_reduction.h"
#include "dist/reduction_wait.h"

#include <string.h>

static lvni_levels_reduction *of(lvni_dist_reduction *r)
{
    return (lvni_levels_reduction *)r;
}

static _Atomic uint32_t *ready_count(const lvni_levels_reduction *r, int64_t b)
{
    return (_Atomic uint32_t *)(void *)(r->region.common + r->at_ready) + b;
}

static _Atomic uint64_t *queue_entry(const lvni_levels_reduction *r, int64_t place)
{
    return (_Atomic uint64_t *)(void *)(r->region.common + r->at_queue) + place;
}

static lvni_levels_common *common_of(const lvni_levels_reduction *r)
{
    return (lvni_levels_common *)(void *)r->region.common;
}

static lvni_levels_part *own_part(const lvni_levels_reduction *r)
{
    return lvni_levels_part_of(r, lvni_levels_of(r)->local);
}

static void ring(const lvni_levels_reduction *r)
{
    lvni_dist_comm *inner = lvni_levels_of(r)->inner;
    inner->ops->ring(inner);
}

static unsigned char *message_of(const lvni_levels_reduction *r, int rank)
{
    return (unsigned char *)r->region.common + r->at_messages + (size_t)rank * r->message_stride;
}

static uint64_t *size_of(const lvni_levels_reduction *r, int rank)
{
    return (uint64_t *)(void *)(r->region.common + r->at_sizes) + rank;
}

/* ---- what the node owes ---- */

/* With the lock held: the leaves of the node's ranks, each in its sub-tree. All of them have begun.
 */
static void make_plan(lvni_levels_reduction *r)
{
    const lvni_levels_comm *c = lvni_levels_of(r);
    lvni_plan_tree_node owed[LVNI_TREE_PENDING];
    int n = 0, n_owed = 0, next = 0;
    for (int local = 0; local < c->inner->world; local++) {
        const lvni_levels_part *p = lvni_levels_part_of(r, local);
        for (int i = 0; i < p->n_leaves; i++, n++) {
            r->leaf[n] = p->leaf[i];
            r->source[n] = lvni_levels_set(r, local, p->leaf[i].slot);
        }
    }
    for (int k = 0; k < r->n_trees; k++) {
        lvni_levels_tree *t = &r->tree[k];
        t->first = next;
        while (next < n && r->leaf[next].end <= t->node.end) {
            next++;
        }
        t->n = next - t->first;
        lvni_dist_sum_plan_make(&t->plan, r->base.o.micro_batches, r->leaf + t->first, t->n);
        if (t->n > 0) {
            owed[n_owed++] = (lvni_plan_tree_node){t->node.begin, t->node.end, k};
        }
    }
    r->n_leaves = n;
    lvni_dist_reduction_use(r->outer, lvni_levels_floats_below(r, r->base.used_begin),
                            lvni_levels_floats_below(r, r->base.used_end));
    if (lvni_dist_reduction_begin(r->outer, owed, n_owed) == LVN_OK) {
        r->planned = r->step;
    } /* else finish finds out why */
}

/* ---- adding ---- */

typedef struct piece {
    int64_t bucket, number;
} piece;

/* With the lock held: the bucket that is next in the queue; -1: there is none yet. Passes those of
 * which the channel has nothing. */
static int64_t next_bucket(lvni_levels_reduction *r)
{
    for (; r->at < r->base.buckets; r->at++) {
        const uint64_t entry = atomic_load(queue_entry(r, r->at));
        if ((uint32_t)(entry >> 32) != r->step) {
            return -1;
        }
        if (lvni_levels_pieces(r, (int64_t)(uint32_t)entry) > 0) {
            return (int64_t)(uint32_t)entry;
        }
        r->done++;
    }
    return -1;
}

static bool claim_piece(lvni_levels_reduction *r, piece *p)
{
    pthread_mutex_lock(&r->lock);
    p->bucket = next_bucket(r);
    if (p->bucket >= 0 && r->planned != r->step) {
        make_plan(r);
    }
    const bool some = p->bucket >= 0 && r->planned == r->step;
    if (some) {
        p->number = r->at_piece++;
        if (p->number == 0) {
            r->left[p->bucket] = (int)lvni_levels_pieces(r, p->bucket);
        }
        if (r->at_piece == lvni_levels_pieces(r, p->bucket)) {
            r->at++;
            r->at_piece = 0;
        }
    }
    pthread_mutex_unlock(&r->lock);
    return some;
}

/* Are the floats of the block at `at` added in this step? */
static bool is_used(const lvni_levels_reduction *r, int64_t at, int64_t n)
{
    return at + n > r->base.o.n_norm || (at >= r->base.used_begin && at < r->base.used_end);
}

static void add_piece(lvni_levels_reduction *r, piece p)
{
    const lvni_plan_range slice = lvni_levels_slice(r, p.bucket);
    const int64_t offset = lvni_levels_place(r, p.bucket) - slice.start,
                  begin = slice.start + p.number * LVNI_REDUCTION_PIECE,
                  last = slice.start + slice.count,
                  end = begin + LVNI_REDUCTION_PIECE < last ? begin + LVNI_REDUCTION_PIECE : last;
    for (int64_t at = begin; at < end; at += LVNI_REDUCTION_BLOCK) {
        const int64_t n = end - at < LVNI_REDUCTION_BLOCK ? end - at : LVNI_REDUCTION_BLOCK;
        for (int k = 0; k < r->n_trees && is_used(r, at, n); k++) {
            const lvni_levels_tree *t = &r->tree[k];
            lvni_dist_sum_run_to(&t->plan, r->source + t->first, at,
                                 lvni_dist_reduction_set(r->outer, k) + (offset + at), n, LVN_F32,
                                 LVNI_REDUCE_SUM);
        }
    }
}

static bool help(lvni_dist_reduction *base)
{
    lvni_levels_reduction *r = of(base);
    piece p;
    if (r->outer == NULL) {
        return false;
    }
    if (!claim_piece(r, &p)) {
        pthread_mutex_lock(&r->lock);
        const bool begun = r->planned == r->step;
        pthread_mutex_unlock(&r->lock);
        return begun && lvni_dist_reduction_help(r->outer);
    }
    const uint64_t start = lvni_core_now_ns();
    add_piece(r, p);
    pthread_mutex_lock(&r->lock);
    r->added_ns += lvni_core_now_ns() - start;
    const bool whole = --r->left[p.bucket] == 0;
    pthread_mutex_unlock(&r->lock);
    if (whole) {
        lvni_dist_reduction_ready(r->outer, (int)p.bucket);
        pthread_mutex_lock(&r->lock);
        r->done++;
        pthread_mutex_unlock(&r->lock);
        ring(r);
    }
    return true;
}

/* ---- a step ---- */

static void begin(lvni_dist_reduction *base, const lvni_plan_tree_node *leaf, int n_leaves)
{
    lvni_levels_reduction *r = of(base);
    lvni_levels_part *p = own_part(r);
    p->n_leaves = n_leaves;
    for (int i = 0; i < n_leaves; i++) {
        p->leaf[i] = leaf[i];
    }
    pthread_mutex_lock(&r->lock);
    r->step = base->step;
    r->at = r->at_piece = r->done = 0;
    r->added_ns = 0;
    pthread_mutex_unlock(&r->lock);
}

static void ready(lvni_dist_reduction *base, int b)
{
    lvni_levels_reduction *r = of(base);
    const uint32_t step = base->step, ranks = (uint32_t)lvni_levels_of(r)->inner->world;
    if (atomic_exchange(&r->reported[b], step) == step ||
        atomic_fetch_add(ready_count(r, b), 1) + 1 != step * ranks) {
        return;
    }
    const uint64_t place =
        atomic_fetch_add(&common_of(r)->tail, 1) - (uint64_t)(step - 1) * (uint64_t)base->buckets;
    atomic_store(queue_entry(r, (int64_t)place), (uint64_t)step << 32 | (uint32_t)b);
    ring(r);
}

/* ---- the end of a step ---- */

static bool has_not_arrived(void *user, int local)
{
    const lvni_levels_reduction *r = user;
    return lvni_dist_reduction_behind(&lvni_levels_part_of(r, local)->arrived, r->base.step);
}

/* All ranks of the node are at the end of the step, and the channel has added its part. */
static bool is_added(lvni_levels_reduction *r)
{
    pthread_mutex_lock(&r->lock);
    (void)next_bucket(r);
    const bool done = r->done == r->base.buckets;
    pthread_mutex_unlock(&r->lock);
    return done && lvni_dist_wait_is_over(lvni_levels_of(r)->inner, has_not_arrived, r);
}

static bool can_go_on(void *user)
{
    lvni_levels_reduction *r = user;
    pthread_mutex_lock(&r->lock);
    const bool more = next_bucket(r) >= 0;
    pthread_mutex_unlock(&r->lock);
    return more || is_added(r);
}

static bool has_not_delivered(void *user, int local)
{
    const lvni_levels_reduction *r = user;
    return local < lvni_levels_of(r)->channels &&
           lvni_dist_reduction_behind(&lvni_levels_part_of(r, local)->delivered, r->base.step);
}

static bool all_delivered(void *user)
{
    const lvni_levels_reduction *r = user;
    return lvni_dist_wait_is_over(lvni_levels_of(r)->inner, has_not_delivered, user);
}

static lvn_status wait_for(lvni_levels_reduction *r, bool (*over)(void *),
                           bool (*needs)(void *, int))
{
    return lvni_dist_reduction_wait(lvni_levels_of(r)->inner,
                                    &(lvni_dist_wait){.over = over, .needs = needs, .user = r},
                                    &r->base.last);
}

/* The messages of the node's ranks one after the other, each behind its size. */
static size_t make_bundle(lvni_levels_reduction *r)
{
    const lvni_levels_comm *c = lvni_levels_of(r);
    size_t at = 0;
    for (int local = 0; local < c->inner->world && c->local == 0; local++) {
        const uint64_t bytes = lvni_levels_part_of(r, local)->bytes;
        memcpy(r->bundle + at, &bytes, sizeof bytes);
        memcpy(r->bundle + at + sizeof bytes,
               lvni_dist_region_part(&r->region, local) + r->at_message, bytes);
        at += sizeof bytes + bytes;
    }
    return at;
}

static void take_bundles(lvni_levels_reduction *r)
{
    const lvni_levels_comm *c = lvni_levels_of(r);
    for (int node = 0; node < c->nodes && c->local == 0; node++) {
        size_t bytes, at = 0;
        const unsigned char *bundle = lvni_dist_reduction_get_message(r->outer, node, &bytes);
        for (int rank = c->first[node]; rank < c->first[node + 1]; rank++) {
            memcpy(size_of(r, rank), bundle + at, sizeof(uint64_t));
            at += sizeof(uint64_t);
            memcpy(message_of(r, rank), bundle + at, *size_of(r, rank));
            at += *size_of(r, rank);
        }
    }
}

/* Has the node the total of the block at `at`? */
static bool is_kept(const lvni_levels_reduction *r, lvni_plan_range owned, int64_t at)
{
    return at >= lvni_dist_reduction_tail(&r->base) ||
           (at >= owned.start && at < owned.start + owned.count);
}

/* What this channel has of the sums, and all their squares, to the node's total. */
static void copy_total(lvni_levels_reduction *r)
{
    const int64_t block = LVNI_REDUCTION_BLOCK;
    const lvni_plan_range owned = lvni_levels_owned(r);
    const float *from = lvni_dist_reduction_total(r->outer);
    const double *squares = lvni_dist_reduction_partial(r->outer);
    float *total = lvni_levels_total(r);
    for (int64_t b = 0; b < r->base.buckets; b++) {
        const lvni_plan_range s = lvni_levels_slice(r, b);
        const int64_t place = lvni_levels_place(r, b);
        for (int64_t i = 0; i < s.count; i += block) {
            const int64_t n = s.count - i < block ? s.count - i : block;
            if (!is_used(r, s.start + i, n)) {
                continue;
            }
            if (from != NULL && is_kept(r, owned, s.start + i)) {
                memcpy(total + s.start + i, from + place + i, (size_t)n * sizeof *total);
            }
            if (s.start + i < r->base.o.n_norm) {
                r->base.partial[(s.start + i) / block] = squares[(place + i) / block];
            }
        }
    }
}

/* What this channel does when its node has added all of its part. */
static lvn_status exchange_nodes(lvni_levels_reduction *r)
{
    const lvni_levels_comm *c = lvni_levels_of(r);
    pthread_mutex_lock(&r->lock);
    if (r->planned != r->step) {
        make_plan(r); /* no bucket has a block for the channel */
    }
    pthread_mutex_unlock(&r->lock);
    LVN_TRY(lvni_dist_reduction_finish(r->outer, r->bundle, make_bundle(r)));
    const lvni_dist_reduction_times outer = lvni_dist_reduction_last(r->outer);
    r->base.last.waited_ns += outer.waited_ns;
    r->base.last.added_ns += outer.added_ns;
    r->base.last.pieces += outer.pieces;
    r->base.last.pieces_early += outer.pieces_early;
    copy_total(r);
    take_bundles(r);
    if (c->local == 0) {
        common_of(r)->none = lvni_dist_reduction_total(r->outer) == NULL;
    }
    atomic_store(&own_part(r)->delivered, r->base.step);
    ring(r);
    return LVN_OK;
}

/* Pieces of this channel in a step; done: in `buckets` of the queue, as far as it is taken. */
static int64_t count_pieces(const lvni_levels_reduction *r, int64_t buckets)
{
    int64_t n = 0;
    for (int64_t i = 0; i < buckets; i++) {
        n += lvni_levels_pieces(r, (int64_t)(uint32_t)atomic_load(queue_entry(r, i)));
    }
    return n;
}

/* Floats of `slice` in the part, and behind the norm's. */
static int64_t count_in(const lvni_levels_reduction *r, lvni_plan_range slice, lvni_plan_range part)
{
    const int64_t tail = lvni_dist_reduction_tail(&r->base), end = slice.start + slice.count,
                  part_end = part.start + part.count < tail ? part.start + part.count : tail,
                  from = part.start > slice.start ? part.start : slice.start,
                  to = part_end < end ? part_end : end,
                  behind = tail > slice.start ? tail : slice.start;
    return (to > from ? to - from : 0) + (end > behind ? end - behind : 0);
}

/* Within the node: a channel reads the others' leaves in its slices and writes what the node has of
 * their total; a rank reads of the total what it has and has not written. */
static void count_bytes(const lvni_levels_reduction *r)
{
    const lvni_levels_comm *c = lvni_levels_of(r);
    const int own = own_part(r)->n_leaves, leaves = c->outer != NULL ? r->n_leaves : own;
    const lvni_plan_range all = {0, r->base.o.n}, node = lvni_levels_owned(r),
                          part = r->base.o.parts
                                     ? lvni_plan_exchange_part(r->base.o.n_norm, c->base.world,
                                                               c->base.rank)
                                     : node;
    int64_t mine = 0, written = 0, known = 0;
    for (int64_t b = 0; b < r->base.buckets && c->outer != NULL; b++) {
        const lvni_plan_range slice = lvni_levels_slice(r, b);
        mine += slice.count;
        written += count_in(r, slice, node);
        known += count_in(r, slice, part);
    }
    const int64_t read = count_in(r, all, part) - known;
    lvni_dist_comm_add_bytes(r->base.comm,
                             (uint64_t)(own * (all.count - mine) + written) * sizeof(float),
                             (uint64_t)((leaves - own) * mine + read) * sizeof(float));
}

static lvn_status finish_step(lvni_levels_reduction *r, const void *message, size_t bytes)
{
    const lvni_levels_comm *c = lvni_levels_of(r);
    lvni_dist_reduction *base = &r->base;
    lvni_levels_part *own = own_part(r);
    pthread_mutex_lock(&r->lock);
    base->last = (lvni_dist_reduction_times){
        .pieces_early = r->outer != NULL ? count_pieces(r, r->at) + r->at_piece : 0};
    pthread_mutex_unlock(&r->lock);
    own->bytes = bytes;
    memcpy(lvni_dist_region_part(&r->region, c->local) + r->at_message, bytes > 0 ? message : "",
           bytes);
    for (int b = 0; b < (int)base->buckets; b++) {
        ready(base, b);
    }
    atomic_store(&own->arrived, base->step);
    ring(r);
    while (r->outer != NULL && !is_added(r)) {
        if (!help(base)) {
            LVN_TRY(wait_for(r, can_go_on, has_not_arrived));
            LVN_TRY(base->comm->ops->health(base->comm));
        }
    }
    if (r->outer != NULL) {
        LVN_TRY(exchange_nodes(r));
        base->last.pieces += count_pieces(r, base->buckets);
        base->last.added_ns += r->added_ns;
    }
    return wait_for(r, all_delivered, has_not_delivered);
}

static lvn_status finish(lvni_dist_reduction *base, const void *message, size_t bytes)
{
    lvni_levels_reduction *r = of(base);
    LVN_TRY(lvni_levels_spread(lvni_levels_of(r), finish_step(r, message, bytes)));
    count_bytes(r);
    base->total = common_of(r)->none != 0 ? NULL : lvni_levels_total(r);
    return LVN_OK;
}

/* ---- the table ---- */

static float *set(lvni_dist_reduction *base, int i)
{
    return lvni_levels_set(of(base), lvni_levels_of(of(base))->local, i);
}

static const void *get_message(lvni_dist_reduction *base, int rank, size_t *bytes)
{
    const lvni_levels_reduction *r = of(base);
    *bytes = (size_t)*size_of(r, rank);
    return message_of(r, rank);
}

const lvni_dist_reduction_ops lvni_levels_reduction_ops = {
    .destroy = lvni_levels_reduction_destroy,
    .set = set,
    .begin = begin,
    .ready = ready,
    .help = help,
    .finish = finish,
    .get_message = get_message,
};
