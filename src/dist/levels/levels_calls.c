/* Collectives in two levels (levels_impl.h). Within a node they go through shared memory; between
 * nodes the first channel carries what is only moved, and all channels share what is added. Sums
 * are added in the fixed tree over ranks (plan/tree.h): a node adds up its sub-trees, all nodes
 * exchange these, and each adds them to the total. */
#include "dist/levels/levels_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "dist/combine.h"

#include <string.h>

/* The region of sums: which channels have seen all nodes below end (lvni_levels_claim); the result
 * in the common part, then a stage of each rank. */
enum { AT_RESULT = 4096, MAX_SEEN = 4096 };

char *lvni_levels_scratch(lvni_levels_comm *c, int which, size_t bytes)
{
    if (bytes > c->room[which] || c->scratch[which] == NULL) {
        lvni_core_free(c->scratch[which]);
        c->scratch[which] = lvni_core_alloc(LVNI_TAG_DIST, bytes);
        c->room[which] = c->scratch[which] != NULL ? bytes : 0;
    }
    return c->scratch[which];
}

/* ---- what is only moved ---- */

static lvn_status barrier(lvni_levels_comm *c)
{
    LVN_TRY(c->inner->ops->barrier(c->inner));
    if (c->local == 0) {
        LVN_TRY(c->outer->ops->barrier(c->outer));
    }
    return c->inner->ops->barrier(c->inner);
}

lvn_status lvni_levels_barrier(lvni_dist_comm *comm)
{
    return lvni_levels_spread(lvni_levels(comm), barrier(lvni_levels(comm)));
}

/* The first rank of a node, whose ranks' bytes are in `out`: those of all nodes. Where nodes have
 * different numbers of ranks, little is padded, for one exchange; much goes node by node. */
static lvn_status gather_nodes(lvni_levels_comm *c, size_t bytes, char *out)
{
    const size_t most = (size_t)lvni_levels_most_ranks(c),
                 own = (size_t)lvni_levels_ranks_of(c, c->node);
    char *mine = out + (size_t)c->first[c->node] * bytes;
    if (most * (size_t)c->nodes == (size_t)c->base.world) {
        return c->outer->ops->all_gather(c->outer, mine, most * bytes, out);
    }
    const size_t widest = most * bytes;
    if (widest > LVNI_LEVELS_PADDED) {
        for (int node = 0; node < c->nodes; node++) {
            LVN_TRY(c->outer->ops->broadcast(c->outer, out + (size_t)c->first[node] * bytes,
                                             (size_t)lvni_levels_ranks_of(c, node) * bytes, node));
        }
        return LVN_OK;
    }
    char *all = lvni_levels_scratch(c, 0, widest * (size_t)c->nodes);
    if (all == NULL) {
        return lvni_levels_no_memory(c, "an all-gather");
    }
    memset(all + (size_t)c->node * widest, 0, widest);
    memcpy(all + (size_t)c->node * widest, mine, own * bytes);
    LVN_TRY(c->outer->ops->all_gather(c->outer, all + (size_t)c->node * widest, widest, all));
    for (int node = 0; node < c->nodes; node++) {
        memcpy(out + (size_t)c->first[node] * bytes, all + (size_t)node * widest,
               (size_t)lvni_levels_ranks_of(c, node) * bytes);
    }
    return LVN_OK;
}

static lvn_status share(lvni_levels_comm *c, char *data, size_t bytes)
{
    return bytes > 0 && c->inner->world > 1 ? c->inner->ops->broadcast(c->inner, data, bytes, 0)
                                            : LVN_OK;
}

static lvn_status all_gather(lvni_levels_comm *c, const void *in, size_t bytes, char *out)
{
    const size_t begin = (size_t)c->first[c->node] * bytes,
                 end = (size_t)c->first[c->node + 1] * bytes, all = (size_t)c->base.world * bytes;
    LVN_TRY(c->inner->ops->all_gather(c->inner, in, bytes, out + begin));
    if (c->local == 0) {
        LVN_TRY(gather_nodes(c, bytes, out));
    }
    LVN_TRY(share(c, out, begin));
    return share(c, out + end, all - end);
}

