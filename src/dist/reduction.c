/* The steps of reduction.h. A bucket goes this way: every rank calls ready; the last one writes it
 * into the queue; every rank takes the queue's buckets in their order and adds its slice of each,
 * piece by piece, by however many threads.
 *
 * Who may write what, and when (for messages see reduction_impl.h):
 *   a set     by its rank from finish to ready. Others read it after all are ready, and before they
 *     arrive; finish ends when all arrived.
 *   the total and the partial sums of a bucket: by the slice's rank after all are ready, which
 *     which implies that no rank reads the last step's.
 *   the list of additions: made once a step by one thread, before the first piece; read until the
 *     last piece, which finish waits for. */
#include "core/machine.h"
#include "dist/reduction_impl.h"
#include "dist/reduction_wait.h"

#include <string.h>

static _Atomic uint32_t *ready_count(const lvni_dist_reduction *r, int64_t b)
{
    return (_Atomic uint32_t *)(void *)(r->region.common + r->at_ready) + b;
}

static _Atomic uint64_t *queue_entry(const lvni_dist_reduction *r, int64_t place)
{
    return (_Atomic uint64_t *)(void *)(r->region.common + r->at_queue) + place;
}

static double *partial_sums(const lvni_dist_reduction *r)
{
    return (double *)(void *)(r->region.common + r->at_partial);
}

/* ---- the cursor ---- */

static uint64_t cursor_at(uint32_t step, int64_t place, int64_t piece)
{
    const uint64_t s = step & (((uint64_t)1 << LVNI_CURSOR_STEP_BITS) - 1);
    return s << (LVNI_CURSOR_PLACE_BITS + LVNI_CURSOR_PIECE_BITS) |
           (uint64_t)place << LVNI_CURSOR_PIECE_BITS | (uint64_t)piece;
}

static int64_t cursor_place(uint64_t cursor)
{
    return (int64_t)(cursor >> LVNI_CURSOR_PIECE_BITS &
                     (((uint64_t)1 << LVNI_CURSOR_PLACE_BITS) - 1));
}

static int64_t cursor_piece(uint64_t cursor)
{
    return (int64_t)(cursor & (((uint64_t)1 << LVNI_CURSOR_PIECE_BITS) - 1));
}

typedef struct piece {
    uint32_t step;
    int64_t bucket, number;
    uint64_t cursor, next; /* where the cursor was, and where it is once the piece is claimed */
} piece;

/* The next piece that is this rank's to add; false while there is none. Moves on over buckets in
 * which the rank has no slice. */
static bool peek(lvni_dist_reduction *r, piece *p)
{
    for (;;) {
        uint64_t cursor = atomic_load(&r->cursor);
        const int64_t place = cursor_place(cursor), number = cursor_piece(cursor);
        if (place >= r->buckets) {
            return false;
        }
        const uint64_t entry = atomic_load(queue_entry(r, place));
        const uint32_t step = (uint32_t)(entry >> 32);
        if (cursor_at(step, place, number) != cursor) {
            return false; /* an old entry: this place of the queue is not taken yet */
        }
        const int64_t bucket = (int64_t)(uint32_t)entry,
                      pieces = lvni_dist_reduction_slice_pieces(r, bucket);
        const uint64_t next = number + 1 < pieces ? cursor_at(step, place, number + 1)
                                                  : cursor_at(step, place + 1, 0);
        if (pieces > 0) {
            *p = (piece){
                .step = step, .bucket = bucket, .number = number, .cursor = cursor, .next = next};
            return true;
        }
        atomic_compare_exchange_strong(&r->cursor, &cursor, next);
    }
}

/* ---- adding ---- */

/* All ranks' leaves, in the order of micro-batches. A bucket is ready everywhere, so all have
 * begun, and this rank has a piece to add, so none has finished: their messages are intact. */
static void make_plan(lvni_dist_reduction *r, uint32_t step)
{
    int n = 0;
    r->own_sources = 0;
    for (int rank = 0; rank < r->comm->world; rank++) {
        const lvni_dist_rank_message *s = &lvni_dist_reduction_part(r, rank)->message[step & 1];
        for (int i = 0; i < s->n_leaves && n < r->plan.room; i++, n++) {
            r->leaf[n] = s->leaf[i];
            r->source[n] = lvni_dist_reduction_view(r, rank, s->leaf[i].slot);
        }
        r->own_sources = rank == r->comm->rank ? s->n_leaves : r->own_sources;
    }
    lvni_dist_sum_plan_make(&r->plan, r->o.micro_batches, r->leaf, n);
}

