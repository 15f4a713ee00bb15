/* A step of a model in stages (strategy=balance), of ranks that are threads of one process: each
 * runs the passes of all micro-batches, one forward, one backward (plan/stage_order.h), computes
 * what is of its stage (autograd/placing.h), and merges gradients in the tree as a single rank
 * does; then all get each other's part of the total, which is that of a single rank, bit by bit.
 * Weights, optimizer and averages are whole on every rank. Called by the engine. */
#ifndef LEVIN_TRAINER_STAGES_H
#define LEVIN_TRAINER_STAGES_H

#include "trainer/engine.h"
#include "trainer/units.h"

/* LVN_ERR_UNSUPPORTED: what does not go in stages so far. */
lvn_status lvni_trainer_stages_check(const lvni_trainer_engine_options *options);
/* A collective, when the engine has everything else. */
lvn_status lvni_trainer_stages_create(lvni_trainer_engine *engine, lvni_trainer_stages **out);
void lvni_trainer_stages_destroy(lvni_trainer_stages *stages); /* NULL is fine */

/* All micro-batches of the step, into the tree. */
lvn_status lvni_trainer_stages_run(lvni_trainer_engine *engine);
/* What the ranks report, and the gradients and records of each one's stage into `total` of all
 * (NULL: no micro-batch had samples). */
lvn_status lvni_trainer_stages_exchange(lvni_trainer_engine *engine, const lvni_nn_set *total);
/* Of the step that was exchanged. */
const void *lvni_trainer_stages_reported(const lvni_trainer_stages *stages, int rank,
                                         size_t *bytes);
/* Sums of squares of the total's gradients, block by block. */
const double *lvni_trainer_stages_blocks(const lvni_trainer_stages *stages);

#endif
