/* The parts of the loop that stand in files of their own. For this folder. */
#ifndef LEVIN_TRAINER_LOOP_IMPL_H
#define LEVIN_TRAINER_LOOP_IMPL_H

#include "trainer/trainer.h"

/* step.c: forward and backward of one micro-batch; the thread's context is the lane's. Looks at
 * options, position, phase and scaler alone. */
lvn_status lvni_trainer_run_micro_batch(const lvni_trainer *t, lvni_trainer_micro_batch_job *job);

/* update.c */
/* A micro-batch's loss goes into the backward pass times its weight and this, which divides the
 * summed gradient again: 1, and in 16-mixed the loss scale over the samples of the largest
 * micro-batch. f16 gradients are then those of scale x mean loss in a micro-batch of that size, and
 * per sample the same in a smaller one. In the seed and not in the merge: a coupled micro-batch's
 * gradient goes on into other micro-batches'. */
double lvni_trainer_loss_factor(const lvni_trainer *t);
/* Weights, buffers and optimizer state of the current phase, from its summed gradient. */
lvn_status lvni_trainer_update(lvni_trainer *t, const lvni_nn_set *total,
                               lvni_trainer_step_result *r);
/* After the last phase: the average, the loss scale. */
lvn_status lvni_trainer_end_updates(lvni_trainer *t, const lvni_trainer_step_result *r);

/* loop_checkpoints.c */
/* Is this epoch the best so far? By val/acc, then val/loss, then train/loss, whichever the module
 * reports first; notes the score. */
bool lvni_trainer_loop_improved(lvni_trainer *t, bool validated);
/* Begins to write checkpoints/last and the exported model; best: these are the best ones, too.
 * Weights that are not finite are never saved. */
lvn_status lvni_trainer_loop_save(lvni_trainer *t, bool best);
/* A signal asked for the end: save (unless `saved`), and report where the run can go on. Never
 * LVN_OK. */
lvn_status lvni_trainer_loop_stop(lvni_trainer *t, int signal_number, bool saved);
/* An error between steps: save what was learned before it, and add to the error where the run can
 * go on. Returns `failed`. */
lvn_status lvni_trainer_loop_save_on_error(lvni_trainer *t, lvn_status failed);
/* t->signal: what asked any rank to stop so far. A collective. */
lvn_status lvni_trainer_loop_agree_stop(lvni_trainer *t);
/* This rank has failed with the thread's last error: the others stop waiting for it. An
 * error that another rank began is not sent on. */
void lvni_trainer_loop_report_ranks(lvni_trainer *t, lvn_status failed);
/* After a value that is not finite: add to the error what is left to go on from. */
void lvni_trainer_loop_report_last_good(lvni_trainer *t);

/* unused.c */
lvn_status lvni_trainer_unused_watch(lvni_trainer *t);
/* of a micro-batch with samples, before others are merged into it */
void lvni_trainer_unused_note(lvni_trainer *t, const lvni_nn_set *set);
/* t->graded is about all micro-batches of all ranks */
void lvni_trainer_unused_end_phase(lvni_trainer *t);
/* after a step; the first one counts */
void lvni_trainer_unused_report(lvni_trainer *t);

/* validate.c */
lvn_status lvni_trainer_loop_validate(lvni_trainer *t);             /* result in t->last_val */
void lvni_trainer_loop_report_unreadable(lvni_data_loader *loader); /* rank 0; the others: */
lvn_status lvni_trainer_loop_note_unreadable(lvni_data_loader *loader,
                                             lvni_trainer_message *message);
/* With on_error=skip: LVN_ERR_CORRUPT when no sample at all could be read. */
lvn_status lvni_trainer_loop_check_readable(const lvni_trainer *t);

#endif
