/* One rank's part of `predict` and `eval`: its chunks of the data through the model, the rows of
 * all to rank 0. Called by classify_predict.c. */
#ifndef LEVIN_RECIPES_PREDICT_RANK_H
#define LEVIN_RECIPES_PREDICT_RANK_H

#include "core/config.h"
#include "recipes/exported.h"
#include "recipes/ranks.h"
#include "trainer/trainer.h"

typedef struct lvni_recipes_predict_work {
    const lvni_core_config *config;
    const lvn_dataset *data;               /* shared by the ranks of a process */
    const lvni_recipes_exported *exported; /* the rank's own, on its device */
    lvni_trainer_predict_row row;          /* on rank 0, in the order of the data */
    void *user;
} lvni_recipes_predict_work;

/* A collective of the ranks. Warns, on rank 0, of the samples that no rank could read. */
lvn_status lvni_recipes_predict_rank(const lvni_recipes_predict_work *work,
                                     const lvni_recipes_rank *rank);

#endif
