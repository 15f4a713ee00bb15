/* What the fixed order of additions costs: dist/reduction.h without it, linked into ddp_rank_free
 * in place of dist/reduction.c. A bucket's sum is added in the order in which ranks arrived at it,
 * left to right, and any rank takes the next piece of any bucket that all have arrived at, so that
 * the first free rank does the work. Everything else, buckets, pieces, queue, messages, waiting, is
 * as in the real one; it is written for a trainer that makes no mistakes, and checks nothing. */
#include "core/alloc.h"
#include "core/machine.h"
#include "dist/combine.h"
#include "dist/reduction_wait.h"

#include <stdalign.h>
#include <string.h>

enum {
    PAGE = 4096,
    PIECE = 4 * LVNI_REDUCTION_BLOCK,
    STEP_BITS = 24,
    PLACE_BITS = 20,
    PIECE_BITS = 20,
    MOST_RANKS = 16,
    MESSAGE = 65536
};

typedef struct bucket_state {
    _Atomic uint32_t ticket, arrived; /* ranks, all steps together */
    int order[MOST_RANKS];
} bucket_state;

typedef struct lvni_dist_common_part {
    alignas(64) _Atomic uint64_t tail;   /* of the queue, all steps together */
    alignas(64) _Atomic uint64_t cursor; /* step | place in the queue | piece: one for all ranks */
    alignas(64) _Atomic uint64_t done;   /* pieces of all ranks, all steps together */
} lvni_dist_common_part;

typedef struct sent {
    int n_leaves;
    lvni_plan_tree_node leaf[LVNI_TREE_PENDING];
    size_t bytes;
    char message[MESSAGE];
} sent;

typedef struct lvni_dist_rank_part {
    alignas(64) _Atomic uint32_t arrived;
    sent sent[2];
} lvni_dist_rank_part;

struct lvni_dist_reduction {
    lvni_dist_comm *comm;
    lvni_dist_reduction_options o;
    int64_t bucket, buckets, pieces;
    lvni_dist_region region;
    size_t at_queue, at_partial, at_total, at_sets, set_stride;
    uint32_t step;
    _Atomic uint32_t *reported;
    _Atomic uint64_t added_ns, pieces_here;
    lvni_dist_reduction_times last;
};

static lvni_dist_common_part *common_of(const lvni_dist_reduction *r)
{
    return (lvni_dist_common_part *)(void *)r->region.common;
}

static bucket_state *state_of(const lvni_dist_reduction *r, int64_t b)
{
    return (bucket_state *)(void *)(r->region.common + sizeof(lvni_dist_common_part)) + b;
}

static _Atomic uint64_t *queue_entry(const lvni_dist_reduction *r, int64_t place)
{
    return (_Atomic uint64_t *)(void *)(r->region.common + r->at_queue) + place;
}

static lvni_dist_rank_part *part_of(const lvni_dist_reduction *r, int rank)
{
    return (lvni_dist_rank_part *)(void *)lvni_dist_region_part(&r->region, rank);
}

static float *set_of(const lvni_dist_reduction *r, int rank, int i)
{
    return (float *)(void *)(lvni_dist_region_part(&r->region, rank) + r->at_sets +
                             (size_t)i * r->set_stride);
}

static float *total_of(const lvni_dist_reduction *r)
{
    return (float *)(void *)(r->region.common + r->at_total);
}

static uint64_t cursor_at(uint32_t step, int64_t place, int64_t piece)
{
    const uint64_t s = step & (((uint64_t)1 << STEP_BITS) - 1);
    return s << (PLACE_BITS + PIECE_BITS) | (uint64_t)place << PIECE_BITS | (uint64_t)piece;
}

lvn_status lvni_dist_reduction_create(lvni_dist_comm *comm, const lvni_dist_reduction_options *o,
                                      lvni_dist_reduction **out)
{
    lvni_dist_reduction *r = LVNI_NEW(LVNI_TAG_DIST, lvni_dist_reduction);
    *out = r;
    if (r == NULL || o->message > MESSAGE || comm->world > MOST_RANKS) {
        return LVN_ERR_MEMORY;
    }
    r->comm = comm;
    r->o = *o;
    r->bucket = o->bucket > 0 ? o->bucket : o->n;
    r->buckets = (o->n + r->bucket - 1) / r->bucket;
    for (int64_t b = 0; b < r->buckets; b++) {
        r->pieces += (lvni_dist_reduction_bucket(r, (int)b).count + PIECE - 1) / PIECE;
    }
    const size_t blocks = (size_t)(o->n + LVNI_REDUCTION_BLOCK - 1) / LVNI_REDUCTION_BLOCK;
    r->set_stride = ((size_t)o->n * sizeof(float) + PAGE - 1) / PAGE * PAGE;
    r->at_queue = sizeof(lvni_dist_common_part) + (size_t)r->buckets * sizeof(bucket_state);
    r->at_partial = r->at_queue + (size_t)r->buckets * sizeof(uint64_t);
    r->at_total = (r->at_partial + blocks * sizeof(double) + PAGE - 1) / PAGE * PAGE;
    r->at_sets = (sizeof(lvni_dist_rank_part) + PAGE - 1) / PAGE * PAGE;
    r->reported = lvni_core_calloc(LVNI_TAG_DIST, (size_t)r->buckets, sizeof *r->reported);
    const size_t common = r->at_total + r->set_stride,
                 part = r->at_sets + (size_t)o->sets * r->set_stride;
    LVN_TRY(comm->ops->region_open(comm, common, part, &r->region));
    if (comm->rank == 0) {
        LVN_TRY(comm->ops->region_reserve(comm, &r->region, r->region.common, common));
    }
    LVN_TRY(comm->ops->region_reserve(comm, &r->region,
                                      lvni_dist_region_part(&r->region, comm->rank), part));
    return lvni_dist_comm_barrier(comm);
}

