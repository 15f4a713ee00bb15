/* The recipes that levin has, a row each (run/recipe.h). The commands, `levin help`, the completion
 * of shells and docs/config.md read this list; nothing below the commands knows it. */
#ifndef LEVIN_RECIPES_REGISTRY_H
#define LEVIN_RECIPES_REGISTRY_H

#include "run/recipe.h"

/* Row `i`; NULL: there are no more. */
const lvni_run_recipe *lvni_recipes_at(int i);
/* NULL: unknown. */
const lvni_run_recipe *lvni_recipes_find(const char *name);
/* The one whose name is nearly that; NULL: none. */
const lvni_run_recipe *lvni_recipes_near(const char *name);

#endif
