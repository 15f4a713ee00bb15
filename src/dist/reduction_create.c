/* The memory of a reduction (reduction_impl.h): what ranks agree on, where things lie, and who
 * reserves what. */
#include "core/alloc.h"
#include "dist/reduction_impl.h"

#include <string.h>

enum { PAGE = 4096, LINE = 64 };

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* What has to be the same everywhere, and how many sets each rank holds. */
typedef struct request {
    int64_t status; /* of the check of this rank's own options */
    int64_t micro_batches, n, n_norm, bucket, message;
    int64_t sets;
} request;

static lvn_status check_options(const lvni_dist_comm *comm, const lvni_dist_reduction_options *o)
{
    LVN_ARG(o->micro_batches >= comm->world,
            "a reduction of %d micro-batches over %d ranks: each rank needs one", o->micro_batches,
            comm->world);
    LVN_ARG(o->sets >= 1 && o->n >= 0 && o->n_norm >= 0 && o->n_norm <= o->n && o->sumsq != NULL,
            "a reduction of %d sets of %lld floats, %lld of them in the norm", o->sets,
            (long long)o->n, (long long)o->n_norm);
    LVN_ARG(o->bucket >= 0 && o->bucket % LVNI_REDUCTION_BLOCK == 0,
            "buckets of %lld floats: only multiples of %d", (long long)o->bucket,
            LVNI_REDUCTION_BLOCK);
    const int64_t bucket = o->bucket > 0 ? o->bucket : o->n;
    LVN_ARG(bucket == 0 || ((o->n + bucket - 1) / bucket < (int64_t)1 << LVNI_CURSOR_PLACE_BITS &&
                            bucket / LVNI_REDUCTION_PIECE < (int64_t)1 << LVNI_CURSOR_PIECE_BITS),
            "buckets of %lld floats are too %s for sets of %lld", (long long)bucket,
            o->n / bucket > 1 ? "small" : "large", (long long)o->n);
    return LVN_OK;
}

/* All ranks compare the same requests, so all return the same status. *sets: the most that a rank
 * holds. */
static lvn_status agree(lvni_dist_comm *comm, const lvni_dist_reduction_options *o, int *sets)
{
    const lvn_status mine = check_options(comm, o);
    const request me = {(int64_t)mine, o->micro_batches,    o->n,   o->n_norm,
                        o->bucket,     (int64_t)o->message, o->sets};
    request *all = lvni_core_calloc(LVNI_TAG_DIST, (size_t)comm->world, sizeof *all);
    lvn_status status =
        lvni_dist_comm_agree_status(comm, all != NULL ? LVN_OK : LVN_ERR_MEMORY, "a reduction");
    status =
        status == LVN_OK && all != NULL ? comm->ops->all_gather(comm, &me, sizeof me, all) : status;
    *sets = 1;
    for (int r = 0; r < comm->world && status == LVN_OK && all != NULL; r++) {
        const request *a = &all[0], *b = &all[r];
        if (b->status != LVN_OK) {
            status = mine != LVN_OK
                         ? mine
                         : lvn_error_set((lvn_status)b->status, __FILE__, __LINE__,
                                         "rank %d's options of a reduction are wrong", r);
        } else if (memcmp(&a->micro_batches, &b->micro_batches,
                          sizeof *a - offsetof(request, micro_batches) - sizeof a->sets) != 0) {
            status = lvn_error_set(
                LVN_ERR_INVALID, __FILE__, __LINE__,
                "ranks 0 and %d want different reductions: %lld and %lld micro-batches, %lld and "
                "%lld "
                "floats (%lld and %lld in the "
                "norm), buckets of %lld and %lld, messages of %lld and %lld bytes",
                r, (long long)a->micro_batches, (long long)b->micro_batches, (long long)a->n,
                (long long)b->n, (long long)a->n_norm, (long long)b->n_norm, (long long)a->bucket,
                (long long)b->bucket, (long long)a->message, (long long)b->message);
        }
        *sets = b->sets > *sets ? (int)b->sets : *sets;
    }
    lvni_core_free(all);
    return status;
}

/* What this rank has for itself: the list of additions, one entry per leaf of any rank, and who is
 * ready. */
static lvn_status make_private(lvni_dist_reduction *r)
{
    const int64_t most = (int64_t)r->comm->world * LVNI_TREE_PENDING;
    const int leaves = r->o.micro_batches < most ? r->o.micro_batches : (int)most;
    LVN_TRY(lvni_dist_sum_plan_init(&r->plan, leaves));
    r->leaf = lvni_core_calloc(LVNI_TAG_DIST, (size_t)leaves, sizeof *r->leaf);
    r->source = lvni_core_calloc(LVNI_TAG_DIST, (size_t)leaves, sizeof *r->source);
    r->reported = lvni_core_calloc(LVNI_TAG_DIST, (size_t)r->buckets, sizeof *r->reported);
    return r->leaf != NULL && r->source != NULL && r->reported != NULL ? LVN_OK : LVN_ERR_MEMORY;
}

