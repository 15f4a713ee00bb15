/* Samples that could not be read, over all ranks: what each has noted (data/unreadable.h) counts on
 * all of them alike, after a step or an evaluation. Called by the engine, evaluation and
 * prediction. */
#ifndef LEVIN_TRAINER_LEFT_OUT_H
#define LEVIN_TRAINER_LEFT_OUT_H

#include "data/unreadable.h"
#include "dist/comm.h"

/* How many of n samples a run leaves out: 0: none, -1: any number. photos: whose headers the start
 * of a training reads. */
int64_t lvni_trainer_unreadable_limit(bool skips, bool photos, int64_t n);
/* What the ranks of `comm` (NULL: one) have noted counts from `step` on. A collective. When one is
 * too many, all fail at once: the rank that could not read it with its error, the others as after
 * any failure of that rank. */
lvn_status lvni_trainer_unreadable_settle(lvni_data_unreadable *unreadable, lvni_dist_comm *comm,
                                          int64_t step);

#endif