void lvni_dist_reduction_destroy(lvni_dist_reduction *r)
{
    if (r != NULL) {
        r->comm->ops->region_close(r->comm, &r->region);
        lvni_core_free(r->reported);
        lvni_core_free(r);
    }
}

void lvni_dist_reduction_use(lvni_dist_reduction *r, int64_t begin, int64_t end)
{
    (void)r; /* what is measured trains all of its parameters */
    (void)begin;
    (void)end;
}

lvn_status lvni_dist_reduction_begin(lvni_dist_reduction *r, const lvni_plan_tree_node *leaf,
                                     int n_leaves)
{
    sent *s = &part_of(r, r->comm->rank)->sent[++r->step & 1];
    s->n_leaves = n_leaves;
    memcpy(s->leaf, leaf, (size_t)n_leaves * sizeof *leaf);
    uint64_t last = r->step == 1 ? 0 : cursor_at(r->step - 1, r->buckets, 0);
    /* by the first rank that begins */
    atomic_compare_exchange_strong(&common_of(r)->cursor, &last, cursor_at(r->step, 0, 0));
    atomic_store(&r->added_ns, 0);
    atomic_store(&r->pieces_here, 0);
    return LVN_OK;
}

void lvni_dist_reduction_ready(lvni_dist_reduction *r, int b)
{
    const uint32_t step = r->step, world = (uint32_t)r->comm->world;
    bucket_state *s = state_of(r, b);
    if (atomic_exchange(&r->reported[b], step) == step) {
        return;
    }
    s->order[atomic_fetch_add(&s->ticket, 1) % world] = r->comm->rank;
    if (atomic_fetch_add(&s->arrived, 1) + 1 == step * world) {
        const uint64_t place =
            atomic_fetch_add(&common_of(r)->tail, 1) - (uint64_t)(step - 1) * (uint64_t)r->buckets;
        atomic_store(queue_entry(r, (int64_t)place), (uint64_t)step << 32 | (uint32_t)b);
        r->comm->ops->ring(r->comm);
    }
}

/* The bucket and the elements behind the cursor, whose next place is *next; false: nothing is
 * ready. */
static bool peek(lvni_dist_reduction *r, uint64_t *cursor, uint64_t *next, int64_t *b,
                 lvni_plan_range *range)
{
    *cursor = atomic_load(&common_of(r)->cursor);
    const int64_t place = (int64_t)(*cursor >> PIECE_BITS & ((1u << PLACE_BITS) - 1)),
                  piece = (int64_t)(*cursor & ((1u << PIECE_BITS) - 1));
    const uint32_t step = (uint32_t)(*cursor >> (PLACE_BITS + PIECE_BITS));
    if (step != r->step || place >= r->buckets) {
        return false;
    }
    const uint64_t entry = atomic_load(queue_entry(r, place));
    if (entry >> 32 != step) {
        return false;
    }
    *b = (int64_t)(uint32_t)entry;
    const lvni_plan_range whole = lvni_dist_reduction_bucket(r, (int)*b);
    const int64_t at = piece * PIECE, left = whole.count - at;
    *range = (lvni_plan_range){whole.start + at, left < PIECE ? left : PIECE};
    *next = left > PIECE ? cursor_at(step, place, piece + 1) : cursor_at(step, place + 1, 0);
    return true;
}

/* total = the leaves' sum over [at, at + n), in the order of arrival. */
static void add_block(lvni_dist_reduction *r, int64_t b, int64_t at, int64_t n)
{
    float *total = total_of(r) + at;
    const float *first = NULL;
    bool added = false;
    for (int i = 0; i < r->comm->world; i++) {
        const int rank = state_of(r, b)->order[i];
        const sent *s = &part_of(r, rank)->sent[r->step & 1];
        for (int k = 0; k < s->n_leaves; k++) {
            const float *leaf = set_of(r, rank, s->leaf[k].slot) + at;
            if (first == NULL) {
                first = leaf;
            } else {
                lvni_dist_combine(total, added ? total : first, leaf, n, LVN_F32, LVNI_REDUCE_SUM);
                added = true;
            }
        }
    }
    if (!added && first != NULL) {
        memcpy(total, first, (size_t)n * sizeof *total);
    }
    const int64_t normed = r->o.n_norm - at < n ? r->o.n_norm - at : n;
    if (normed > 0) {
        r->o.sumsq(total, normed,
                   (double *)(void *)(r->region.common + r->at_partial) +
                       at / LVNI_REDUCTION_BLOCK);
    }
}

