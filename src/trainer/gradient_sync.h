/* The gradient of a step over all ranks, as the trainer sees it: which buckets of the flat sets are
 * final while the backward pass still runs, and the total in the end. There is one when the run has
 * more than one rank; a rank alone adds its sets itself (waves.c).
 *
 * In host memory the micro-batches of a step's last wave are not merged: the reduction reads the
 * lanes' own sets, bucket by bucket, as soon as a bucket is final in all of them. Sets on a device
 * are merged there, and copied to the host in one go. */
#ifndef LEVIN_TRAINER_GRADIENT_SYNC_H
#define LEVIN_TRAINER_GRADIENT_SYNC_H

#include "dist/reduction.h"
#include "nn/model.h"
#include "optim/optim.h"

typedef struct lvni_trainer_gradient_sync lvni_trainer_gradient_sync;

typedef struct lvni_trainer_gradient_sync_options {
    lvni_dist_comm *comm;
    const lvni_nn_model *model; /* borrowed */
    int micro_batches;          /* S of the run */
    int sets;                   /* of this rank */
    int lanes;
    int64_t bucket_bytes;
    size_t message; /* the most bytes of a rank's message */
} lvni_trainer_gradient_sync_options;

/* A collective. */
lvn_status lvni_trainer_gradient_sync_create(const lvni_trainer_gradient_sync_options *options,
                                             lvni_trainer_gradient_sync **out);
/* the sets first; NULL is fine */
void lvni_trainer_gradient_sync_destroy(lvni_trainer_gradient_sync *gradient_sync);
/* Gradient set i of this rank; destroyed by the caller. */
lvn_status lvni_trainer_gradient_sync_make_set(lvni_trainer_gradient_sync *gradient_sync, int i,
                                               lvni_nn_set **out);
/* Sets lie on a device: nothing can be read before the step's end, and the micro-batches of the
 * last wave are merged like all others. */
bool lvni_trainer_gradient_sync_merges(const lvni_trainer_gradient_sync *gradient_sync);

/* Between steps: from here on only what the model trains (trained_begin, trained_end) is added, and
 * the rest of the total is undefined. */
void lvni_trainer_gradient_sync_use_trained(lvni_trainer_gradient_sync *gradient_sync);
/* Before the last wave: the nodes of this rank, among them the wave's `active` micro-batches that
 * have samples. Not for a reducer that merges. */
lvn_status lvni_trainer_gradient_sync_open(lvni_trainer_gradient_sync *gradient_sync,
                                           const lvni_plan_tree_node *leaf, int n_leaves,
                                           int active);
/* Around a micro-batch of the last wave, on its lane. */
void lvni_trainer_gradient_sync_watch(lvni_trainer_gradient_sync *gradient_sync, int lane,
                                      lvni_nn_set *set);
void lvni_trainer_gradient_sync_micro_batch_done(lvni_trainer_gradient_sync *gradient_sync,
                                                 int lane);
/* A reducer that merges: what this rank owes, in `set`. */
lvn_status lvni_trainer_gradient_sync_stage(lvni_trainer_gradient_sync *gradient_sync,
                                            const lvni_plan_tree_node *leaf, int n_leaves,
                                            lvni_nn_set *const *set);
/* Send `bytes` bytes to all ranks, and wait for the total. *total: over all micro-batches of all
 * ranks, without its weight; NULL: no micro-batch had samples. Until the next step. */
lvn_status lvni_trainer_gradient_sync_finish(lvni_trainer_gradient_sync *gradient_sync,
                                             const void *message, size_t bytes,
                                             lvni_nn_set **total);
const void *lvni_trainer_gradient_sync_reported(lvni_trainer_gradient_sync *gradient_sync, int rank,
                                                size_t *bytes);
/* Sums of squares of the total's gradients, block by block, for lvni_optim_norm_of_blocks. */
const double *lvni_trainer_gradient_sync_blocks(lvni_trainer_gradient_sync *gradient_sync);
lvni_dist_reduction_times
lvni_trainer_gradient_sync_times(const lvni_trainer_gradient_sync *gradient_sync);

#endif