/* Is the list of additions of this step there? Makes it, unless another thread is at it. */
static bool have_plan(lvni_dist_reduction *r, uint32_t step)
{
    const uint64_t making = (uint64_t)step << 1;
    uint64_t planned = atomic_load(&r->planned);
    if (planned >= making || !atomic_compare_exchange_strong(&r->planned, &planned, making)) {
        return atomic_load(&r->planned) == (making | 1);
    }
    make_plan(r, step);
    atomic_store(&r->planned, making | 1);
    r->comm->ops->ring(r->comm);
    return true;
}

/* Where the sum goes: with one rank into the first leaf's set. NULL: there is nothing to add. */
static float *total_of(const lvni_dist_reduction *r)
{
    if (r->plan.n_sources == 0) {
        return NULL;
    }
    return r->comm->world > 1 ? (float *)(void *)(r->region.common + r->at_total) : r->source[0];
}

/* The norm's sums over the blocks of [from, from + count), which begins on a border; the last block
 * of the norm may be shorter. */
static void add_squares(const lvni_dist_reduction *r, const float *total, int64_t from,
                        int64_t count)
{
    double *partial = partial_sums(r) + from / LVNI_REDUCTION_BLOCK;
    const int64_t n = r->o.n_norm - from < count ? r->o.n_norm - from : count;
    if (n > 0 && total != NULL) {
        r->o.sumsq(total + from, n, partial);
    } else if (n > 0) {
        memset(partial, 0,
               (size_t)(n + LVNI_REDUCTION_BLOCK - 1) / LVNI_REDUCTION_BLOCK * sizeof *partial);
    }
}

/* Are the floats of the block at `at` added in this step? */
static bool is_used(const lvni_dist_reduction *r, int64_t at, int64_t n)
{
    return at + n > r->o.n_norm || (at >= r->used_begin && at < r->used_end);
}

static void add_piece(lvni_dist_reduction *r, const piece *p)
{
    const uint64_t start = lvni_core_now_ns();
    const lvni_plan_range slice = lvni_plan_exchange_slice(&r->exchange, p->bucket, r->comm->rank);
    const int64_t from = slice.start + p->number * LVNI_REDUCTION_PIECE,
                  left = slice.start + slice.count - from;
    const int64_t count = left < LVNI_REDUCTION_PIECE ? left : LVNI_REDUCTION_PIECE;
    float *total = total_of(r);
    int64_t added = 0;
    for (int64_t at = from; at < from + count; at += LVNI_REDUCTION_BLOCK) {
        /* a block is squared while it is in the nearest cache */
        const int64_t n =
            from + count - at < LVNI_REDUCTION_BLOCK ? from + count - at : LVNI_REDUCTION_BLOCK;
        if (is_used(r, at, n)) {
            lvni_dist_sum_run(&r->plan, r->source, total, at, n, LVN_F32, LVNI_REDUCE_SUM);
            add_squares(r, total, at, n);
            added += n;
        }
    }
    atomic_fetch_add_explicit(&r->added, added, memory_order_relaxed);
    const uint64_t bytes = (uint64_t)added * sizeof(float);
    if (r->comm->world > 1 && total != NULL) {
        lvni_dist_comm_add_bytes(r->comm, bytes,
                                 bytes * (uint64_t)(r->plan.n_sources - r->own_sources));
    }
    atomic_fetch_add_explicit(&r->added_ns, lvni_core_now_ns() - start, memory_order_relaxed);
}

bool lvni_dist_reduction_help(lvni_dist_reduction *r)
{
    piece p;
    do {
        if (!peek(r, &p) || !have_plan(r, p.step)) {
            return false;
        }
    } while (!atomic_compare_exchange_strong(&r->cursor, &p.cursor, p.next));
    add_piece(r, &p);
    if (atomic_fetch_add(&r->done, 1) + 1 == (uint64_t)p.step * (uint64_t)r->pieces) {
        r->comm->ops->ring(r->comm);
    }
    return true;
}

/* ---- a step ---- */

