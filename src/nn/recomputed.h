/* Which calls of lvn_forward are recomputed in the backward pass (the key recompute=;
 * autograd/recompute.h is how). Set by run/fit.c before a model is trained or measured. */
#ifndef LEVIN_NN_RECOMPUTED_H
#define LEVIN_NN_RECOMPUTED_H

#include "nn/model.h"

/* "all": the network's blocks, and the modules outside of them; else patterns over the paths of
 * modules, which `matches` compares, the outermost ones; "none", or n 0: none. LVN_ERR_USAGE: a
 * pattern names no module. */
lvn_status lvni_nn_model_recompute(lvni_nn_model *model, const char *const *pattern, size_t n,
                                   bool (*matches)(const char *pattern, const char *path));

#endif
