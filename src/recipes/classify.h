/* The recipe `classify`: images in, classes out. Called by the commands train, plan, predict and
 * eval. */
#ifndef LEVIN_RECIPES_CLASSIFY_H
#define LEVIN_RECIPES_CLASSIFY_H

#include "core/config.h"

/* words: key=value as on the command line. */
lvn_status lvni_recipes_classify_train(int n, const char *const *words);
lvn_status lvni_recipes_classify_plan(int n, const char *const *words);
lvn_status lvni_recipes_classify_predict(int n, const char *const *words);
lvn_status lvni_recipes_classify_eval(int n, const char *const *words);

/* Tables of the help. */
const lvni_core_option_table *lvni_recipes_classify_train_tables(size_t *n);
const lvni_core_option_table *lvni_recipes_classify_predict_tables(size_t *n);
const lvni_core_option_table *lvni_recipes_classify_eval_tables(size_t *n);

#endif
