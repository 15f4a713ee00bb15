/* How evaluation and prediction prepare an image: keys, the file of weights=, and the card of a
 * trained model. The same for the validation during training, `eval` and `predict`.
 * Called by image_data.c and classify.c. */
#ifndef LEVIN_RECIPES_PREPROCESS_H
#define LEVIN_RECIPES_PREPROCESS_H

#include "core/config.h"
#include "recipes/exported.h"

/* eval.resize ... normalize.std */
extern const lvni_core_option_table lvni_recipes_preprocess_options;

/* From eval.preset= or the file of weights=; keys that are given take precedence. */
typedef struct lvni_recipes_preprocess {
    double crop_pct; /* crop over shorter side; 0: lvni_data_transform_resize */
    lvni_data_filter filter;
    float mean[3], std[3];
    bool from_weights; /* from the file, or from the network it holds */
} lvni_recipes_preprocess;

/* The transforms of training and validation, from a training transform with its size. photos:
 * resized and cropped by default, not taken whole. Reports what comes from the file of weights=.
 * LVN_ERR_USAGE. */
lvn_status lvni_recipes_preprocess_train(const lvni_core_config *config, bool photos,
                                         lvni_recipes_preprocess *found, lvni_data_transform *train,
                                         lvni_data_transform *eval);
/* Keys that are auto get what came from the file of weights=: later starts of the run may not have
 * it. eval: what lvni_recipes_preprocess_train made of it. */
lvn_status lvni_recipes_preprocess_resolve(lvni_core_config *config,
                                           const lvni_recipes_preprocess *found,
                                           const lvni_data_transform *eval);
/* For a trained model: from its card, except for keys that are given. */
lvn_status lvni_recipes_preprocess_use(const lvni_core_config *config,
                                       const lvni_recipes_classifier_card *card,
                                       lvni_data_transform *out);
/* LVN_ERR_USAGE when the network needs images of the size it was trained with, and eval.crop is
 * another. */
lvn_status lvni_recipes_preprocess_check_size(const lvni_core_config *config, const char *model,
                                              int image_size, int crop);
/* LVN_ERR_USAGE for any of these keys on the command line of a command that uses none. */
lvn_status lvni_recipes_preprocess_no_effect(const lvni_core_config *config, const char *why);

#endif
