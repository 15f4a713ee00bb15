/* The memory of a reduction in two levels (levels_reduction.h), from creation to the end. */
#include "dist/levels/levels_reduction.h"

#include "core/alloc.h"
#include "core/error.h"

#include <string.h>

enum { PAGE = 4096, LINE = 64 };

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* ---- what a channel adds ---- */

/* Blocks of a whole bucket. */
static int64_t blocks_of_bucket(const lvni_levels_reduction *r)
{
    const int64_t n =
        r->base.buckets > 0 ? lvni_plan_exchange_bucket(&r->base.exchange, 0).count : 0;
    return (n + LVNI_REDUCTION_BLOCK - 1) / LVNI_REDUCTION_BLOCK;
}

int64_t lvni_levels_floats_below(const lvni_levels_reduction *r, int64_t end)
{
    int64_t n = 0;
    for (int64_t b = 0; b < r->base.buckets; b++) {
        const lvni_plan_range s = lvni_levels_slice(r, b);
        const int64_t some = end - s.start;
        n += some >= s.count ? s.count : some > 0 ? some : 0;
    }
    return n;
}

/* The sub-trees of the node's micro-batches, and room for the leaves of its ranks in each. */
static lvn_status make_trees(lvni_levels_reduction *r, int begin, int end)
{
    lvni_plan_tree tree;
    lvni_plan_tree_merge merges[LVNI_TREE_PENDING];
    const lvni_levels_comm *c = lvni_levels_of(r);
    const size_t leaves = (size_t)c->inner->world * LVNI_TREE_PENDING;
    lvni_plan_tree_init(&tree, r->base.o.micro_batches, begin, end);
    while (tree.next < end) {
        lvni_plan_tree_push(&tree, tree.next, merges);
    }
    r->tree = lvni_core_calloc(LVNI_TAG_DIST, (size_t)tree.n_pending, sizeof *r->tree);
    r->leaf = lvni_core_calloc(LVNI_TAG_DIST, leaves, sizeof *r->leaf);
    r->source = lvni_core_calloc(LVNI_TAG_DIST, leaves, sizeof *r->source);
    if (r->tree == NULL || r->leaf == NULL || r->source == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (; r->n_trees < tree.n_pending; r->n_trees++) {
        lvni_levels_tree *t = &r->tree[r->n_trees];
        t->node = tree.pending[r->n_trees];
        const int room = t->node.end - t->node.begin;
        LVN_TRY(lvni_dist_sum_plan_init(&t->plan, room < (int)leaves ? room : (int)leaves));
    }
    return LVN_OK;
}

/* A node adds what its ranks own: the sums go no further. */
static lvn_status make_borders(lvni_levels_reduction *r)
{
    const lvni_levels_comm *c = lvni_levels_of(r);
    const int64_t n = r->base.o.n_norm;
    r->border = lvni_core_calloc(LVNI_TAG_DIST, (size_t)c->nodes + 1, sizeof *r->border);
    if (r->border == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int node = 0; node < c->nodes; node++) {
        const lvni_plan_range part = lvni_plan_exchange_part(n, c->base.world, c->first[node]);
        r->border[node] = lvni_levels_floats_below(r, part.start);
    }
    r->border[c->nodes] = lvni_levels_floats_below(r, n);
    return LVN_OK;
}

static lvn_status make_channel(lvni_levels_reduction *r, int begin, int end)
{
    const lvni_levels_comm *c = lvni_levels_of(r);
    const int64_t blocks = blocks_of_bucket(r), from = blocks * c->local / c->channels;
    r->slice = (lvni_plan_range){from, blocks * (c->local + 1) / c->channels - from};
    r->left = lvni_core_calloc(LVNI_TAG_DIST, (size_t)r->base.buckets + 1, sizeof *r->left);
    r->bundle_bytes = c->local > 0
                          ? sizeof(uint64_t)
                          : (size_t)lvni_levels_most_ranks(c) *
                                (sizeof(uint64_t) + round_up(r->base.o.message, sizeof(uint64_t)));
    r->bundle = lvni_core_calloc(LVNI_TAG_DIST, 1, r->bundle_bytes);
    if (r->left == NULL || r->bundle == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(r->base.o.parts ? make_borders(r) : LVN_OK);
    return make_trees(r, begin, end);
}

/* Of this channel's floats of all sub-trees of the node: a set each. */
static lvn_status make_outer(lvni_levels_reduction *r)
{
    const lvni_dist_reduction_options *all = &r->base.o;
    const lvni_dist_reduction_options o = {.micro_batches = all->micro_batches,
                                           .sets = r->n_trees,
                                           .n = lvni_levels_floats_below(r, all->n),
                                           .n_norm = lvni_levels_floats_below(r, all->n_norm),
                                           .bucket = r->slice.count * LVNI_REDUCTION_BLOCK,
                                           .parts = all->parts,
                                           .border = r->border,
                                           .message = r->bundle_bytes,
                                           .sumsq = all->sumsq};
    return lvni_dist_reduction_create(lvni_levels_of(r)->outer, &o, &r->outer);
}

/* ---- the node's memory ---- */

/* Pages lie near the rank that reserves them: its part, and what its channel adds of the total. */
static lvn_status reserve(void *user, const lvni_dist_region *region)
{
    const lvni_levels_reduction *r = user;
    const lvni_levels_comm *c = lvni_levels_of(r);
    lvni_dist_comm *inner = c->inner;
    if (c->local == 0) {
        LVN_TRY(inner->ops->region_reserve(inner, region, region->common, r->at_total));
    }
    LVN_TRY(inner->ops->region_reserve(inner, region, lvni_dist_region_part(region, c->local),
                                       r->at_sets + (size_t)r->base.o.sets * r->set_stride));
    for (int64_t b = 0; b < r->base.buckets && c->outer != NULL; b++) {
        const lvni_plan_range s = lvni_levels_slice(r, b);
        if (s.count > 0) {
            LVN_TRY(inner->ops->region_reserve(
                inner, region, region->common + r->at_total + (size_t)s.start * sizeof(float),
                (size_t)s.count * sizeof(float)));
        }
    }
    return LVN_OK;
}

static lvn_status open_region(lvni_levels_reduction *r, int sets)
{
    const size_t buckets = (size_t)r->base.buckets, world = (size_t)r->base.comm->world,
                 set = round_up((size_t)r->base.o.n * sizeof(float), PAGE);
    const size_t blocks = (size_t)(r->base.o.n + LVNI_REDUCTION_BLOCK - 1) / LVNI_REDUCTION_BLOCK;
    r->message_stride = round_up(r->base.o.message, LINE);
    r->at_ready = sizeof(lvni_levels_common);
    r->at_queue = round_up(r->at_ready + buckets * sizeof(uint32_t), LINE);
    r->at_partial = round_up(r->at_queue + buckets * sizeof(uint64_t), LINE);
    r->at_sizes = round_up(r->at_partial + blocks * sizeof(double), LINE);
    r->at_messages = round_up(r->at_sizes + world * sizeof(uint64_t), LINE);
    r->at_total = round_up(r->at_messages + world * r->message_stride, PAGE);
    r->at_message = round_up(sizeof(lvni_levels_part), LINE);
    r->at_sets = round_up(r->at_message + r->message_stride, PAGE);
    r->set_stride = set;
    LVN_TRY(lvni_dist_region_share(lvni_levels_of(r)->inner, r->at_total + set,
                                   r->at_sets + (size_t)sets * set, reserve, r,
                                   "the memory of a reduction", &r->region));
    r->open = true;
    r->base.partial = (double *)(void *)(r->region.common + r->at_partial);
    return LVN_OK;
}

/* ---- creation ---- */

/* The micro-batches of this node's ranks, which follow each other. The same status on all ranks. */
static lvn_status find_run(const lvni_levels_reduction *r, int *begin, int *end)
{
    const lvni_levels_comm *c = lvni_levels_of(r);
    lvni_dist_comm *comm = r->base.comm;
    const int32_t mine[2] = {r->base.o.begin, r->base.o.end};
    int32_t(*all)[2] = lvni_core_calloc(LVNI_TAG_DIST, (size_t)comm->world, sizeof *all);
    lvn_status s;
    LVNI_TRY_DONE(
        s, lvni_dist_comm_agree_status(comm, all != NULL ? LVN_OK : LVN_ERR_MEMORY, "a reduction"));
    LVNI_TRY_DONE(s, comm->ops->all_gather(comm, mine, sizeof mine, all));
    for (int rank = 0; rank < comm->world && all != NULL; rank++) {
        const int before = rank > 0 ? all[rank - 1][1] : 0;
        if (all[rank][0] != before || all[rank][1] <= before ||
            (rank == comm->world - 1 && all[rank][1] != r->base.o.micro_batches)) {
            s = lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                              "rank %d has micro-batches %d to %d of %d, which do not follow those "
                              "of the rank before",
                              rank, (int)all[rank][0], (int)all[rank][1] - 1,
                              r->base.o.micro_batches);
            goto done;
        }
    }
    if (all != NULL) {
        *begin = all[c->first[c->node]][0];
        *end = all[c->first[c->node + 1] - 1][1];
    }
done:
    lvni_core_free(all);
    return s;
}

static lvn_status make(lvni_levels_reduction *r, int sets)
{
    lvni_dist_comm *comm = r->base.comm;
    int begin = 0, end = 0;
    LVN_TRY(find_run(r, &begin, &end));
    r->reported = lvni_core_calloc(LVNI_TAG_DIST, (size_t)r->base.buckets + 1, sizeof *r->reported);
    lvn_status s = r->reported != NULL ? LVN_OK : LVN_ERR_MEMORY;
    if (s == LVN_OK && lvni_levels_of(r)->outer != NULL) {
        s = make_channel(r, begin, end);
    }
    LVN_TRY(lvni_dist_comm_agree_status(comm, s, "a reduction"));
    LVN_TRY(lvni_dist_comm_agree_status(comm, open_region(r, sets), "a reduction"));
    s = lvni_levels_of(r)->outer != NULL ? make_outer(r) : LVN_OK;
    return lvni_dist_comm_agree_status(comm, s, "a reduction");
}

lvn_status lvni_levels_reduction_create(lvni_dist_comm *comm,
                                        const lvni_dist_reduction_options *options, int sets,
                                        lvni_dist_reduction **out)
{
    lvni_levels_reduction *r = LVNI_NEW(LVNI_TAG_DIST, lvni_levels_reduction);
    lvn_status s =
        lvni_dist_comm_agree_status(comm, r != NULL ? LVN_OK : LVN_ERR_MEMORY, "a reduction");
    if (s != LVN_OK || r == NULL) {
        lvni_core_free(r);
        return s;
    }
    lvni_dist_reduction_init(&r->base, &lvni_levels_reduction_ops, comm, options);
    pthread_mutex_init(&r->lock, NULL);
    s = make(r, sets);
    if (s != LVN_OK) {
        lvni_levels_reduction_destroy(&r->base);
        return s;
    }
    *out = &r->base;
    return LVN_OK;
}

void lvni_levels_reduction_destroy(lvni_dist_reduction *base)
{
    lvni_levels_reduction *r = (lvni_levels_reduction *)base;
    lvni_dist_comm *inner = lvni_levels_of(r)->inner;
    lvni_dist_reduction_destroy(r->outer);
    if (r->open) {
        inner->ops->region_close(inner, &r->region);
    }
    for (int k = 0; k < r->n_trees; k++) {
        lvni_dist_sum_plan_free(&r->tree[k].plan);
    }
    pthread_mutex_destroy(&r->lock);
    lvni_core_free(r->tree);
    lvni_core_free(r->leaf);
    lvni_core_free(r->source);
    lvni_core_free(r->reported);
    lvni_core_free(r->left);
    lvni_core_free(r->border);
    lvni_core_free(r->bundle);
    lvni_core_free(r);
}
