/* The recipes that levin has, a row each (run/recipe.h). The commands, `levin help`, the completion
 * of shells and docs/config.md read this list; nothing below the commands knows it. */
#ifndef LEVIN_RECIPES_REGISTRY_H
#define LEVIN_RECIPES_REGISTRY_H

#include "run/recipe.h"

/* Row `i`; NULL: there are no more. */
const lvni_run_recipe *lvni_recipes_at(int i);
/* NULL: unknown. */
const lvni_run_recipe *lvni_recipes_find(const char *name);
/* A word behind `predict` or `eval` that names what is made, and not the recipe that makes it. */
typedef struct lvni_recipes_word {
    const char *command, *word;    /* "eval", "knn" */
    const lvni_run_recipe *recipe; /* a row of the list, or one beside it with keys of its own */
} lvni_recipes_word;
/* Word `i`; NULL: there are no more. */
const lvni_recipes_word *lvni_recipes_word_at(int i);
/* By its name, or by a word of the command. NULL: unknown. */
const lvni_run_recipe *lvni_recipes_of_word(const char *command, const char *word);
/* The one whose name is nearly that; NULL: none. */
const lvni_run_recipe *lvni_recipes_near(const char *name);

#endif
