/* The calls of reduction.h: what every transport's reduction has in common (what ranks agree on
 * before there is one, the checks of a step), then the transport's own table
 * (reduction_impl.h). */
#include "dist/reduction_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "dist/rank_progress.h"

#include <stddef.h>
#include <string.h>

/* ---- creation ---- */

/* What has to be the same everywhere, and how many sets each rank holds. */
typedef struct request {
    int64_t status; /* of the check of this rank's own options */
    int64_t micro_batches, n, n_norm, bucket, message, parts;
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
    LVN_ARG(o->set == NULL || (o->add != NULL && lvni_dist_comm_reads_any(comm)),
            "a reduction over memory of the caller, which this transport cannot read%s",
            o->add == NULL ? ", without an addition" : "");
    LVN_ARG(o->bucket >= 0 && o->bucket % LVNI_REDUCTION_BLOCK == 0,
            "buckets of %lld floats: only multiples of %d", (long long)o->bucket,
            LVNI_REDUCTION_BLOCK);
    const int64_t bucket = o->bucket > 0 ? o->bucket : o->n;
    LVN_ARG(bucket == 0 || ((o->n + bucket - 1) / bucket < LVNI_REDUCTION_MAX &&
                            bucket / LVNI_REDUCTION_PIECE < LVNI_REDUCTION_MAX),
            "buckets of %lld floats are too %s for sets of %lld", (long long)bucket,
            o->n / bucket > 1 ? "small" : "large", (long long)o->n);
    return LVN_OK;
}

/* All ranks compare the same requests, so all return the same status. *sets: the most that a rank
 * holds. */
static lvn_status agree(lvni_dist_comm *comm, const lvni_dist_reduction_options *o, int *sets)
{
    const lvn_status mine = check_options(comm, o);
    const request me = {(int64_t)mine, o->micro_batches,    o->n,     o->n_norm,
                        o->bucket,     (int64_t)o->message, o->parts, o->sets};
    request *all = lvni_core_calloc(LVNI_TAG_DIST, (size_t)comm->world, sizeof *all);
    lvn_status status;
    *sets = 1;
    LVNI_TRY_DONE(status, lvni_dist_comm_agree_status(comm, all != NULL ? LVN_OK : LVN_ERR_MEMORY,
                                                      "a reduction"));
    LVNI_TRY_DONE(status, comm->ops->all_gather(comm, &me, sizeof me, all));
    for (int r = 0; r < comm->world && all != NULL; r++) {
        const request *a = &all[0], *b = &all[r];
        if (b->status != LVN_OK) {
            status = mine != LVN_OK
                         ? mine
                         : lvn_error_set((lvn_status)b->status, __FILE__, __LINE__,
                                         "rank %d's options of a reduction are wrong", r);
            goto done;
        }
        if (memcmp(&a->micro_batches, &b->micro_batches,
                   sizeof *a - offsetof(request, micro_batches) - sizeof a->sets) != 0) {
            status = lvn_error_set(
                LVN_ERR_INVALID, __FILE__, __LINE__,
                "ranks 0 and %d want different reductions: %lld and %lld micro-batches, %lld and "
                "%lld floats (%lld and %lld in the norm), buckets of %lld and %lld, messages of "
                "%lld and %lld bytes, parts %lld and %lld",
                r, (long long)a->micro_batches, (long long)b->micro_batches, (long long)a->n,
                (long long)b->n, (long long)a->n_norm, (long long)b->n_norm, (long long)a->bucket,
                (long long)b->bucket, (long long)a->message, (long long)b->message,
                (long long)a->parts, (long long)b->parts);
            goto done;
        }
        *sets = b->sets > *sets ? (int)b->sets : *sets;
    }
done:
    lvni_core_free(all);
    return status;
}

static lvn_status create(lvni_dist_comm *comm, const lvni_dist_reduction_options *options,
                         lvni_dist_reduction **out)
{
    int sets = 0;
    if (comm->check) {
        LVN_TRY(comm->ops->agree(
            comm, &(lvni_dist_call){
                      .kind = LVNI_CALL_REDUCTION_CREATE, .dtype = -1, .how = -1, .root = -1}));
    }
    LVN_TRY(agree(comm, options, &sets));
    return comm->ops->reduction_create(comm, options, sets, out);
}

lvn_status lvni_dist_reduction_create(lvni_dist_comm *comm,
                                      const lvni_dist_reduction_options *options,
                                      lvni_dist_reduction **out)
{
    *out = NULL;
    LVN_TRY(comm->ops->health(comm));
    lvni_dist_call_begin(comm, LVNI_CALL_REDUCTION_CREATE);
    return lvni_dist_call_end(comm, create(comm, options, out));
}

void lvni_dist_reduction_destroy(lvni_dist_reduction *r)
{
    if (r != NULL) {
        r->ops->destroy(r);
    }
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
    r->step++;
    r->ops->begin(r, leaf, n_leaves);
    return LVN_OK;
}

void lvni_dist_reduction_ready(lvni_dist_reduction *r, int b)
{
    r->ops->ready(r, b);
}

bool lvni_dist_reduction_help(lvni_dist_reduction *r)
{
    return r->ops->help(r);
}

lvn_status lvni_dist_reduction_finish(lvni_dist_reduction *r, const void *message, size_t bytes)
{
    lvni_dist_comm *comm = r->comm;
    LVN_TRY(comm->ops->health(comm));
    LVN_ARG(r->finished != r->step, "a step of a reduction is finished before it begins");
    LVN_ARG(bytes <= r->o.message, "rank %d sends %zu bytes in a step, at most %zu are allowed",
            comm->rank, bytes, r->o.message);
    lvni_dist_call_begin(comm, LVNI_CALL_REDUCTION_FINISH);
    const lvn_status s = comm->check
                             ? comm->ops->agree(comm, &(lvni_dist_call){LVNI_CALL_REDUCTION_FINISH,
                                                                        -1, -1, -1, r->o.n})
                             : LVN_OK;
    LVN_TRY(lvni_dist_call_end(comm, s == LVN_OK ? r->ops->finish(r, message, bytes) : s));
    r->finished = r->step;
    return LVN_OK;
}

/* ---- what a step leaves behind, and what does not change ---- */

float *lvni_dist_reduction_set(lvni_dist_reduction *r, int i)
{
    return r->ops->set(r, i);
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
    return r->partial;
}

const void *lvni_dist_reduction_get_message(lvni_dist_reduction *r, int rank, size_t *bytes)
{
    return r->ops->get_message(r, rank, bytes);
}

lvni_dist_reduction_times lvni_dist_reduction_last(const lvni_dist_reduction *r)
{
    return r->last;
}
