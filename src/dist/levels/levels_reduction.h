/* The reduction in two levels: what levels_reduction_create.c makes and levels_reduction.c runs. */
#ifndef LEVIN_DIST_LEVELS_LEVELS_REDUCTION_H
#define LEVIN_DIST_LEVELS_LEVELS_REDUCTION_H

#include "dist/levels/levels_impl.h"
#include "dist/reduction_impl.h"

#include <stdalign.h>

/* A rank's part of the node's region: this, its message, its sets. */
typedef struct lvni_levels_part {
    alignas(64) _Atomic uint32_t arrived; /* the last step of which all is ready, message too */
    _Atomic uint32_t delivered; /* of a channel: the last step whose sums are in the total */
    int32_t n_leaves;
    lvni_plan_tree_node leaf[LVNI_TREE_PENDING];
    uint64_t bytes; /* of the message */
} lvni_levels_part;

/* The common part begins with this; then a counter per bucket of ranks that are ready (all steps
 * together), the queue of buckets as in reduction_shared.h, partial sums, the messages of all
 * ranks, the total. */
typedef struct lvni_levels_common {
    alignas(64) _Atomic uint64_t tail; /* of the queue, all steps together */
    int32_t none;                      /* no rank had a leaf */
} lvni_levels_common;

/* A sub-tree of this node: the ranks' leaves in it. */
typedef struct lvni_levels_tree {
    lvni_plan_tree_node node;
    int first, n; /* of the sources */
    lvni_dist_sum_plan plan;
} lvni_levels_tree;

typedef struct lvni_levels_reduction {
    lvni_dist_reduction base;
    lvni_dist_region region;
    bool open;
    /* offsets in the region */
    size_t at_ready, at_queue, at_partial, at_sizes, at_messages, at_total;
    size_t at_message, message_stride, at_sets, set_stride;
    _Atomic uint32_t *reported; /* per bucket: the last step in which ready was called */

    /* of a channel; outer NULL: the rank has none */
    lvni_dist_reduction *outer;
    lvni_plan_range slice; /* its blocks of every bucket, as far as the last one has them */
    int64_t *border;       /* with parts: of the nodes' parts of the channel's floats */
    int n_trees;           /* of this node */
    lvni_levels_tree *tree;
    lvni_plan_tree_node *leaf; /* of all ranks of the node */
    void **source;
    unsigned char *bundle; /* the first channel: messages of the node */
    size_t bundle_bytes;

    pthread_mutex_t lock; /* of what follows */
    uint32_t step;        /* base.step */
    uint32_t planned;     /* the last step of which the list of additions is made */
    int64_t at, at_piece; /* in the queue: the bucket to add next, and its piece */
    int *left;            /* per bucket: pieces to add */
    int64_t done;         /* buckets that are added, of this step */
    uint64_t added_ns;
    int n_leaves; /* of the node's ranks, of this step */
} lvni_levels_reduction;

extern const lvni_dist_reduction_ops lvni_levels_reduction_ops;
void lvni_levels_reduction_destroy(lvni_dist_reduction *r);
/* The channel's floats below float `end` of the set. */
int64_t lvni_levels_floats_below(const lvni_levels_reduction *r, int64_t end);

static inline lvni_levels_comm *lvni_levels_of(const lvni_levels_reduction *r)
{
    return (lvni_levels_comm *)r->base.comm;
}

/* Of a rank of this node. */
static inline lvni_levels_part *lvni_levels_part_of(const lvni_levels_reduction *r, int local)
{
    return (lvni_levels_part *)(void *)lvni_dist_region_part(&r->region, local);
}

static inline float *lvni_levels_set(const lvni_levels_reduction *r, int local, int i)
{
    return (float *)(void *)(lvni_dist_region_part(&r->region, local) + r->at_sets +
                             (size_t)i * r->set_stride);
}

static inline float *lvni_levels_total(const lvni_levels_reduction *r)
{
    return (float *)(void *)(r->region.common + r->at_total);
}

/* What this channel adds of bucket b, in floats; count may be 0. */
static inline lvni_plan_range lvni_levels_slice(const lvni_levels_reduction *r, int64_t b)
{
    const lvni_plan_range bucket = lvni_plan_exchange_bucket(&r->base.exchange, b);
    const int64_t block = LVNI_REDUCTION_BLOCK, from = r->slice.start * block,
                  to = (r->slice.start + r->slice.count) * block;
    const int64_t begin = from < bucket.count ? from : bucket.count,
                  end = to < bucket.count ? to : bucket.count;
    return (lvni_plan_range){bucket.start + begin, end - begin};
}

/* Where its first float is among the floats of the channel. */
static inline int64_t lvni_levels_place(const lvni_levels_reduction *r, int64_t b)
{
    return b * r->slice.count * LVNI_REDUCTION_BLOCK;
}

/* With parts: what the node's ranks own of the norm's floats; otherwise all of them. */
static inline lvni_plan_range lvni_levels_owned(const lvni_levels_reduction *r)
{
    const lvni_levels_comm *c = lvni_levels_of(r);
    const int64_t n = r->base.o.n_norm;
    if (!r->base.o.parts) {
        return (lvni_plan_range){0, n};
    }
    const int64_t begin = lvni_plan_exchange_part(n, c->base.world, c->first[c->node]).start;
    const lvni_plan_range last =
        lvni_plan_exchange_part(n, c->base.world, c->first[c->node + 1] - 1);
    return (lvni_plan_range){begin, last.start + last.count - begin};
}

static inline int64_t lvni_levels_pieces(const lvni_levels_reduction *r, int64_t b)
{
    return (lvni_levels_slice(r, b).count + LVNI_REDUCTION_PIECE - 1) / LVNI_REDUCTION_PIECE;
}

#endif
