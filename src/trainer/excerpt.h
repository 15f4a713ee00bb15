/* The beginning of a run, for finders. */
#ifndef LEVIN_TRAINER_EXCERPT_H
#define LEVIN_TRAINER_EXCERPT_H

#include "trainer/trainer.h"

/* As lvni_trainer_fit, of which this is a part: of each epoch the first `steps` steps and the last
 * two, and so many epochs, with two steps of the next one. loop.c */
lvn_status lvni_trainer_fit_excerpt(lvni_trainer *trainer, int64_t steps, int64_t epochs);

#endif
