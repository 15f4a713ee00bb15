/* The gradient of one optimizer step over all ranks (docs/reproducibility.md): every micro-batch's
 * set of n floats (gradients, then records of buffers) is added in the one fixed tree over
 * micro-batch numbers, whatever rank worked on it. A rank owns a contiguous run of micro-batches
 * and holds leaves: nodes of the tree, each the sum over micro-batches [begin, end), in one of its
 * sets. All leaves of all ranks together make up the tree (micro-batches without samples have
 * none). The flat sets are cut into buckets; a bucket that is final in all leaves of all ranks is
 * added while other buckets are still being computed: each rank adds its slices of it, reading
 * everyone's leaves, into the one shared total.
 *
 * A step:
 *     lvni_dist_reduction_begin(r, leaves, n)      before the last micro-batches' backward pass:
 *       which nodes there will be, in which sets
 *     lvni_dist_reduction_ready(r, b)              by the lane that finished bucket b last, in any
 *       order of buckets
 *     lvni_dist_reduction_help(r)                  by any lane between two pieces of its own work,
 *       and while others wait
 *     lvni_dist_reduction_finish(r, message, bytes) by the trainer's thread: the total is whole
 *     read total, partial, messages; update the weights
 * The next begin may come at once. What others still read is never overwritten: sets may be written
 * again after finish, the total, partials and messages stay until this rank's next ready or finish.
 * Sets and total are host memory.
 *
 * With `parts` the slices of a rank are its part of the norm's floats, one contiguous range
 * (lvni_plan_exchange_part, or `border`): it has the total of that part and of what is
 * behind the norm's floats, and the rest of its total is undefined. All have all partial sums.
 *
 * One rank (self/) goes through the same calls without a copy: its leaves are added in place in
 * finish, the total is the first leaf's set, and sets may be the caller's, also on a device. */
#ifndef LEVIN_DIST_REDUCTION_H
#define LEVIN_DIST_REDUCTION_H

#include "dist/comm.h"
#include "plan/plan.h"
#include "plan/tree.h"

typedef struct lvni_dist_reduction lvni_dist_reduction;
typedef struct lvni_dist_reduction_ops lvni_dist_reduction_ops;

/* partial[i] = the sum of squares, in the fixed order, over block i of LVNI_REDUCTION_BLOCK floats
 * (kernels/flat.h has the only one; this folder does not see kernels). */
typedef void (*lvni_dist_reduction_sumsq)(const float *g, int64_t n, double *partial);
enum { LVNI_REDUCTION_BLOCK = 4096 };

/* into += from; for the sets of the caller's, which may lie on a device (kernels/flat.h) */
typedef void (*lvni_dist_reduction_adding)(float *into, const float *from, int64_t n);

typedef struct lvni_dist_reduction_options {
    int micro_batches; /* S */
    int begin, end;    /* of them this rank's; only nodes in two levels need to know (levels/) */
    int sets;          /* of this rank; ranks may differ */
    int64_t n;         /* floats of a set */
    int64_t n_norm;    /* the first n_norm of them go into the norm */
    /* floats, a multiple of LVNI_REDUCTION_BLOCK; ranks agree. 0: all in one */
    int64_t bucket;
    bool parts; /* the total stays with the rank that adds it; ranks agree */
    /* with parts: world + 1 borders of the ranks' parts (plan/exchange.h), which stay until the
     * reduction is destroyed; ranks agree. NULL: equal parts. Not in two levels */
    const int64_t *border;
    size_t message; /* the most bytes of a rank's message in a step; ranks agree */
    lvni_dist_reduction_sumsq sumsq;
    /* where the partial sums of all blocks go, which may be memory of a device that sumsq writes;
     * NULL: the reduction has its own. As `set` */
    double *partial;
    /* The caller's memory for the sets, and how to add there; NULL: the reduction has its own. Only
     * of a transport that reads any memory (lvni_dist_comm_reads_any). */
    float *const *set;
    lvni_dist_reduction_adding add;
} lvni_dist_reduction_options;

/* A collective. LVN_ERR_MEMORY before anything was promised. */
lvn_status lvni_dist_reduction_create(lvni_dist_comm *comm,
                                      const lvni_dist_reduction_options *options,
                                      lvni_dist_reduction **out);
/* not a collective; NULL is fine; before the communicator */
void lvni_dist_reduction_destroy(lvni_dist_reduction *r);

/* n floats; of the reduction's own sets zero at first, 64-byte aligned */
float *lvni_dist_reduction_set(lvni_dist_reduction *r, int i);
int lvni_dist_reduction_buckets(const lvni_dist_reduction *r);
lvni_plan_range lvni_dist_reduction_bucket(const lvni_dist_reduction *r, int b); /* in floats */

/* From the next begin on only floats [begin, end) of the norm's, on borders of blocks, are added,
 * and those behind the norm's; the rest of total and partials is undefined. Ranks agree; between
 * finish and begin. At first all are. */
void lvni_dist_reduction_use(lvni_dist_reduction *r, int64_t begin, int64_t end);
/* leaf: ascending, slot = number of the set; copied. n_leaves 0: none of this rank's micro-batches
 * has samples. Waits for nothing. */
lvn_status lvni_dist_reduction_begin(lvni_dist_reduction *r, const lvni_plan_tree_node *leaf,
                                     int n_leaves);
/* Bucket b is final in all leaves of this rank. Once per bucket and step, any thread; finish does
 * it for those left. */
void lvni_dist_reduction_ready(lvni_dist_reduction *r, int b);
/* Add one piece of what is ready everywhere and is this rank's to add. false: nothing to do right
 * now. Never waits; any threads at once. */
bool lvni_dist_reduction_help(lvni_dist_reduction *r);
/* All that is left of the step is ready: sends the message of `bytes` bytes to all ranks, then
 * helps and waits until the total is complete. Threads that help meanwhile make it quicker.
 * LVN_ERR_PEER as all of comm.h. */
lvn_status lvni_dist_reduction_finish(lvni_dist_reduction *r, const void *message, size_t bytes);

/* n floats; NULL: no rank had a leaf. Read it only, unless world is 1. */
float *lvni_dist_reduction_total(lvni_dist_reduction *r);
/* one per block of n_norm floats */
const double *lvni_dist_reduction_partial(lvni_dist_reduction *r);
const void *lvni_dist_reduction_get_message(lvni_dist_reduction *r, int rank, size_t *bytes);

/* Where the time of the last step went, for bench/ and the log. */
typedef struct lvni_dist_reduction_times {
    uint64_t waited_ns;           /* in finish, with nothing to do */
    uint64_t added_ns;            /* adding, all threads together */
    int64_t pieces, pieces_early; /* early: before finish */
} lvni_dist_reduction_times;
lvni_dist_reduction_times lvni_dist_reduction_last(const lvni_dist_reduction *r);

#endif
