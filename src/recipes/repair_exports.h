/* After a kill between a checkpoint and what is made of it: `best` beside `last`, and the exported
 * models, are as if there had been none. */
#ifndef LEVIN_RECIPES_REPAIR_EXPORTS_H
#define LEVIN_RECIPES_REPAIR_EXPORTS_H

#include "ckpt/checkpoint.h"
#include "nn/model.h"

typedef struct lvni_recipes_repair_options {
    const char *dir; /* of the run */
    /* the checkpoint that the run resumes from: it is whole, so best may be linked to it */
    const lvni_ckpt *loaded;
    const lvni_nn_model *model; /* for names, shapes and places; its weights are not used */
    bool use_ema;               /* averages are exported where the checkpoint has them */
    /* As the trainer calls it (trainer.h): makes exported_models/exported_<name>. */
    lvn_status (*export_model)(void *user, const char *name, const float *values, int64_t step);
    void *user;
} lvni_recipes_repair_options;

/* Logs each file that it makes, and each that a checkpoint cannot give (damaged, of another
 * model), which stays as it is; an export that cannot be written is an error. */
lvn_status lvni_recipes_repair_exports(const lvni_recipes_repair_options *repair);

#endif
