/* A recipe in a shared object, as loaded: shared_recipe.c loads it and opens trainings of it,
 * shared_card.c has their model card, shared_use.c predicts and measures. */
#ifndef LEVIN_RECIPES_SHARED_IMPL_H
#define LEVIN_RECIPES_SHARED_IMPL_H

#include "recipes/recipe.h"

#include <levin/recipe.h>

enum { LVNI_SHARED_TABLES = 6 }; /* its own keys first */

typedef struct lvni_recipes_shared {
    const lvn_recipe *recipe; /* NULL: none is loaded */
    char *path;
    lvni_core_option *rows;
    lvni_core_option_table tables[LVNI_SHARED_TABLES]; /* of a training */
    lvni_recipes_recipe row;
    lvn_error wrong_key; /* the first that its functions asked for wrongly */
    lvn_use use;         /* what its model is opened for */
} lvni_recipes_shared;

extern lvni_recipes_shared lvni_recipes_loaded;

/* What a function of the recipe's returned; `name` of it stands in the error. */
lvn_status lvni_recipes_shared_returned(lvn_status status, const char *name);

/* ---- shared_card.c: rows of recipe.h ---- */

struct lvn_card {
    int n;
    char **name, **value;
};

/* The recipe's part of the card, of a training or of a trained model. */
typedef struct lvni_recipes_shared_card {
    const lvni_core_config *keys; /* of the training */
    lvni_core_config *own_keys;   /* of a trained model: the same, owned */
    lvn_card entries;
    lvn_job job;
} lvni_recipes_shared_card;

/* In a training with its keys and its job: what the recipe puts beside them. */
lvn_status lvni_recipes_shared_keep(lvni_recipes_shared_card *card);
void lvni_recipes_shared_card_write(const lvni_recipes_card *card, const void *own,
                                    lvni_core_str *out);
lvn_status lvni_recipes_shared_card_read(lvni_recipes_exported *e, const json_t *json);
void lvni_recipes_shared_card_free(void *own);

/* ---- shared_use.c: rows of recipe.h ---- */

extern const lvni_core_option_table lvni_recipes_shared_predict_options,
    lvni_recipes_shared_eval_options;
const lvni_core_option_table *lvni_recipes_shared_predict_tables(size_t *n);
const lvni_core_option_table *lvni_recipes_shared_eval_tables(size_t *n);
const lvni_core_option_table *lvni_recipes_shared_export_tables(size_t *n);
lvn_status lvni_recipes_shared_predict(const lvni_recipes_recipe *recipe, int n,
                                       const char *const *args);
lvn_status lvni_recipes_shared_eval(const lvni_recipes_recipe *recipe, int n,
                                    const char *const *args);

#endif
