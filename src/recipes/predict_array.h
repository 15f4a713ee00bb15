/* `predict` with an array of images (.npy) instead of a folder: plain logits into another array.
 * Called by classify_predict.c. */
#ifndef LEVIN_RECIPES_PREDICT_ARRAY_H
#define LEVIN_RECIPES_PREDICT_ARRAY_H

#include "core/config.h"
#include "recipes/ranks.h"

/* data= names an array and output= too, or weights= are given: no table of classes is asked for. */
bool lvni_recipes_is_array(const lvni_core_config *config);
/* data=x.npy (N, H, W, C), numbers of any type, used as they are: no scaling, no cropping.
 * output=logits.npy (N, classes) f32. The model is that of model=, or with weights= the network of
 * that name with the weights of that file. With several ranks they share the chunks; rank 0
 * writes. */
lvn_status lvni_recipes_predict_array(lvni_core_config *config,
                                      const lvni_recipes_ranks_command *command);

#endif
