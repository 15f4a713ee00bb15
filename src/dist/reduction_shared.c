/* The steps of reduction.h. A bucket goes this way: every rank calls ready; the last one writes it
 * into the queue; every rank takes the queue's buckets in their order and adds its slice of each,
 * piece by piece, by however many threads.
 *
 * Who may write what, and when (for messages see reduction_shared.h):
 *   a set     by its rank from finish to ready. Others read it after all are ready, and before they
 *     arrive; finish ends when all arrived.
 *   the total and the partial sums of a bucket: by the slice's rank after all are ready, which
 *     which implies that no rank reads the last step's.
 *   the list of additions: made once a step by one thread, before the first piece; read until the
 *     last piece, which finish waits for. */
#include "core/machine.h"
#include "dist/reduction_shared.h"
#include "dist/reduction_wait.h"

#include <string.h>

static _Atomic uint32_t *ready_count(const lvni_dist_shared *r, int64_t b)
{
    return (_Atomic uint32_t *)(void *)(r->region.common + r->at_ready) + b;
}

static _Atomic uint64_t *queue_entry(const lvni_dist_shared *r, int64_t place)
{
    return (_Atomic uint64_t *)(void *)(r->region.common + r->at_queue) + place;
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
static bool peek(lvni_dist_shared *r, piece *p)
{
    for (;;) {
        uint64_t cursor = atomic_load(&r->cursor);
        const int64_t place = cursor_place(cursor), number = cursor_piece(cursor);
        if (place >= r->base.buckets) {
            return false;
        }
        const uint64_t entry = atomic_load(queue_entry(r, place));
        const uint32_t step = (uint32_t)(entry >> 32);
        if (cursor_at(step, place, number) != cursor) {
            return false; /* an old entry: this place of the queue is not taken yet */
        }
        const int64_t bucket = (int64_t)(uint32_t)entry,
                      pieces = lvni_dist_reduction_slice_pieces(&r->base, bucket);
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
static void make_plan(lvni_dist_shared *r, uint32_t step)
{
    int n = 0;
    r->own_sources = 0;
    for (int rank = 0; rank < r->base.comm->world; rank++) {
        const lvni_dist_rank_message *s = &lvni_dist_reduction_part(r, rank)->message[step & 1];
        for (int i = 0; i < s->n_leaves && n < r->plan.room; i++, n++) {
            r->leaf[n] = s->leaf[i];
            r->source[n] = lvni_dist_reduction_view(r, rank, s->leaf[i].slot);
        }
        r->own_sources = rank == r->base.comm->rank ? s->n_leaves : r->own_sources;
    }
    lvni_dist_sum_plan_make(&r->plan, r->base.o.micro_batches, r->leaf, n);
}

/* Is the list of additions of this step there? Makes it, unless another thread is at it. */
static bool have_plan(lvni_dist_shared *r, uint32_t step)
{
    const uint64_t making = (uint64_t)step << 1;
    uint64_t planned = atomic_load(&r->planned);
    if (planned >= making || !atomic_compare_exchange_strong(&r->planned, &planned, making)) {
        return atomic_load(&r->planned) == (making | 1);
    }
    make_plan(r, step);
    atomic_store(&r->planned, making | 1);
    r->base.comm->ops->ring(r->base.comm);
    return true;
}

/* Where the sum goes: with one rank into the first leaf's set. NULL: there is nothing to add. */
static float *total_of(const lvni_dist_shared *r)
{
    if (r->plan.n_sources == 0) {
        return NULL;
    }
    return r->base.comm->world > 1 ? (float *)(void *)(r->region.common + r->at_total)
                                   : r->source[0];
}

static void add_piece(lvni_dist_shared *r, const piece *p)
{
    const uint64_t start = lvni_core_now_ns();
    float *total = total_of(r);
    const int64_t added =
        lvni_dist_reduction_add(&r->base, &r->plan, r->source, total, p->bucket, p->number);
    atomic_fetch_add_explicit(&r->added, added, memory_order_relaxed);
    const uint64_t bytes = (uint64_t)added * sizeof(float);
    if (r->base.comm->world > 1 && total != NULL) {
        lvni_dist_comm_add_bytes(r->base.comm, r->base.o.parts ? 0 : bytes,
                                 bytes * (uint64_t)(r->plan.n_sources - r->own_sources));
    }
    atomic_fetch_add_explicit(&r->added_ns, lvni_core_now_ns() - start, memory_order_relaxed);
}

static lvni_dist_shared *shared(lvni_dist_reduction *r)
{
    return (lvni_dist_shared *)r;
}

static bool help(lvni_dist_reduction *base)
{
    lvni_dist_shared *r = shared(base);
    piece p;
    do {
        if (!peek(r, &p) || !have_plan(r, p.step)) {
            return false;
        }
    } while (!atomic_compare_exchange_strong(&r->cursor, &p.cursor, p.next));
    add_piece(r, &p);
    if (atomic_fetch_add(&r->done, 1) + 1 == (uint64_t)p.step * (uint64_t)r->pieces) {
        r->base.comm->ops->ring(r->base.comm);
    }
    return true;
}

/* ---- a step ---- */

static void begin(lvni_dist_reduction *base, const lvni_plan_tree_node *leaf, int n_leaves)
{
    lvni_dist_shared *r = shared(base);
    lvni_dist_rank_message *s =
        &lvni_dist_reduction_part(r, r->base.comm->rank)->message[r->base.step & 1];
    s->n_leaves = n_leaves;
    for (int i = 0; i < n_leaves; i++) {
        s->leaf[i] = leaf[i];
    }
    atomic_store_explicit(&r->added_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&r->added, 0, memory_order_relaxed);
    atomic_store(&r->cursor, cursor_at(r->base.step, 0, 0));
}

static void ready(lvni_dist_reduction *base, int b)
{
    lvni_dist_shared *r = shared(base);
    const uint32_t step = r->base.step, world = (uint32_t)r->base.comm->world;
    if (atomic_exchange(&r->reported[b], step) == step ||
        atomic_fetch_add(ready_count(r, b), 1) + 1 != step * world) {
        return;
    }
    lvni_dist_common_part *common = (lvni_dist_common_part *)(void *)r->region.common;
    const uint64_t place =
        atomic_fetch_add(&common->tail, 1) - (uint64_t)(step - 1) * (uint64_t)r->base.buckets;
    atomic_store(queue_entry(r, (int64_t)place), (uint64_t)step << 32 | (uint32_t)b);
    r->base.comm->ops->ring(r->base.comm);
}

static bool all_added(const lvni_dist_shared *r)
{
    return atomic_load(&r->done) == (uint64_t)r->base.step * (uint64_t)r->pieces;
}

static bool needs_rank(void *user, int rank)
{
    const lvni_dist_shared *r = user;
    return rank != r->base.comm->rank &&
           lvni_dist_reduction_behind(&lvni_dist_reduction_part(r, rank)->arrived, r->base.step);
}

static bool can_go_on(void *user)
{
    lvni_dist_shared *r = user;
    piece p;
    return all_added(r) || peek(r, &p);
}

static bool all_arrived(void *user)
{
    const lvni_dist_shared *r = user;
    return lvni_dist_wait_is_over(r->base.comm, needs_rank, user);
}

static lvn_status wait_for(lvni_dist_shared *r, bool (*over)(void *))
{
    return lvni_dist_reduction_wait(r->base.comm,
                                    &(lvni_dist_wait){.over = over, .needs = needs_rank, .user = r},
                                    &r->base.last);
}

/* What this rank and the others moved in the step beside the pieces that add_piece has counted: its
 * leaves and the total outside of its slices, partial sums, messages. */
static void count_bytes(lvni_dist_shared *r, int leaves, int leaves_all)
{
    /* from here on all is added */
    const int64_t behind = lvni_dist_reduction_tail(&r->base);
    const int64_t end = r->base.used_end < behind ? r->base.used_end : behind,
                  used = end > r->base.used_begin ? end - r->base.used_begin : 0;
    const uint64_t all = (uint64_t)(r->base.o.n - behind + used) * sizeof(float);
    const uint64_t own =
        (uint64_t)atomic_load_explicit(&r->added, memory_order_relaxed) * sizeof(float);
    uint64_t others = 0;
    const uint64_t mine =
        lvni_dist_reduction_part(r, r->base.comm->rank)->message[r->base.step & 1].bytes;
    for (int rank = 0; rank < r->base.comm->world; rank++) {
        others += rank == r->base.comm->rank
                      ? 0
                      : lvni_dist_reduction_part(r, rank)->message[r->base.step & 1].bytes;
    }
    uint64_t sent = 0, received = all - own; /* of the total */
    if (r->base.o.parts) {                   /* the last rank adds what is behind */
        const uint64_t tail = (uint64_t)(r->base.o.n - behind) * sizeof(float);
        sent = r->base.comm->rank == r->base.comm->world - 1 ? tail : 0;
        received = tail - sent;
    }
    lvni_dist_comm_add_bytes(r->base.comm,
                             mine + (uint64_t)leaves * (all - own) + (leaves_all > 0 ? sent : 0),
                             others + (leaves_all > 0 ? received : 0));
}

/* All ranks have arrived: their messages can be read, and are not overwritten before this rank
 * arrives in the next step. */
static void conclude(lvni_dist_shared *r)
{
    int leaves = 0;
    for (int rank = 0; rank < r->base.comm->world; rank++) {
        leaves += lvni_dist_reduction_part(r, rank)->message[r->base.step & 1].n_leaves;
    }
    const int own =
        lvni_dist_reduction_part(r, r->base.comm->rank)->message[r->base.step & 1].n_leaves;
    if (r->base.comm->world > 1) {
        count_bytes(r, own, leaves);
        r->base.total = leaves > 0 ? (float *)(void *)(r->region.common + r->at_total) : NULL;
    } else {
        r->base.total =
            leaves > 0
                ? lvni_dist_reduction_view(
                      r, 0, lvni_dist_reduction_part(r, 0)->message[r->base.step & 1].leaf[0].slot)
                : NULL;
    }
    r->base.last.pieces = r->pieces;
    r->base.last.added_ns = atomic_load_explicit(&r->added_ns, memory_order_relaxed);
}

static lvn_status finish(lvni_dist_reduction *base, const void *message, size_t bytes)
{
    lvni_dist_shared *r = shared(base);
    lvni_dist_comm *comm = base->comm;
    lvni_dist_rank_part *mine = lvni_dist_reduction_part(r, comm->rank);
    r->base.last = (lvni_dist_reduction_times){
        .pieces_early =
            (int64_t)(atomic_load(&r->done) - (uint64_t)(r->base.step - 1) * (uint64_t)r->pieces)};
    mine->message[r->base.step & 1].bytes = bytes;
    if (bytes > 0) {
        memcpy(lvni_dist_reduction_message(r, comm->rank, r->base.step), message, bytes);
    }
    for (int b = 0; b < (int)r->base.buckets; b++) {
        ready(base, b);
    }
    while (!all_added(r)) {
        if (!help(base)) {
            LVN_TRY(wait_for(r, can_go_on));
        }
    }
    atomic_store(&mine->arrived, r->base.step);
    if (all_arrived(r)) {
        comm->ops->ring(comm); /* of those who arrive at once at least the last one sees all */
    }
    LVN_TRY(wait_for(r, all_arrived));
    conclude(r);
    return LVN_OK;
}

/* ---- the table ---- */

static float *set(lvni_dist_reduction *base, int i)
{
    return lvni_dist_reduction_view(shared(base), base->comm->rank, i);
}

static const void *get_message(lvni_dist_reduction *base, int rank, size_t *bytes)
{
    lvni_dist_shared *r = shared(base);
    *bytes = (size_t)lvni_dist_reduction_part(r, rank)->message[base->finished & 1].bytes;
    return lvni_dist_reduction_message(r, rank, base->finished);
}

const lvni_dist_reduction_ops lvni_dist_shared_ops = {
    .destroy = lvni_dist_shared_destroy,
    .set = set,
    .begin = begin,
    .ready = ready,
    .help = help,
    .finish = finish,
    .get_message = get_message,
};