void lvni_dist_reduction_use(lvni_dist_reduction *r, int64_t begin, int64_t end)
{
    r->used_begin = begin;
    r->used_end = end;
}

lvn_status lvni_dist_reduction_begin(lvni_dist_reduction *r, const lvni_plan_tree_node *leaf,
                                     int n_leaves)
{
    LVN_TRY(r->comm->ops->health(r->comm));
    LVN_ARG(r->finished == r->step, "a step of a reduction begins before the last one is finished");
    LVN_ARG(n_leaves >= 0 && n_leaves <= LVNI_TREE_PENDING,
            "a rank has %d sub-trees to add, at most %d", n_leaves, LVNI_TREE_PENDING);
    for (int i = 0; i < n_leaves; i++) {
        LVN_ARG(
            lvni_dist_sum_is_node(r->o.micro_batches, leaf[i].begin, leaf[i].end) &&
                (i == 0 || leaf[i].begin >= leaf[i - 1].end),
            "micro-batches %d to %d are not a sub-tree of %d micro-batches that follows the one "
            "before",
            leaf[i].begin, leaf[i].end - 1, r->o.micro_batches);
        LVN_ARG(leaf[i].slot >= 0 && leaf[i].slot < r->o.sets,
                "the sum over micro-batches %d to %d lies in set %d of %d", leaf[i].begin,
                leaf[i].end - 1, leaf[i].slot, r->o.sets);
    }
    lvni_dist_rank_message *s =
        &lvni_dist_reduction_part(r, r->comm->rank)->message[(r->step + 1) & 1];
    s->n_leaves = n_leaves;
    for (int i = 0; i < n_leaves; i++) {
        s->leaf[i] = leaf[i];
    }
    r->step++;
    atomic_store_explicit(&r->added_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&r->added, 0, memory_order_relaxed);
    atomic_store(&r->cursor, cursor_at(r->step, 0, 0));
    return LVN_OK;
}

void lvni_dist_reduction_ready(lvni_dist_reduction *r, int b)
{
    const uint32_t step = r->step, world = (uint32_t)r->comm->world;
    if (atomic_exchange(&r->reported[b], step) == step ||
        atomic_fetch_add(ready_count(r, b), 1) + 1 != step * world) {
        return;
    }
    lvni_dist_common_part *common = (lvni_dist_common_part *)(void *)r->region.common;
    const uint64_t place =
        atomic_fetch_add(&common->tail, 1) - (uint64_t)(step - 1) * (uint64_t)r->buckets;
    atomic_store(queue_entry(r, (int64_t)place), (uint64_t)step << 32 | (uint32_t)b);
    r->comm->ops->ring(r->comm);
}

static bool all_added(const lvni_dist_reduction *r)
{
    return atomic_load(&r->done) == (uint64_t)r->step * (uint64_t)r->pieces;
}

static bool needs_rank(void *user, int rank)
{
    const lvni_dist_reduction *r = user;
    return rank != r->comm->rank &&
           lvni_dist_reduction_behind(&lvni_dist_reduction_part(r, rank)->arrived, r->step);
}

