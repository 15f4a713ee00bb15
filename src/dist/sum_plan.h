/* Adding what several ranks have, in the fixed tree (plan/tree.h): first a list of additions, made
 * once, then the list is run over a piece after another, block by block, so that what lies between
 * two additions stays in the nearest cache. */
#ifndef LEVIN_DIST_SUM_PLAN_H
#define LEVIN_DIST_SUM_PLAN_H

#include "dist/comm.h"
#include "plan/tree.h"

enum {
    LVNI_SUM_BLOCK = 4096,   /* bytes that one step takes at once */
    LVNI_SUM_REGISTERS = 32, /* deeper than any tree over 2^31 micro-batches */
    LVNI_SUM_OUT = -1
};

/* into = a + b. An operand below n_sources is that source, others are register (operand -
 * n_sources); into is a register or LVNI_SUM_OUT. */
typedef struct lvni_dist_sum_step {
    int32_t into, a, b;
} lvni_dist_sum_step;

typedef struct lvni_dist_sum_plan {
    int n_sources, n_steps; /* n_sources - 1, 0 for none */
    int room;               /* sources that fit */
    lvni_dist_sum_step *step;
} lvni_dist_sum_plan;

lvn_status lvni_dist_sum_plan_init(lvni_dist_sum_plan *plan, int room);
void lvni_dist_sum_plan_free(lvni_dist_sum_plan *plan);
/* leaf: nodes of the tree over n that do not overlap, ascending; source i is the sum over leaf[i].
 * At most `room`. */
void lvni_dist_sum_plan_make(lvni_dist_sum_plan *plan, int n, const lvni_plan_tree_node *leaf,
                             int n_leaves);
/* Is [begin, end) a node of the tree over n? */
bool lvni_dist_sum_is_node(int n, int begin, int end);

/* The first of n elements that `rank` adds, whole cache lines of all types; n for rank `world`. */
int64_t lvni_dist_slice_begin(int64_t n, int world, int rank);

/* out = the sum of every source, in the elements [first, first + n). out may be one of the sources.
 * 16-bit floats are added in f32 and rounded once. Denormals are flushed. Without sources nothing
 * is written. */
void lvni_dist_sum_run(const lvni_dist_sum_plan *plan, void *const *source, void *out,
                       int64_t first, int64_t n, lvn_dtype dtype, lvni_dist_reduce how);
/* The same with the sum of element `first` in to[0]. */
void lvni_dist_sum_run_to(const lvni_dist_sum_plan *plan, void *const *source, int64_t first,
                          void *to, int64_t n, lvn_dtype dtype, lvni_dist_reduce how);

#endif
