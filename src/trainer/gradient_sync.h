/* The gradient of a step over all micro-batches of all ranks, as the trainer sees it. It owns the
 * gradient sets of this rank: a micro-batch takes one and gives it back as a leaf of the fixed tree
 * (plan/tree.h), and what is complete is merged. One rank and several take the same way; what
 * differs is the transport (dist/reduction.h).
 *
 * A phase of a step:
 *     lvni_trainer_gradient_sync_begin             all sets are free
 *     for each wave:
 *         lvni_trainer_gradient_sync_take          a set for each micro-batch with samples
 *         lvni_trainer_gradient_sync_wave          which micro-batches these are
 *         lvni_trainer_gradient_sync_watch, _micro_batch_done   on their lanes
 *         lvni_trainer_gradient_sync_leaf          each of them, in their order
 *     lvni_trainer_gradient_sync_finish            the total
 *
 * Leaves of the last wave are not merged: the reduction reads them as they are, with other ranks
 * bucket by bucket, as soon as a bucket is final in all of them. A transport that does not read the
 * memory of a device gets a copy of what is left when all leaves are merged (staged.h: without a
 * wait of the step's thread). */
#ifndef LEVIN_TRAINER_GRADIENT_SYNC_H
#define LEVIN_TRAINER_GRADIENT_SYNC_H

#include "dist/reduction.h"
#include "nn/model.h"
#include "optim/optim.h"

typedef struct lvni_trainer_gradient_sync lvni_trainer_gradient_sync;

typedef struct lvni_trainer_gradient_sync_options {
    lvni_dist_comm *comm;       /* NULL: one rank */
    const lvni_nn_model *model; /* borrowed */
    int micro_batches;          /* S of the run */
    int begin, end;             /* of them this rank's */
    int sets;                   /* of this rank: its lanes, and those that wait in the tree */
    int lanes;
    int64_t bucket_bytes;
    bool parts;     /* a rank needs the total of its part of the weights alone (reduction.h) */
    size_t message; /* the most bytes of a rank's message */
    size_t marks;   /* the same without metrics, with `deferred` */
    /* One rank: sums of squares of all blocks go here, in memory of the device, and nothing waits
     * for them; NULL: lvni_trainer_gradient_sync_blocks has them. */
    double *sums;
    /* Several ranks on devices whose reduction does not read their memory: the step does not wait,
     * and what it finds out goes there. Else NULL. */
    struct lvni_trainer_deferred *deferred;
} lvni_trainer_gradient_sync_options;

/* A collective. */
lvn_status lvni_trainer_gradient_sync_create(const lvni_trainer_gradient_sync_options *options,
                                             lvni_trainer_gradient_sync **out);
void lvni_trainer_gradient_sync_destroy(lvni_trainer_gradient_sync *gradient_sync); /* NULL is
                                                                                       fine */

/* From here on what the model trains (trained_begin, trained_end) is added, and the rest of the
 * total is undefined. */
void lvni_trainer_gradient_sync_begin(lvni_trainer_gradient_sync *gradient_sync);
/* The number of a free set, until it becomes a leaf; LVNI_TREE_EMPTY: there is none. */
int lvni_trainer_gradient_sync_take(lvni_trainer_gradient_sync *gradient_sync);
lvni_nn_set *lvni_trainer_gradient_sync_set(const lvni_trainer_gradient_sync *gradient_sync,
                                            int slot);
/* The next n micro-batches and their sets, before they run; LVNI_TREE_EMPTY: one without samples,
 * which does not run. */
lvn_status lvni_trainer_gradient_sync_wave(lvni_trainer_gradient_sync *gradient_sync,
                                           const int *slot, int n);
/* Around a micro-batch of the wave, on its lane. */
void lvni_trainer_gradient_sync_watch(lvni_trainer_gradient_sync *gradient_sync, int lane,
                                      lvni_nn_set *set);
void lvni_trainer_gradient_sync_micro_batch_done(lvni_trainer_gradient_sync *gradient_sync,
                                                 int lane);
/* The next micro-batch is done, with or without samples. */
void lvni_trainer_gradient_sync_leaf(lvni_trainer_gradient_sync *gradient_sync, int slot);
/* Send `bytes` bytes to all ranks, and wait for the total. *total: over all micro-batches of all
 * ranks, without its weight; NULL: no micro-batch had samples. Until the next phase. */
lvn_status lvni_trainer_gradient_sync_finish(lvni_trainer_gradient_sync *gradient_sync,
                                             const void *message, size_t bytes,
                                             lvni_nn_set **total);
/* One rank: the phase failed half-way, and is done again. */
lvn_status lvni_trainer_gradient_sync_abandon(lvni_trainer_gradient_sync *gradient_sync);
const void *lvni_trainer_gradient_sync_reported(lvni_trainer_gradient_sync *gradient_sync, int rank,
                                                size_t *bytes);
/* Sums of squares of the total's gradients, block by block, for lvni_optim_norm_of_blocks. */
const double *lvni_trainer_gradient_sync_blocks(lvni_trainer_gradient_sync *gradient_sync);
/* Waits until nothing of a step is under way between ranks, for what uses the communicator in
 * between: group syncs. */
lvn_status lvni_trainer_gradient_sync_rest(lvni_trainer_gradient_sync *gradient_sync);
lvni_dist_reduction_times
lvni_trainer_gradient_sync_times(const lvni_trainer_gradient_sync *gradient_sync);

#endif