lvn_status lvni_levels_all_gather(lvni_dist_comm *comm, const void *in, size_t bytes, void *out)
{
    lvni_levels_comm *c = lvni_levels(comm);
    return lvni_levels_spread(c, all_gather(c, in, bytes, out));
}

static int node_of(const lvni_levels_comm *c, int rank)
{
    int node = 0;
    while (c->first[node + 1] <= rank) {
        node++;
    }
    return node;
}

/* Every rank answers (net_calls.c): here with the end of the call. */
static lvn_status broadcast(lvni_levels_comm *c, void *data, size_t bytes, int root)
{
    const int from = node_of(c, root);
    if (c->node == from && c->inner->world > 1) {
        LVN_TRY(c->inner->ops->broadcast(c->inner, data, bytes, root - c->first[from]));
    }
    if (c->local == 0) {
        LVN_TRY(c->outer->ops->broadcast(c->outer, data, bytes, from));
    }
    return c->node == from ? c->inner->ops->barrier(c->inner) : share(c, data, bytes);
}

lvn_status lvni_levels_broadcast(lvni_dist_comm *comm, void *data, size_t bytes, int root)
{
    lvni_levels_comm *c = lvni_levels(comm);
    return lvni_levels_spread(c, broadcast(c, data, bytes, root));
}

/* ---- sums ---- */

/* The sub-trees of the tree over all ranks that a node adds up, behind those in `leaf`. */
static int trees_of_node(const lvni_levels_comm *c, int node, lvni_plan_tree_node *leaf)
{
    lvni_plan_tree tree;
    lvni_plan_tree_merge merges[LVNI_TREE_PENDING];
    lvni_plan_tree_init(&tree, c->base.world, c->first[node], c->first[node + 1]);
    while (tree.next < tree.end) {
        lvni_plan_tree_push(&tree, tree.next, merges);
    }
    for (int k = 0; k < tree.n_pending; k++) {
        leaf[k] = tree.pending[k];
    }
    return tree.n_pending;
}

/* The additions of one sub-tree of this node: its ranks one by one. */
static lvn_status make_tree(lvni_levels_comm *c, int k, lvni_plan_tree_node node)
{
    const int n = node.end - node.begin;
    lvni_plan_tree_node *leaf = lvni_core_calloc(LVNI_TAG_DIST, (size_t)n, sizeof *leaf);
    lvn_status s;
    LVNI_TRY_DONE(s, leaf == NULL ? LVN_ERR_MEMORY : lvni_dist_sum_plan_init(&c->sums.tree[k], n));
    for (int i = 0; i < n; i++) {
        leaf[i] = (lvni_plan_tree_node){node.begin + i, node.begin + i + 1, i};
    }
    lvni_dist_sum_plan_make(&c->sums.tree[k], c->base.world, leaf, n);
    c->sums.first_of_tree[k] = node.begin - c->first[c->node];
done:
    lvni_core_free(leaf);
    return s;
}

