/* What the recipe `classify` (classify.c) does with a trained model, for its row of the registry.
 */
#ifndef LEVIN_RECIPES_CLASSIFY_CLASSIFY_H
#define LEVIN_RECIPES_CLASSIFY_CLASSIFY_H

#include "run/recipe.h"

extern const lvni_run_recipe lvni_classify_recipe; /* classify.c */

/* ---- classify_predict.c ---- */

extern const lvni_core_option_table lvni_classify_predict_options; /* weights output */
extern const lvni_core_option_table lvni_classify_eval_options;    /* split */

/* args: key=value as on the command line. */
lvn_status lvni_classify_predict(const lvni_run_recipe *recipe, int n, const char *const *args);
lvn_status lvni_classify_eval(const lvni_run_recipe *recipe, int n, const char *const *args);

/* ---- classify_array.c, for classify_predict.c ---- */

/* data= is an array, and so is output=, or weights= are given: no table of classes is requested. */
bool lvni_classify_is_array(const lvni_core_config *config);
/* data=x.npy (N, H, W, C), numbers of any type, used as they are: no scaling, no cropping.
 * output=logits.npy (N, classes) f32. The model is that of model=, or with weights= the network of
 * that name with the weights of that file. With several ranks they share the chunks; rank 0
 * writes. */
lvn_status lvni_classify_predict_array(lvni_core_config *config,
                                       const struct lvni_run_ranks_command *command);

#endif
