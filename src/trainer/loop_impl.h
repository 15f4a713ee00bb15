/* The parts of the loop that stand in files of their own. For this folder. */
#ifndef LEVIN_TRAINER_LOOP_IMPL_H
#define LEVIN_TRAINER_LOOP_IMPL_H

#include "trainer/trainer.h"

/* step.c: forward and backward of one shard; the thread's context is the lane's. Looks at options,
 * position, phase and scaler alone. */
lvn_status lvni_trainer_run_shard(const lvni_trainer *t, lvni_shard_job *job);

/* update.c */
/* A shard's loss goes into the backward pass times its weight and this, which divides the summed
 * gradient again: 1, and in 16-mixed the loss scale over the samples of the largest shard. f16
 * gradients are then those of scale x mean loss in a shard of that size, and per sample the same in
 * a smaller one. In the seed and not in the merge: a coupled shard's gradient goes on into other
 * shards'. */
double lvni_trainer_loss_factor(const lvni_trainer *t);
/* Weights, buffers and optimizer state of the phase in work, from its summed gradient. */
lvn_status lvni_trainer_update(lvni_trainer *t, const lvni_set *total, lvni_step_result *r);
/* After the last phase: the average, the loss scale. */
lvn_status lvni_trainer_end_updates(lvni_trainer *t, const lvni_step_result *r);

/* keep.c */
/* Is this epoch the best so far? By val/acc, then val/loss, then train/loss, whichever the module
 * reports first; notes the score. */
bool lvni_loop_improved(lvni_trainer *t, bool validated);
/* Begins to write checkpoints/last and the exported model; best: these are the best ones, too.
 * Weights that are not finite are never saved. */
lvn_status lvni_loop_save(lvni_trainer *t, bool best);
/* A signal asked for the end: save (unless `saved`), and say where the run can go on. Never
 * LVN_OK. */
lvn_status lvni_loop_stop(lvni_trainer *t, int signal_number, bool saved);
/* An error between steps: save what was learned before it, and add to the error where the run can
 * go on. Returns `failed`. */
lvn_status lvni_loop_keep(lvni_trainer *t, lvn_status failed);
/* t->signal: what asked any rank to stop so far. A collective. */
lvn_status lvni_loop_agree_stop(lvni_trainer *t);
/* This rank has failed with the thread's last error: the others stop waiting for it. What another
 * rank began is not told on. */
void lvni_loop_tell_ranks(lvni_trainer *t, lvn_status failed);
/* After a value that is not finite: add to the error what is left to go on from. */
void lvni_loop_tell_last_good(lvni_trainer *t);

/* unused.c */
lvn_status lvni_unused_watch(lvni_trainer *t);
/* of a shard with samples, before others are merged into it */
void lvni_unused_note(lvni_trainer *t, const lvni_set *set);
void lvni_unused_end_phase(lvni_trainer *t); /* t->graded is about all shards of all ranks */
/* after a step; the first one counts */
void lvni_unused_tell(lvni_trainer *t);

/* validate.c */
lvn_status lvni_loop_validate(lvni_trainer *t);      /* result in t->last_val */
void lvni_loop_tell_unreadable(lvni_loader *loader); /* rank 0; the others: */
lvn_status lvni_loop_note_unreadable(lvni_loader *loader, lvni_message *message);
/* With on_error=skip: LVN_ERR_CORRUPT when no sample at all could be read. */
lvn_status lvni_loop_check_readable(const lvni_trainer *t);

#endif