lvn_status lvni_levels_sums_init(lvni_levels_comm *c)
{
    lvni_levels_sums *m = &c->sums;
    const size_t most = (size_t)c->nodes * LVNI_TREE_PENDING;
    lvni_plan_tree_node *leaf = lvni_core_calloc(LVNI_TAG_DIST, most, sizeof *leaf);
    m->trees_of = lvni_core_calloc(LVNI_TAG_DIST, (size_t)c->nodes, sizeof *m->trees_of);
    lvn_status s;
    LVNI_TRY_DONE(s, leaf != NULL && m->trees_of != NULL ? LVN_OK : LVN_ERR_MEMORY);
    int n = 0;
    for (int node = 0; node < c->nodes; node++) {
        const int trees = m->trees_of[node] = trees_of_node(c, node, leaf + n);
        m->most_trees = trees > m->most_trees ? trees : m->most_trees;
        m->n_trees = node == c->node ? trees : m->n_trees;
        for (int k = 0; k < trees && node == c->node; k++) {
            LVNI_TRY_DONE(s, make_tree(c, k, leaf[n + k]));
        }
        n += trees;
    }
    const int ranks = lvni_levels_ranks_of(c, c->node);
    m->source = lvni_core_calloc(LVNI_TAG_DIST, (size_t)(n > ranks ? n : ranks), sizeof *m->source);
    LVNI_TRY_DONE(s, m->source == NULL ? LVN_ERR_MEMORY : lvni_dist_sum_plan_init(&m->all, n));
    lvni_dist_sum_plan_make(&m->all, c->base.world, leaf, n);
done:
    lvni_core_free(leaf);
    return s;
}

void lvni_levels_sums_free(lvni_levels_comm *c)
{
    lvni_levels_sums *m = &c->sums;
    if (m->open) {
        c->inner->ops->region_close(c->inner, &m->region);
    }
    for (int k = 0; k < m->n_trees; k++) {
        lvni_dist_sum_plan_free(&m->tree[k]);
    }
    lvni_dist_sum_plan_free(&m->all);
    lvni_core_free(m->trees_of);
    lvni_core_free(m->source);
}

static lvn_status reserve(void *user, const lvni_dist_region *region)
{
    lvni_levels_comm *c = user;
    lvni_dist_comm *inner = c->inner;
    if (c->local == 0) {
        LVN_TRY(inner->ops->region_reserve(inner, region, region->common,
                                           AT_RESULT + LVNI_LEVELS_STAGE));
    }
    return inner->ops->region_reserve(inner, region, lvni_dist_region_part(region, c->local),
                                      LVNI_LEVELS_STAGE);
}

/* With the first sum of the communicator. */
static lvn_status open_region(lvni_levels_comm *c)
{
    if (c->sums.open) {
        return LVN_OK;
    }
    const lvn_status s =
        lvni_dist_region_share(c->inner, AT_RESULT + LVNI_LEVELS_STAGE, LVNI_LEVELS_STAGE, reserve,
                               c, "the memory of sums", &c->sums.region);
    c->sums.open = s == LVN_OK;
    return s == LVN_ERR_MEMORY ? lvni_levels_no_memory(c, "sums over nodes") : s;
}

/* This channel's elements [from, to) of what the ranks of all nodes have in their stages. */
static lvn_status add_slice(lvni_levels_comm *c, int64_t from, int64_t to, lvn_dtype dtype,
                            lvni_dist_reduce how)
{
    lvni_levels_sums *m = &c->sums;
    const size_t bytes = (size_t)(to - from) * lvn_dtype_size(dtype),
                 node = bytes * (size_t)m->most_trees;
    if (bytes == 0) {
        return LVN_OK; /* on all nodes */
    }
    char *all = lvni_levels_scratch(c, 0, node * (size_t)c->nodes);
    if (all == NULL) {
        return lvni_levels_no_memory(c, "sums over nodes");
    }
    char *mine = all + (size_t)c->node * node;
    memset(mine, 0, node);
    for (int k = 0; k < m->n_trees; k++) {
        for (int i = 0; i < m->tree[k].n_sources; i++) {
            m->source[i] = lvni_dist_region_part(&m->region, m->first_of_tree[k] + i);
        }
        lvni_dist_sum_run_to(&m->tree[k], m->source, from, mine + (size_t)k * bytes, to - from,
                             dtype, how);
    }
    LVN_TRY(c->outer->ops->all_gather(c->outer, mine, node, all));
    int n = 0;
    for (int i = 0; i < c->nodes; i++) {
        for (int k = 0; k < m->trees_of[i]; k++) {
            m->source[n++] = all + (size_t)i * node + (size_t)k * bytes;
        }
    }
    lvni_dist_sum_run_to(&m->all, m->source, 0,
                         m->region.common + AT_RESULT + (size_t)from * lvn_dtype_size(dtype),
                         to - from, dtype, how);
    return LVN_OK;
}

