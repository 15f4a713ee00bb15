/* The recipe `classify`: images in, classes out. Its training is a row of the registry
 * (lvni_recipes_classify, recipe.h); the use of a trained model is called by the commands predict,
 * eval and export. */
#ifndef LEVIN_RECIPES_CLASSIFY_H
#define LEVIN_RECIPES_CLASSIFY_H

#include "core/config.h"

/* args: key=value as on the command line. */
lvn_status lvni_recipes_classify_predict(int n, const char *const *args);
lvn_status lvni_recipes_classify_eval(int n, const char *const *args);
/* A trained model as a file for others (export.c). */
lvn_status lvni_recipes_export(int n, const char *const *args);

/* Tables of the help. */
const lvni_core_option_table *lvni_recipes_classify_train_tables(size_t *n);
const lvni_core_option_table *lvni_recipes_classify_predict_tables(size_t *n);
const lvni_core_option_table *lvni_recipes_classify_eval_tables(size_t *n);
const lvni_core_option_table *lvni_recipes_export_tables(size_t *n);

/* ---- predict_array.c, for classify_predict.c ---- */

struct lvni_recipes_ranks_command; /* ranks.h */

/* data= is an array, and so is output=, or weights= are given: no table of classes is requested. */
bool lvni_recipes_is_array(const lvni_core_config *config);
/* data=x.npy (N, H, W, C), numbers of any type, used as they are: no scaling, no cropping.
 * output=logits.npy (N, classes) f32. The model is that of model=, or with weights= the network of
 * that name with the weights of that file. With several ranks they share the chunks; rank 0
 * writes. */
lvn_status lvni_recipes_predict_array(lvni_core_config *config,
                                      const struct lvni_recipes_ranks_command *command);

#endif
