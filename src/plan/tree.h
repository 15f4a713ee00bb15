/* The one fixed tree in which everything of a step is added (docs/reproducibility.md): a range of n
 * > 1 numbers is split after its first p, p the largest power of two below n. The trainer walks it
 * over micro-batches (a merge stack, so that a rank holds few gradient sets), norms are summed in
 * it over block numbers. Pure arithmetic: no memory, no threads. */
#ifndef LEVIN_PLAN_TREE_H
#define LEVIN_PLAN_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LVNI_TREE_PENDING = 64, /* a run of micro-batches has at most 2 x 31 nodes waiting */
    LVNI_TREE_EMPTY = -1    /* the slot of a node below which no micro-batch has samples */
};

/* The sum over micro-batches [begin, end), kept in the caller's buffer `slot`. */
typedef struct lvni_plan_tree_node {
    int begin, end;
    int slot;
} lvni_plan_tree_node;

/* buffer `into` += buffer `from`; `from` is free afterwards. */
typedef struct lvni_plan_tree_merge {
    int into, from;
} lvni_plan_tree_merge;

/* The walk of one rank over its micro-batches [begin, end) of n, in ascending order. */
typedef struct lvni_plan_tree {
    int n, begin, end;
    int next;      /* micro-batch to push next; end: the walk is over */
    int n_pending; /* nodes that wait for their right neighbour, left to right; after the walk: the
                      sub-trees owed */
    lvni_plan_tree_node pending[LVNI_TREE_PENDING];
} lvni_plan_tree;

/* The size of the left part of a range of n > 1: the largest power of two below n. */
int64_t lvni_plan_tree_split(int64_t n);

/* 0 <= begin <= end <= n. */
void lvni_plan_tree_init(lvni_plan_tree *tree, int n, int begin, int end);
/* Micro-batch tree->next is done; its sum lies in buffer `slot`, or LVNI_TREE_EMPTY when it had no
 * samples. Writes the merges to do now, in order, and returns how many. A node with an empty half
 * is its other half: no merge, no addition of zeros. */
int lvni_plan_tree_push(lvni_plan_tree *tree, int slot,
                        lvni_plan_tree_merge merges[LVNI_TREE_PENDING]);

/* How many sub-trees of the tree over n the run [begin, end) makes up, when no micro-batch is
 * empty: what its rank owes the others. */
int lvni_plan_tree_owed(int n, int begin, int end);
/* The most nodes that wait while a micro-batch of the run is computed: buffers needed beside those
 * of the running micro-batches. ceil(log2 n) for the whole range. */
int lvni_plan_tree_waiting(int n, int begin, int end);

#endif