static bool can_go_on(void *user)
{
    lvni_dist_reduction *r = user;
    piece p;
    return all_added(r) || peek(r, &p);
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

/* What this rank and the others moved in the step beside the pieces that add_piece has counted: its
 * leaves and the total outside of its slices, partial sums, messages. */
static void count_bytes(lvni_dist_reduction *r, int leaves, int leaves_all)
{
    /* from here on all is added */
    const int64_t behind =
        r->o.n > r->o.n_norm ? r->o.n_norm / LVNI_REDUCTION_BLOCK * LVNI_REDUCTION_BLOCK : r->o.n;
    const int64_t end = r->used_end < behind ? r->used_end : behind,
                  used = end > r->used_begin ? end - r->used_begin : 0;
    const uint64_t all = (uint64_t)(r->o.n - behind + used) * sizeof(float);
    const uint64_t own =
        (uint64_t)atomic_load_explicit(&r->added, memory_order_relaxed) * sizeof(float);
    uint64_t others = 0;
    const uint64_t mine = lvni_dist_reduction_part(r, r->comm->rank)->message[r->step & 1].bytes;
    for (int rank = 0; rank < r->comm->world; rank++) {
        others += rank == r->comm->rank
                      ? 0
                      : lvni_dist_reduction_part(r, rank)->message[r->step & 1].bytes;
    }
    lvni_dist_comm_add_bytes(r->comm, mine + (uint64_t)leaves * (all - own),
                             others + (leaves_all > 0 ? all - own : 0));
}

/* All ranks have arrived: their messages can be read, and are not overwritten before this rank
 * arrives in the next step. */
static void conclude(lvni_dist_reduction *r)
{
    int leaves = 0;
    for (int rank = 0; rank < r->comm->world; rank++) {
        leaves += lvni_dist_reduction_part(r, rank)->message[r->step & 1].n_leaves;
    }
    const int own = lvni_dist_reduction_part(r, r->comm->rank)->message[r->step & 1].n_leaves;
    if (r->comm->world > 1) {
        count_bytes(r, own, leaves);
        r->total = leaves > 0 ? (float *)(void *)(r->region.common + r->at_total) : NULL;
    } else {
        r->total =
            leaves > 0
                ? lvni_dist_reduction_view(
                      r, 0, lvni_dist_reduction_part(r, 0)->message[r->step & 1].leaf[0].slot)
                : NULL;
    }
    r->last.pieces = r->pieces;
    r->last.added_ns = atomic_load_explicit(&r->added_ns, memory_order_relaxed);
    r->finished = r->step;
}

lvn_status lvni_dist_reduction_finish(lvni_dist_reduction *r, const void *message, size_t bytes)
{
    lvni_dist_comm *comm = r->comm;
    lvni_dist_rank_part *mine = lvni_dist_reduction_part(r, comm->rank);
    LVN_TRY(comm->ops->health(comm));
    LVN_ARG(r->finished != r->step, "a step of a reduction is finished before it begins");
    LVN_ARG(bytes <= r->o.message, "rank %d sends %zu bytes in a step, at most %zu are allowed",
            comm->rank, bytes, r->o.message);
    if (comm->check) {
        LVN_TRY(comm->ops->agree(
            comm, &(lvni_dist_call){LVNI_CALL_REDUCTION_FINISH, -1, -1, -1, r->o.n}));
    }
    r->last = (lvni_dist_reduction_times){
        .pieces_early =
            (int64_t)(atomic_load(&r->done) - (uint64_t)(r->step - 1) * (uint64_t)r->pieces)};
    mine->message[r->step & 1].bytes = bytes;
    if (bytes > 0) {
        memcpy(lvni_dist_reduction_message(r, comm->rank, r->step), message, bytes);
    }
    for (int b = 0; b < (int)r->buckets; b++) {
        lvni_dist_reduction_ready(r, b);
    }
    while (!all_added(r)) {
        if (!lvni_dist_reduction_help(r)) {
            LVN_TRY(wait_for(r, can_go_on));
        }
    }
    atomic_store(&mine->arrived, r->step);
    if (all_arrived(r)) {
        comm->ops->ring(comm); /* of those who arrive at once at least the last one sees all */
    }
    LVN_TRY(wait_for(r, all_arrived));
    conclude(r);
    return LVN_OK;
}

/* ---- what a step leaves behind, and what does not change ---- */

float *lvni_dist_reduction_set(lvni_dist_reduction *r, int i)
{
    return lvni_dist_reduction_view(r, r->comm->rank, i);
}

int lvni_dist_reduction_buckets(const lvni_dist_reduction *r)
{
    return (int)r->buckets;
}

lvni_plan_range lvni_dist_reduction_bucket(const lvni_dist_reduction *r, int b)
{
    return lvni_plan_exchange_bucket(&r->exchange, b);
}

float *lvni_dist_reduction_total(lvni_dist_reduction *r)
{
    return r->total;
}

const double *lvni_dist_reduction_partial(lvni_dist_reduction *r)
{
    return partial_sums(r);
}

const void *lvni_dist_reduction_get_message(lvni_dist_reduction *r, int rank, size_t *bytes)
{
    *bytes = (size_t)lvni_dist_reduction_part(r, rank)->message[r->finished & 1].bytes;
    return lvni_dist_reduction_message(r, rank, r->finished);
}

lvni_dist_reduction_times lvni_dist_reduction_last(const lvni_dist_reduction *r)
{
    return r->last;
}
