/* What the reductions of all transports are made of (reduction_impl.h): the head, and the sum of
 * one piece with its squares. Apart from reduction.c, whose calls bench/free_reduction.c replaces.
 */
#include "dist/reduction_impl.h"

#include <string.h>

void lvni_dist_reduction_init(lvni_dist_reduction *r, const lvni_dist_reduction_ops *ops,
                              lvni_dist_comm *comm, const lvni_dist_reduction_options *o)
{
    r->ops = ops;
    r->comm = comm;
    r->o = *o;
    r->used_end = o->n_norm;
    r->exchange = (lvni_plan_exchange){.n = o->n,
                                       .bucket = o->bucket,
                                       .world = comm->world,
                                       .parts = o->parts ? o->n_norm : 0,
                                       .border = o->border};
    r->buckets = lvni_plan_exchange_buckets(&r->exchange);
}

/* The norm's sums over the blocks of [from, from + count), which begins on a border; the last block
 * of the norm may be shorter. */
static void add_squares(const lvni_dist_reduction *r, const float *total, int64_t from,
                        int64_t count)
{
    double *partial = r->partial + from / LVNI_REDUCTION_BLOCK;
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

int64_t lvni_dist_reduction_add(const lvni_dist_reduction *r, const lvni_dist_sum_plan *plan,
                                void *const *source, float *total, int64_t b, int64_t number)
{
    const lvni_plan_range slice = lvni_plan_exchange_slice(&r->exchange, b, r->comm->rank);
    const int64_t from = slice.start + number * LVNI_REDUCTION_PIECE,
                  left = slice.start + slice.count - from;
    const int64_t end = from + (left < LVNI_REDUCTION_PIECE ? left : LVNI_REDUCTION_PIECE);
    int64_t added = 0;
    for (int64_t at = from; at < end; at += LVNI_REDUCTION_BLOCK) {
        /* a block is squared while it is in the nearest cache */
        const int64_t n = end - at < LVNI_REDUCTION_BLOCK ? end - at : LVNI_REDUCTION_BLOCK;
        if (is_used(r, at, n)) {
            lvni_dist_sum_run(plan, source, total, at, n, LVN_F32, LVNI_REDUCE_SUM);
            add_squares(r, total, at, n);
            added += n;
        }
    }
    return added;
}
