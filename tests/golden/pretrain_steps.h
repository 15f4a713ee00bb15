/* What goldens of pretraining share: the views of each step by the rule of their scripts, one
 * micro-batch of them, and steps by the recipe's own keys. */
#ifndef TESTS_PRETRAIN_STEPS_H
#define TESTS_PRETRAIN_STEPS_H

#include "golden_support.h"
#include "trainer_support.h"

#include "recipes/pretrain/pretrain.h"

enum {
    PRETRAIN_BATCH = 8,
    PRETRAIN_SIDE = 32,
    PRETRAIN_LOCAL_SIDE = 16, /* of small views, unless given */
    PRETRAIN_STEPS = 20
};

/* Of each step its own views, an epoch having one step; `n` large ones of `side` pixels, a multiple
 * of 8, and `n_local` small ones. */
typedef struct pretrain_views {
    memory base; /* first */
    int n, side, n_local, local_side;
    lvn_tensor *image, *noise, *local;
} pretrain_views;
void pretrain_views_open(pretrain_views *v, uint64_t seed);
void pretrain_views_close(pretrain_views *v);

/* Runs the tests with the file that argv names, in *file. Returns the exit status. */
int pretrain_golden_main(int argc, char **argv, lvni_ckpt_st_file **file);

/* Weights and buffers by the rule, those that follow others, too; a centre and a queue have zeros.
 */
void pretrain_fill(lvni_nn_model *m, uint64_t seed);

/* Forward and backward of the views of step 0, of these sizes, numbers of the model being `number`
 * (NULL: it has none). Returns the loss. */
double pretrain_micro_batch(const lvni_nn_model *m, lvni_nn_set *set, uint64_t seed,
                            pretrain_views views, const double *number);

/* Steps with these arguments, up to a NULL, of method=; what follows from the number of images
 * follows from `images`. The file has losses, rates, and under grad/ what becomes of weights. */
typedef struct pretrain_steps {
    const lvni_ckpt_st_file *file;
    const char *name; /* steps/NAME/ in the file */
    const char *const *arguments;
    int64_t images;
    int n, side, n_local, local_side, parts; /* n, side, local_side 0: 2, as above */
    double tolerance;                        /* of changes of weights */
} pretrain_steps;
void pretrain_steps_compare(const pretrain_steps *s);

#endif
