/* What reduction_create.c lays out and reduction.c runs. */
#ifndef LEVIN_DIST_REDUCTION_IMPL_H
#define LEVIN_DIST_REDUCTION_IMPL_H

#include "dist/reduction.h"
#include "dist/sum_plan.h"
#include "dist/transport.h"
#include "plan/exchange.h"

#include <stdalign.h>

enum { REDUCTION_PIECE = 4 * LVNI_REDUCTION_BLOCK }; /* floats that one thread adds at once */

/* Steps count from 1. All that is shared carries the number of its step, nothing is ever reset:
 * what is left of an old step cannot be taken for news.
 *
 * What a rank says in a step (its leaves, its message) lies twice in its part, for odd and even
 * steps. It writes them for step t + 2 after its finish of step t + 1, for which all had to arrive
 * in t + 1, so all have left finish of step t and read no more of what was said in t, except the
 * messages that the trainer may read until its rank's next ready or finish: that of t + 1, which
 * had to come, too. */
typedef struct said {
    int32_t n_leaves;
    lvni_tree_node leaf[LVNI_TREE_PENDING];
    uint64_t bytes; /* of the message */
} said;

typedef struct rank_part {
    /* the last step whose message is said and whose slices are added */
    alignas(64) _Atomic uint32_t arrived;
    said said[2];
} rank_part;

/* The common part begins with this; then per bucket a counter of the ranks that are ready (all
 * steps together), and the queue: the buckets in the order in which they became ready everywhere,
 * as step << 32 | bucket. The rank that makes a bucket ready writes entry tail++. */
typedef struct common_part {
    alignas(64) _Atomic uint64_t tail; /* of all steps together */
} common_part;

/* Where the next piece is: step (24 bits) | place in the queue (20) | piece of that bucket's slice
 * (20). */
enum { CURSOR_STEP_BITS = 24, CURSOR_PLACE_BITS = 20, CURSOR_PIECE_BITS = 20 };

struct lvni_reduction {
    lvni_comm *comm;
    lvni_reduction_options o;
    lvni_exchange exchange;
    int64_t buckets;
    lvni_region region;
    bool open;
    /* offsets in the region */
    size_t at_ready, at_queue, at_partial, at_total;        /* common part */
    size_t at_message, message_stride, at_sets, set_stride; /* parts */

    uint32_t step;          /* of the last begin; trainer thread */
    uint32_t finished;      /* the last step that finish has ended */
    int64_t pieces;         /* of this rank in a step */
    _Atomic uint32_t *told; /* per bucket: the last step in which ready was called */

    alignas(64) _Atomic uint64_t cursor;
    alignas(64) _Atomic uint64_t done; /* pieces, all steps together */
    /* The list of additions of a step: made by the first thread that finds a piece to add. step <<
     * 1; | 1: made. */
    _Atomic uint64_t planned;
    lvni_sum_plan plan;
    lvni_tree_node *leaf; /* of all ranks; slot: index in source */
    void **source;        /* their sets */
    int own_sources;
    float *total; /* of the last step */

    _Atomic uint64_t added_ns;
    int64_t used_begin, used_end; /* lvni_reduction_use; trainer thread, between finish and begin */
    _Atomic int64_t added;        /* floats, in this step */
    lvni_reduction_times last;
};

static inline rank_part *reduction_part(const lvni_reduction *r, int rank)
{
    return (rank_part *)(void *)lvni_region_part(&r->region, rank);
}

static inline char *reduction_message(const lvni_reduction *r, int rank, uint32_t step)
{
    return lvni_region_part(&r->region, rank) + r->at_message + (step & 1) * r->message_stride;
}

static inline float *reduction_set(const lvni_reduction *r, int rank, int i)
{
    return (float *)(void *)(lvni_region_part(&r->region, rank) + r->at_sets +
                             (size_t)i * r->set_stride);
}

static inline int64_t reduction_slice_pieces(const lvni_reduction *r, int64_t b)
{
    return (lvni_exchange_slice(&r->exchange, b, r->comm->rank).count + REDUCTION_PIECE - 1) /
           REDUCTION_PIECE;
}

#endif
