/* A reduction over memory that all ranks see: what reduction_shared_create.c lays out and
 * reduction_shared.c runs. */
#ifndef LEVIN_DIST_REDUCTION_SHARED_H
#define LEVIN_DIST_REDUCTION_SHARED_H

#include "dist/reduction_impl.h"
#include "dist/sum_plan.h"

#include <stdalign.h>

/* Steps count from 1. All that is shared carries the number of its step, nothing is ever reset:
 * what is left of an old step cannot be taken for the current one's.
 *
 * What a rank publishes in a step (its leaves, its message) lies twice in its part, for odd and
 * even steps. It writes them for step t + 2 after its finish of step t + 1, for which all had to
 * arrive in t + 1, so all have left finish of step t and read no more of what was published in t,
 * except the messages that the trainer may read until its rank's next ready or finish: that of t +
 * 1, which had to come, too. */
typedef struct lvni_dist_rank_message {
    int32_t n_leaves;
    lvni_plan_tree_node leaf[LVNI_TREE_PENDING];
    uint64_t bytes; /* of the message */
} lvni_dist_rank_message;

typedef struct lvni_dist_rank_part {
    /* the last step whose message is written and whose slices are added */
    alignas(64) _Atomic uint32_t arrived;
    lvni_dist_rank_message message[2];
} lvni_dist_rank_part;

/* The common part begins with this; then per bucket a counter of the ranks that are ready (all
 * steps together), and the queue: the buckets in the order in which they became ready everywhere,
 * as step << 32 | bucket. The rank that makes a bucket ready writes entry tail++. */
typedef struct lvni_dist_common_part {
    alignas(64) _Atomic uint64_t tail; /* of all steps together */
} lvni_dist_common_part;

/* Where the next piece is: step (24 bits) | place in the queue (20) | piece of that bucket's slice
 * (20). */
enum { LVNI_CURSOR_STEP_BITS = 24, LVNI_CURSOR_PLACE_BITS = 20, LVNI_CURSOR_PIECE_BITS = 20 };

typedef struct lvni_dist_shared {
    lvni_dist_reduction base;
    lvni_dist_region region;
    bool open;
    /* offsets in the region */
    size_t at_ready, at_queue, at_partial, at_total;        /* common part */
    size_t at_message, message_stride, at_sets, set_stride; /* parts */

    int64_t pieces;             /* of this rank in a step */
    _Atomic uint32_t *reported; /* per bucket: the last step in which ready was called */

    alignas(64) _Atomic uint64_t cursor;
    alignas(64) _Atomic uint64_t done; /* pieces, all steps together */
    /* The list of additions of a step: made by the first thread that finds a piece to add. step <<
     * 1; | 1: made. */
    _Atomic uint64_t planned;
    lvni_dist_sum_plan plan;
    lvni_plan_tree_node *leaf; /* of all ranks; slot: index in source */
    void **source;             /* their sets */
    int own_sources;

    _Atomic uint64_t added_ns;
    _Atomic int64_t added; /* floats, in this step */
} lvni_dist_shared;

extern const lvni_dist_reduction_ops lvni_dist_shared_ops;
void lvni_dist_shared_destroy(lvni_dist_reduction *r);

static inline lvni_dist_rank_part *lvni_dist_reduction_part(const lvni_dist_shared *r, int rank)
{
    return (lvni_dist_rank_part *)(void *)lvni_dist_region_part(&r->region, rank);
}

static inline char *lvni_dist_reduction_message(const lvni_dist_shared *r, int rank, uint32_t step)
{
    return lvni_dist_region_part(&r->region, rank) + r->at_message + (step & 1) * r->message_stride;
}

static inline float *lvni_dist_reduction_view(const lvni_dist_shared *r, int rank, int i)
{
    return (float *)(void *)(lvni_dist_region_part(&r->region, rank) + r->at_sets +
                             (size_t)i * r->set_stride);
}

#endif
