/* A recipe in a shared object ("./mine.so") in place of a name. Called by the commands. */
#ifndef LEVIN_RECIPES_USER_USER_RECIPE_H
#define LEVIN_RECIPES_USER_USER_RECIPE_H

#include "run/recipe.h"

#include <levin/recipe.h>
#include <levin/status.h>

/* The keys of a training as the recipe reads them (levin/recipe.h). */
struct lvn_keys {
    const lvni_core_config *config;
    lvn_error wrong; /* the first that was asked for wrongly */
};

bool lvni_user_is_file(const char *name);
/* Its row, for the rest of the process; find: a recipe of levin's own, whose name it must not have.
 * LVN_ERR_USAGE: it cannot be loaded, or is not a recipe; LVN_ERR_INVALID, LVN_ERR_UNSUPPORTED: its
 * table is wrong, or of another version. */
lvn_status lvni_user_load(const char *path, const lvni_run_recipe *(*find)(const char *name),
                          const lvni_run_recipe **out);
/* The tables of the row of any shared object, without keys of its own where none is loaded. */
const lvni_run_recipe *lvni_user_row(void);

#endif
