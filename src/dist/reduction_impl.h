/* What reduction.c has in common with the transports' reductions: the object's head and the table
 * of its calls. A transport's own object begins with the head. */
#ifndef LEVIN_DIST_REDUCTION_IMPL_H
#define LEVIN_DIST_REDUCTION_IMPL_H

#include "dist/reduction.h"
#include "dist/sum_plan.h"
#include "dist/transport.h"
#include "plan/exchange.h"

#include <stdalign.h>

enum {
    LVNI_REDUCTION_PIECE = 4 * LVNI_REDUCTION_BLOCK, /* floats that one thread adds at once */
    LVNI_REDUCTION_MAX = 1 << 20 /* buckets of a set, and pieces of a bucket: fewer */
};

/* The calls of reduction.h; reduction.c has checked the arguments and counted the step. */
struct lvni_dist_reduction_ops {
    void (*destroy)(lvni_dist_reduction *r);
    float *(*set)(lvni_dist_reduction *r, int i);
    void (*begin)(lvni_dist_reduction *r, const lvni_plan_tree_node *leaf, int n_leaves);
    void (*ready)(lvni_dist_reduction *r, int b);
    bool (*help)(lvni_dist_reduction *r);
    /* leaves base.total and what get_message returns */
    lvn_status (*finish)(lvni_dist_reduction *r, const void *message, size_t bytes);
    const void *(*get_message)(lvni_dist_reduction *r, int rank, size_t *bytes);
};

struct lvni_dist_reduction {
    const lvni_dist_reduction_ops *ops;
    lvni_dist_comm *comm;
    lvni_dist_reduction_options o;
    lvni_plan_exchange exchange;
    int64_t buckets;
    uint32_t step;     /* of the last begin; trainer thread */
    uint32_t finished; /* the last step that finish has ended */
    /* lvni_dist_reduction_use; trainer thread, between finish and begin */
    int64_t used_begin, used_end;
    float *total; /* of the last step */
    double *partial;
    lvni_dist_reduction_times last;
};

/* Fills the head from options that were checked and agreed on. */
void lvni_dist_reduction_init(lvni_dist_reduction *r, const lvni_dist_reduction_ops *ops,
                              lvni_dist_comm *comm, const lvni_dist_reduction_options *o);
/* Where those floats begin whose total is on every rank also with parts: records behind the norm's,
 * and the block that they share. */
static inline int64_t lvni_dist_reduction_tail(const lvni_dist_reduction *r)
{
    return r->o.n > r->o.n_norm ? r->o.n_norm / LVNI_REDUCTION_BLOCK * LVNI_REDUCTION_BLOCK
                                : r->o.n;
}
/* Pieces of this rank's slice of bucket b. */
static inline int64_t lvni_dist_reduction_slice_pieces(const lvni_dist_reduction *r, int64_t b)
{
    return (lvni_plan_exchange_slice(&r->exchange, b, r->comm->rank).count + LVNI_REDUCTION_PIECE -
            1) /
           LVNI_REDUCTION_PIECE;
}
/* Adds piece `number` of this rank's slice of bucket b: sums of all sources into total (NULL: there
 * are none), and the norm's squares into partial. Returns how many floats were added. */
int64_t lvni_dist_reduction_add(const lvni_dist_reduction *r, const lvni_dist_sum_plan *plan,
                                void *const *source, float *total, int64_t b, int64_t number);

#endif