static bool all_added(const lvni_dist_reduction *r)
{
    return atomic_load(&common_of(r)->done) >= (uint64_t)r->step * (uint64_t)r->pieces;
}

bool lvni_dist_reduction_help(lvni_dist_reduction *r)
{
    uint64_t cursor, next;
    int64_t b;
    lvni_plan_range range;
    do {
        if (!peek(r, &cursor, &next, &b, &range)) {
            return false;
        }
    } while (!atomic_compare_exchange_strong(&common_of(r)->cursor, &cursor, next));
    const uint64_t start = lvni_core_now_ns();
    for (int64_t at = range.start; at < range.start + range.count; at += LVNI_REDUCTION_BLOCK) {
        const int64_t left = range.start + range.count - at;
        add_block(r, b, at, left < LVNI_REDUCTION_BLOCK ? left : LVNI_REDUCTION_BLOCK);
    }
    atomic_fetch_add(&r->added_ns, lvni_core_now_ns() - start);
    atomic_fetch_add(&r->pieces_here, 1);
    if (atomic_fetch_add(&common_of(r)->done, 1) + 1 == (uint64_t)r->step * (uint64_t)r->pieces) {
        r->comm->ops->ring(r->comm);
    }
    return true;
}

static bool needs_rank(void *user, int rank)
{
    const lvni_dist_reduction *r = user;
    return rank != r->comm->rank && lvni_dist_reduction_behind(&part_of(r, rank)->arrived, r->step);
}

static bool can_go_on(void *user)
{
    uint64_t cursor, next;
    int64_t b;
    lvni_plan_range range;
    return all_added(user) || peek(user, &cursor, &next, &b, &range);
}

static bool all_arrived(void *user)
{
    const lvni_dist_reduction *r = user;
    return lvni_dist_wait_is_over(r->comm, needs_rank, user);
}

static lvn_status wait_for(lvni_dist_reduction *r, bool (*over)(void *))
{
    return lvni_dist_reduction_wait(
        r->comm, &(lvni_dist_wait){.over = over, .needs = needs_rank, .user = r}, &r->last);
}

lvn_status lvni_dist_reduction_finish(lvni_dist_reduction *r, const void *message, size_t bytes)
{
    lvni_dist_rank_part *mine = part_of(r, r->comm->rank);
    r->last = (lvni_dist_reduction_times){.pieces_early = (int64_t)atomic_load(&r->pieces_here)};
    mine->sent[r->step & 1].bytes = bytes;
    memcpy(mine->sent[r->step & 1].message, message, bytes);
    for (int b = 0; b < (int)r->buckets; b++) {
        lvni_dist_reduction_ready(r, b);
    }
    while (!all_added(r)) {
        if (!lvni_dist_reduction_help(r)) {
            LVN_TRY(wait_for(r, can_go_on));
        }
    }
    atomic_store(&mine->arrived, r->step);
    r->comm->ops->ring(r->comm);
    LVN_TRY(wait_for(r, all_arrived));
    r->last.pieces = (int64_t)atomic_load(&r->pieces_here);
    r->last.added_ns = atomic_load(&r->added_ns);
    return LVN_OK;
}

float *lvni_dist_reduction_set(lvni_dist_reduction *r, int i)
{
    return set_of(r, r->comm->rank, i);
}

int lvni_dist_reduction_buckets(const lvni_dist_reduction *r)
{
    return (int)r->buckets;
}

lvni_plan_range lvni_dist_reduction_bucket(const lvni_dist_reduction *r, int b)
{
    const int64_t start = b * r->bucket;
    return (lvni_plan_range){start, r->o.n - start < r->bucket ? r->o.n - start : r->bucket};
}

float *lvni_dist_reduction_total(lvni_dist_reduction *r)
{
    return total_of(r);
}

const double *lvni_dist_reduction_partial(lvni_dist_reduction *r)
{
    return (double *)(void *)(r->region.common + r->at_partial);
}

const void *lvni_dist_reduction_get_message(lvni_dist_reduction *r, int rank, size_t *bytes)
{
    const sent *s = &part_of(r, rank)->sent[r->step & 1];
    *bytes = s->bytes;
    return s->message;
}

lvni_dist_reduction_times lvni_dist_reduction_last(const lvni_dist_reduction *r)
{
    return r->last;
}
