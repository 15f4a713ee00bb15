/* The fixed tree (tree.h). The walk keeps a stack of nodes that wait for their right neighbour and
 * merges the two top ones when, and only when, they are the two halves of one node. */
#include "plan/tree.h"

int64_t lvni_plan_tree_split(int64_t n)
{
    int64_t p = 1;
    while (p < n - p) { /* 2p < n without overflow */
        p *= 2;
    }
    return p;
}

/* Are [a, b) and [b, c) the two halves of one node of the tree over n? Descend to the node that
 * begins and ends there. */
static bool are_halves(int n, int a, int b, int c)
{
    int lo = 0, hi = n;
    while (hi - lo > 1) {
        const int middle = lo + (int)lvni_plan_tree_split(hi - lo);
        if (lo == a && hi == c) {
            return middle == b;
        }
        if (c <= middle) {
            hi = middle;
        } else if (a >= middle) {
            lo = middle;
        } else {
            return false; /* the range crosses the border of two nodes */
        }
    }
    return false;
}

void lvni_plan_tree_init(lvni_plan_tree *tree, int n, int begin, int end)
{
    tree->n = n;
    tree->begin = begin;
    tree->end = end;
    tree->next = begin;
    tree->n_pending = 0;
}

int lvni_plan_tree_push(lvni_plan_tree *tree, int slot,
                        lvni_plan_tree_merge merges[LVNI_TREE_PENDING])
{
    int n_merges = 0;
    lvni_plan_tree_node node = {tree->next, tree->next + 1, slot};
    tree->next++;
    while (tree->n_pending > 0) {
        const lvni_plan_tree_node left = tree->pending[tree->n_pending - 1];
        if (!are_halves(tree->n, left.begin, node.begin, node.end)) {
            break;
        }
        if (left.slot != LVNI_TREE_EMPTY && node.slot != LVNI_TREE_EMPTY) {
            merges[n_merges++] = (lvni_plan_tree_merge){.into = left.slot, .from = node.slot};
        }
        node.begin = left.begin;
        node.slot = left.slot != LVNI_TREE_EMPTY ? left.slot : node.slot;
        tree->n_pending--;
    }
    tree->pending[tree->n_pending++] = node;
    return n_merges;
}

int lvni_plan_tree_owed(int n, int begin, int end)
{
    lvni_plan_tree tree;
    lvni_plan_tree_merge merges[LVNI_TREE_PENDING];
    lvni_plan_tree_init(&tree, n, begin, end);
    while (tree.next < end) {
        lvni_plan_tree_push(&tree, tree.next, merges);
    }
    return tree.n_pending;
}

int lvni_plan_tree_waiting(int n, int begin, int end)
{
    lvni_plan_tree tree;
    lvni_plan_tree_merge merges[LVNI_TREE_PENDING];
    int most = 0;
    lvni_plan_tree_init(&tree, n, begin, end);
    while (tree.next < end) {
        /* while micro-batch `next` runs */
        most = tree.n_pending > most ? tree.n_pending : most;
        lvni_plan_tree_push(&tree, tree.next, merges);
    }
    return most;
}