/* n elements that fit a stage. A rank reads the result before it arrives in the next step, and its
 * stage has been read when it leaves this one. `half`: bf16 or f16, added in f32. */
static lvn_status reduce_stage(lvni_levels_comm *c, const char *in, char *out, int64_t n,
                               lvn_dtype dtype, lvni_dist_reduce how)
{
    const bool half = lvn_dtype_size(dtype) == 2;
    const size_t bytes = (size_t)n * lvn_dtype_size(dtype);
    char *stage = lvni_dist_region_part(&c->sums.region, c->local),
         *result = c->sums.region.common + AT_RESULT;
    if (half) {
        lvni_dist_combine_widen((float *)(void *)stage, in, n, dtype);
    } else {
        memcpy(stage, in, bytes);
    }
    LVN_TRY(c->inner->ops->barrier(c->inner));
    if (c->outer != NULL) {
        LVN_TRY(add_slice(c, lvni_dist_slice_begin(n, c->channels, c->local),
                          lvni_dist_slice_begin(n, c->channels, c->local + 1),
                          half ? LVN_F32 : dtype, how));
    }
    LVN_TRY(c->inner->ops->barrier(c->inner));
    if (out != NULL && half) {
        lvni_dist_combine_narrow(out, (const float *)(void *)result, n, dtype);
    } else if (out != NULL) {
        memcpy(out, result, bytes);
    }
    return LVN_OK;
}

/* out NULL: this rank does not need the sum. */
static lvn_status all_reduce(lvni_levels_comm *c, const char *in, char *out, int64_t n,
                             lvn_dtype dtype, lvni_dist_reduce how)
{
    const size_t size = lvn_dtype_size(dtype);
    const int64_t most = LVNI_LEVELS_STAGE / (int64_t)(size == 2 ? sizeof(float) : size);
    LVN_TRY(open_region(c));
    for (int64_t at = 0; at < n; at += most) {
        const size_t offset = (size_t)at * size;
        LVN_TRY(reduce_stage(c, in + offset, out != NULL ? out + offset : NULL,
                             n - at < most ? n - at : most, dtype, how));
    }
    return LVN_OK;
}

lvn_status lvni_levels_all_reduce(lvni_dist_comm *comm, const void *in, void *out, int64_t n,
                                  lvn_dtype dtype, lvni_dist_reduce how)
{
    lvni_levels_comm *c = lvni_levels(comm);
    return lvni_levels_spread(c, all_reduce(c, in, out, n, dtype, how));
}

/* ---- who gets what exactly one rank has to do ---- */

/* On the lowest node that has ranks left. A channel knows of its own counterparts only: a node
 * takes over when all its channels have seen those of the nodes below end, which each finds out
 * when it asks. */
bool lvni_levels_claim(lvni_dist_comm *comm, bool cut_off)
{
    lvni_levels_comm *c = lvni_levels(comm);
    if (c->outer == NULL) {
        return false;
    }
    const bool lowest = c->outer->ops->claim(c->outer, cut_off);
    if (c->node == 0) { /* a node that takes over later sees that its channel has claimed */
        return c->inner->ops->claim(c->inner, cut_off);
    }
    if (!c->sums.open || c->channels > MAX_SEEN) {
        return false;
    }
    _Atomic char *seen = (_Atomic char *)(void *)c->sums.region.common;
    if (lowest) {
        atomic_store(&seen[c->local], 1);
    }
    for (int i = 0; i < c->channels; i++) {
        if (atomic_load(&seen[i]) == 0) {
            return false;
        }
    }
    return c->inner->ops->claim(c->inner, cut_off);
}