/* Pages lie near the rank that reserves them: its part, and its slices of the total. Nothing of
 * this fails later, in a step. */
static lvn_status reserve(void *user, const lvni_dist_region *region)
{
    const lvni_dist_reduction *r = user;
    lvni_dist_comm *comm = r->comm;
    const lvni_dist_transport *ops = comm->ops;
    if (comm->rank == 0) {
        LVN_TRY(ops->region_reserve(comm, region, region->common, r->at_total));
    }
    LVN_TRY(ops->region_reserve(comm, region, lvni_dist_region_part(region, comm->rank),
                                r->at_sets + (size_t)r->o.sets * r->set_stride));
    for (int64_t b = 0; b < r->buckets && comm->world > 1; b++) {
        const lvni_plan_range slice = lvni_plan_exchange_slice(&r->exchange, b, comm->rank);
        if (slice.count > 0) {
            LVN_TRY(ops->region_reserve(
                comm, region, region->common + r->at_total + (size_t)slice.start * sizeof(float),
                (size_t)slice.count * sizeof(float)));
        }
    }
    return LVN_OK;
}

static lvn_status open_region(lvni_dist_reduction *r, int sets)
{
    const size_t buckets = (size_t)r->buckets, set = round_up((size_t)r->o.n * sizeof(float), PAGE);
    const size_t blocks = (size_t)(r->o.n + LVNI_REDUCTION_BLOCK - 1) / LVNI_REDUCTION_BLOCK;
    r->at_ready = sizeof(lvni_dist_common_part);
    r->at_queue = round_up(r->at_ready + buckets * sizeof(uint32_t), LINE);
    r->at_partial = round_up(r->at_queue + buckets * sizeof(uint64_t), LINE);
    r->at_total = round_up(r->at_partial + blocks * sizeof(double), PAGE);
    r->at_message = sizeof(lvni_dist_rank_part);
    r->message_stride = round_up(r->o.message, LINE);
    r->at_sets = round_up(r->at_message + 2 * r->message_stride, PAGE);
    r->set_stride = set;
    const size_t common = r->at_total + (r->comm->world > 1 ? set : 0);
    LVN_TRY(lvni_dist_region_share(r->comm, common, r->at_sets + (size_t)sets * set, reserve, r,
                                   "the memory of a reduction", &r->region));
    r->open = true;
    return LVN_OK;
}

lvn_status lvni_dist_reduction_create(lvni_dist_comm *comm,
                                      const lvni_dist_reduction_options *options,
                                      lvni_dist_reduction **out)
{
    int sets = 0;
    *out = NULL;
    LVN_TRY(comm->ops->health(comm));
    if (comm->check) {
        LVN_TRY(comm->ops->agree(
            comm, &(lvni_dist_call){
                      .kind = LVNI_CALL_REDUCTION_CREATE, .dtype = -1, .how = -1, .root = -1}));
    }
    LVN_TRY(agree(comm, options, &sets));
    lvni_dist_reduction *r = LVNI_NEW(LVNI_TAG_DIST, lvni_dist_reduction);
    lvn_status status = r != NULL ? LVN_OK : LVN_ERR_MEMORY;
    if (r != NULL) {
        r->comm = comm;
        r->o = *options;
        r->used_end = options->n_norm;
        r->exchange = (lvni_plan_exchange){options->n, options->bucket, comm->world};
        r->buckets = lvni_plan_exchange_buckets(&r->exchange);
        for (int64_t b = 0; b < r->buckets; b++) {
            r->pieces += lvni_dist_reduction_slice_pieces(r, b);
        }
        /* before the first step: nothing left to add */
        atomic_store(&r->cursor, (uint64_t)r->buckets << LVNI_CURSOR_PIECE_BITS);
        status = make_private(r);
    }
    status = lvni_dist_comm_agree_status(comm, status, "a reduction");
    if (status == LVN_OK && r != NULL) {
        status = open_region(r, sets);
    }
    if (status != LVN_OK) {
        lvni_dist_reduction_destroy(r);
        return status;
    }
    *out = r;
    return LVN_OK;
}

void lvni_dist_reduction_destroy(lvni_dist_reduction *r)
{
    if (r == NULL) {
        return;
    }
    if (r->open) {
        r->comm->ops->region_close(r->comm, &r->region);
    }
    lvni_dist_sum_plan_free(&r->plan);
    lvni_core_free(r->leaf);
    lvni_core_free(r->source);
    lvni_core_free(r->reported);
    lvni_core_free(r);
}
