/* Keys of the commands that use a trained model: `predict` and `eval`. For this folder:
 * classify_predict.c. */
#ifndef LEVIN_RECIPES_INFERENCE_OPTIONS_H
#define LEVIN_RECIPES_INFERENCE_OPTIONS_H

#include "core/option.h"

/* model checkpoint eval_batch_size devices ... */
extern const lvni_core_option_table lvni_recipes_inference_options;
extern const lvni_core_option_table lvni_recipes_predict_options; /* weights output */
extern const lvni_core_option_table lvni_recipes_eval_options;    /* split */

#endif
