/* A recipe in a shared object, as loaded: user_recipe.c loads it and opens trainings of it,
 * user_card.c has their model card, user_predict.c predicts and measures. */
#ifndef LEVIN_RECIPES_USER_USER_IMPL_H
#define LEVIN_RECIPES_USER_USER_IMPL_H

#include "run/recipe.h"

#include <levin/recipe.h>

typedef struct lvni_user_recipe {
    const lvn_recipe *recipe; /* NULL: none is loaded */
    char *path;
    lvni_core_option *rows;
    lvni_core_option_table own; /* these */
    /* own first */
    const lvni_core_option_table *keys[7], *predict_keys[4], *eval_keys[4], *export_keys[3];
    lvni_run_recipe row;
    lvn_error wrong_key; /* the first that its functions asked for wrongly */
    lvn_use use;         /* what its model is opened for */
} lvni_user_recipe;

extern lvni_user_recipe lvni_user_loaded;

/* What a function of the recipe's returned; `name` of it stands in the error. */
lvn_status lvni_user_returned(lvn_status status, const char *name);

/* ---- user_card.c: rows of recipe.h ---- */

struct lvn_card {
    int n;
    char **name, **value;
};

/* The recipe's part of the card, of a training or of a trained model. */
typedef struct lvni_user_card {
    const lvni_core_config *keys; /* of the training */
    lvni_core_config *own_keys;   /* of a trained model: the same, owned */
    lvn_card entries;
    lvn_job job;
} lvni_user_card;

/* In a training with its keys and its job: what the recipe puts beside them. */
lvn_status lvni_user_keep(lvni_user_card *card);
void lvni_user_card_write(const lvni_run_card *card, const void *own, lvni_core_str *out);
lvn_status lvni_user_card_read(lvni_run_exported *e, const json_t *json);
void lvni_user_card_free(void *own);

/* ---- user_predict.c: rows of recipe.h ---- */

extern const lvni_core_option_table lvni_user_predict_options, lvni_user_eval_options;
lvn_status lvni_user_predict(const lvni_run_recipe *recipe, int n, const char *const *args);
lvn_status lvni_user_eval(const lvni_run_recipe *recipe, int n, const char *const *args);

#endif
