/* What the files of the recipe `classify` share: its row of the registry, and what it makes of a
 * trained model's rows. */
#ifndef LEVIN_RECIPES_CLASSIFY_CLASSIFY_H
#define LEVIN_RECIPES_CLASSIFY_CLASSIFY_H

#include "images/image_data.h"
#include "run/best_checkpoint.h"
#include "run/inference.h"

/* ---- classify.c ---- */

extern const lvni_run_recipe lvni_classify_recipe;
/* Of a job that is open. */
const lvni_images_data *lvni_classify_data(const lvni_run_job *job);

/* ---- classify_predict.c ---- */

extern const lvni_core_option_table lvni_classify_predict_options; /* weights output */
extern const lvni_core_option_table lvni_classify_eval_options;    /* split */

extern const lvni_run_results lvni_classify_predictions, lvni_classify_measures, lvni_classify_page;

/* ---- classify_array.c ---- */

/* data= is an array, and so is output=, or weights= are given: no table of classes is requested. */
bool lvni_classify_is_array(const lvni_core_config *config);
/* data=x.npy (N, H, W, C), numbers of any type, used as they are: no scaling, no cropping.
 * output=logits.npy (N, classes) f32. The model is that of model=, or with weights= the network of
 * that name with the weights of that file. */
extern const lvni_run_results lvni_classify_logits;

#endif
