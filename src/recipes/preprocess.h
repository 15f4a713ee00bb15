/* How evaluation and prediction prepare an image: keys, what weights= asks for, and what a trained
 * model keeps in its card. The same for the validation during training, `eval` and `predict`.
 * Called by image_data.c and classify.c. */
#ifndef LEVIN_RECIPES_PREPROCESS_H
#define LEVIN_RECIPES_PREPROCESS_H

#include "core/config.h"
#include "recipes/exported.h"

extern const lvni_option_table lvni_preprocess_options; /* eval.resize ... normalize.std */

/* What eval.preset= or the file of weights= says; keys that are given win over it. */
typedef struct lvni_preprocess {
    double crop_pct; /* crop over shorter side; 0: lvni_transform_resize */
    lvni_filter filter;
    float mean[3], std[3];
    bool from_weights; /* the file says it, or what network it holds does */
} lvni_preprocess;

/* The transforms of training and validation, from a training transform with its size. photos:
 * resized and cropped by default, not taken whole. Reports what the file of weights= asks for.
 * LVN_ERR_USAGE. */
lvn_status lvni_preprocess_train(const lvni_config *config, bool photos, lvni_preprocess *found,
                                 lvni_transform *train, lvni_transform *eval);
/* Keys that are auto get what came from the file of weights=: later starts of the run may not have
 * it. eval: what lvni_preprocess_train made of it. */
lvn_status lvni_preprocess_resolve(lvni_config *config, const lvni_preprocess *found,
                                   const lvni_transform *eval);
/* For a trained model: what its card says, except for keys that are given. */
lvn_status lvni_preprocess_use(const lvni_config *config, const lvni_classifier_card *card,
                               lvni_transform *out);
/* LVN_ERR_USAGE when the network needs images of the size it was trained with, and eval.crop asks
 * for another. */
lvn_status lvni_preprocess_check_size(const lvni_config *config, const char *model, int image_size,
                                      int crop);
/* LVN_ERR_USAGE for any of these keys on the command line of a command that uses none. */
lvn_status lvni_preprocess_no_effect(const lvni_config *config, const char *why);

#endif
