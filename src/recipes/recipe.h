/* Recipes: what can be trained, one row each. A row names its keys and opens its data and network;
 * everything around that (ranks, run directory, trainer, checkpoints, plan) is the same for all of
 * them. The commands and `levin help` read the registry. classify.c is the first; user_module.c
 * makes a row of a user's job. */
#ifndef LEVIN_RECIPES_RECIPE_H
#define LEVIN_RECIPES_RECIPE_H

#include "core/config.h"
#include "recipes/fit.h"

typedef struct lvni_recipes_recipe {
    const char *name; /* "classify" */
    /* "data=DIR [key=value ...]", and what training it does; for the help */
    const char *use, *help;
    /* its keys in `levin train NAME` */
    const lvni_core_option_table *(*train_tables)(size_t *n);
    /* Errors that every rank would find, before ranks are started; NULL: none. */
    lvn_status (*check)(const lvni_core_config *config);
    /* Data, loss and network of a training: `request` has config and ranks (NULL: `levin plan`,
     * which trains nothing) and gets the rest. *state is the recipe's and lives until close, which
     * is called in any case. */
    lvn_status (*open)(const struct lvni_recipes_recipe *recipe, lvni_recipes_fit_request *request,
                       void **state);
    void (*close)(void *state); /* NULL is fine */
    const void *user;           /* a user's job; NULL in the registry */
} lvni_recipes_recipe;

extern const lvni_recipes_recipe lvni_recipes_classify;

/* Row `i` of the registry; NULL: there are no more. */
const lvni_recipes_recipe *lvni_recipes_at(int i);
/* NULL: unknown. */
const lvni_recipes_recipe *lvni_recipes_find(const char *name);
/* The one whose name is nearly that; NULL: none. */
const lvni_recipes_recipe *lvni_recipes_near(const char *name);

/* What `levin train NAME` does; args: key=value as on the command line. */
lvn_status lvni_recipes_train(const lvni_recipes_recipe *recipe, int n, const char *const *args);
lvn_status lvni_recipes_plan(const lvni_recipes_recipe *recipe, int n, const char *const *args);
/* The same for a row that a program made: defaults are key=value text, or NULL. command: the words
 * that start it again ("train", NAME), as in ranks.h; help: where its keys are listed. */
lvn_status lvni_recipes_train_with(const lvni_recipes_recipe *recipe, const char *const command[2],
                                   const char *defaults, const char *help, int n,
                                   const char *const *args);

#endif
