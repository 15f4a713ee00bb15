/* A small job for the tests of lvn_trainer: a network with dropout and batch norm on 24 points,
 * 8 others to validate. */
#ifndef LEVIN_TESTS_TRAINER_JOB_H
#define LEVIN_TESTS_TRAINER_JOB_H

#include <levin/levin.h>

extern const lvn_module_class point_net, other_net; /* other_net: of another width */
extern lvn_dataset points, few_points;              /* their destroy only counts */
extern _Atomic int points_destroyed;
/* From this sample of `points` on they cannot be read; -1: all can. */
extern _Atomic int64_t points_end;

/* 6 steps in 2 epochs, validation after each */
#define POINT_JOB                                                                                  \
    (lvn_job)                                                                                      \
    {                                                                                              \
        .module = &point_net, .train = &points, .val = &few_points,                                \
        .options = "max_epochs=2 batch_size=8 micro_batches=4 wgrad_threads=1 optim.lr=1e-2 "      \
                   "num_workers=1"                                                                 \
    }

#endif
