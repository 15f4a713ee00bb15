/* The gradient of a step over all ranks, as the trainer sees it: which buckets of the flat sets are
 * final while the backward pass still runs, and the total in the end. There is one when the run has
 * more than one rank; a rank alone adds its sets itself (step.c).
 *
 * In host memory the shards of a step's last wave are not merged: the reduction reads the lanes'
 * own sets, bucket by bucket, as soon as a bucket is final in all of them. Sets on a device are
 * merged there, and copied to the host in one go. */
#ifndef LEVIN_TRAINER_REDUCER_H
#define LEVIN_TRAINER_REDUCER_H

#include "dist/reduction.h"
#include "nn/model.h"
#include "optim/optim.h"

typedef struct lvni_reducer lvni_reducer;

typedef struct lvni_reducer_options {
    lvni_comm *comm;
    const lvni_model *model; /* borrowed */
    int shards;              /* S of the run */
    int sets;                /* of this rank */
    int lanes;
    int64_t bucket_bytes;
    size_t message; /* the most bytes of a rank's message */
} lvni_reducer_options;

/* A collective. */
lvn_status lvni_reducer_create(const lvni_reducer_options *options, lvni_reducer **out);
void lvni_reducer_destroy(lvni_reducer *reducer); /* the sets first; NULL is fine */
/* Gradient set i of this rank; destroyed by the caller. */
lvn_status lvni_reducer_make_set(lvni_reducer *reducer, int i, lvni_set **out);
/* Sets lie on a device: nothing can be read before the step's end, and the shards of the last wave
 * are merged like all others. */
bool lvni_reducer_merges(const lvni_reducer *reducer);

/* Between steps: from here on only what the model trains (trained_begin, trained_end) is added, and
 * the rest of the total is rubbish. */
void lvni_reducer_use_trained(lvni_reducer *reducer);
/* Before the last wave: the nodes of this rank, among them the wave's `active` shards that have
 * samples. Not for a reducer that merges. */
lvn_status lvni_reducer_open(lvni_reducer *reducer, const lvni_tree_node *leaf, int n_leaves,
                             int active);
/* Around a shard of the last wave, on its lane. */
void lvni_reducer_watch(lvni_reducer *reducer, int lane, lvni_set *set);
void lvni_reducer_shard_done(lvni_reducer *reducer, int lane);
/* A reducer that merges: what this rank owes, in `set`. */
lvn_status lvni_reducer_stage(lvni_reducer *reducer, const lvni_tree_node *leaf, int n_leaves,
                              lvni_set *const *set);
/* Say `bytes` bytes to all, and wait for the total. *total: over all shards of all ranks, without
 * its weight; NULL: no shard had samples. Until the next step. */
lvn_status lvni_reducer_finish(lvni_reducer *reducer, const void *said, size_t bytes,
                               lvni_set **total);
const void *lvni_reducer_said(lvni_reducer *reducer, int rank, size_t *bytes);
/* Sums of squares of the total's gradients, block by block, for lvni_optim_norm_of_blocks. */
const double *lvni_reducer_blocks(lvni_reducer *reducer);
lvni_reduction_times lvni_reducer_times(const lvni_reducer *reducer);

#endif
