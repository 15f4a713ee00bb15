/* The memory of a reduction (reduction_shared.h): what ranks agree on, where things lie, and who
 * reserves what. */
#include "core/alloc.h"
#include "dist/reduction_shared.h"

#include <string.h>

enum { PAGE = 4096, LINE = 64 };

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* What this rank has for itself: the list of additions, one entry per leaf of any rank, and who is
 * ready. */
static lvn_status make_private(lvni_dist_shared *r)
{
    const int64_t most = (int64_t)r->base.comm->world * LVNI_TREE_PENDING;
    const int leaves = r->base.o.micro_batches < most ? r->base.o.micro_batches : (int)most;
    LVN_TRY(lvni_dist_sum_plan_init(&r->plan, leaves));
    r->leaf = lvni_core_calloc(LVNI_TAG_DIST, (size_t)leaves, sizeof *r->leaf);
    r->source = lvni_core_calloc(LVNI_TAG_DIST, (size_t)leaves, sizeof *r->source);
    r->reported = lvni_core_calloc(LVNI_TAG_DIST, (size_t)r->base.buckets, sizeof *r->reported);
    return r->leaf != NULL && r->source != NULL && r->reported != NULL ? LVN_OK : LVN_ERR_MEMORY;
}

/* Pages lie near the rank that reserves them: its part, and its slices of the total. Nothing of
 * this fails later, in a step. */
static lvn_status reserve(void *user, const lvni_dist_region *region)
{
    const lvni_dist_shared *r = user;
    lvni_dist_comm *comm = r->base.comm;
    const lvni_dist_transport *ops = comm->ops;
    if (comm->rank == 0) {
        LVN_TRY(ops->region_reserve(comm, region, region->common, r->at_total));
    }
    LVN_TRY(ops->region_reserve(comm, region, lvni_dist_region_part(region, comm->rank),
                                r->at_sets + (size_t)r->base.o.sets * r->set_stride));
    for (int64_t b = 0; b < r->base.buckets && comm->world > 1; b++) {
        const lvni_plan_range slice = lvni_plan_exchange_slice(&r->base.exchange, b, comm->rank);
        if (slice.count > 0) {
            LVN_TRY(ops->region_reserve(
                comm, region, region->common + r->at_total + (size_t)slice.start * sizeof(float),
                (size_t)slice.count * sizeof(float)));
        }
    }
    return LVN_OK;
}

static lvn_status open_region(lvni_dist_shared *r, int sets)
{
    const size_t buckets = (size_t)r->base.buckets,
                 set = round_up((size_t)r->base.o.n * sizeof(float), PAGE);
    const size_t blocks = (size_t)(r->base.o.n + LVNI_REDUCTION_BLOCK - 1) / LVNI_REDUCTION_BLOCK;
    r->at_ready = sizeof(lvni_dist_common_part);
    r->at_queue = round_up(r->at_ready + buckets * sizeof(uint32_t), LINE);
    r->at_partial = round_up(r->at_queue + buckets * sizeof(uint64_t), LINE);
    r->at_total = round_up(r->at_partial + blocks * sizeof(double), PAGE);
    r->at_message = sizeof(lvni_dist_rank_part);
    r->message_stride = round_up(r->base.o.message, LINE);
    r->at_sets = round_up(r->at_message + 2 * r->message_stride, PAGE);
    r->set_stride = set;
    const size_t common = r->at_total + (r->base.comm->world > 1 ? set : 0);
    LVN_TRY(lvni_dist_region_share(r->base.comm, common, r->at_sets + (size_t)sets * set, reserve,
                                   r, "the memory of a reduction", &r->region));
    r->open = true;
    r->base.partial = (double *)(void *)(r->region.common + r->at_partial);
    return LVN_OK;
}

lvn_status lvni_dist_shared_create(lvni_dist_comm *comm, const lvni_dist_reduction_options *options,
                                   int sets, lvni_dist_reduction **out)
{
    lvni_dist_shared *r = LVNI_NEW(LVNI_TAG_DIST, lvni_dist_shared);
    lvn_status status = r != NULL ? LVN_OK : LVN_ERR_MEMORY;
    if (r != NULL) {
        lvni_dist_reduction_init(&r->base, &lvni_dist_shared_ops, comm, options);
        for (int64_t b = 0; b < r->base.buckets; b++) {
            r->pieces += lvni_dist_reduction_slice_pieces(&r->base, b);
        }
        /* before the first step: nothing left to add */
        atomic_store(&r->cursor, (uint64_t)r->base.buckets << LVNI_CURSOR_PIECE_BITS);
        status = make_private(r);
    }
    status = lvni_dist_comm_agree_status(comm, status, "a reduction");
    if (status == LVN_OK && r != NULL) {
        status = open_region(r, sets);
    }
    if (status != LVN_OK) {
        if (r != NULL) {
            lvni_dist_shared_destroy(&r->base);
        }
        return status;
    }
    *out = &r->base;
    return LVN_OK;
}

void lvni_dist_shared_destroy(lvni_dist_reduction *base)
{
    lvni_dist_shared *r = (lvni_dist_shared *)base;
    if (r->open) {
        base->comm->ops->region_close(base->comm, &r->region);
    }
    lvni_dist_sum_plan_free(&r->plan);
    lvni_core_free(r->leaf);
    lvni_core_free(r->source);
    lvni_core_free(r->reported);
    lvni_core_free(r);
}
