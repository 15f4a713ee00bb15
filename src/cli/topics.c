/* The topics of `levin help` that have keys: one for each command, and of those that take a recipe
 * one for each recipe (cli.h). */
#include "cli/cli.h"
#include "recipes/registry.h"
#include "recipes/user/user_recipe.h"

#include <stdio.h>
#include <string.h>

static void of_recipe(const lvni_cli_command *command, const lvni_run_recipe *recipe,
                      lvni_cli_topic *out)
{
    const char *typed = lvni_run_typed(recipe);
    const lvni_cli_command *c = command->uses ? command : lvni_cli_command_find("train");
    *out = (lvni_cli_topic){.command = c,
                            .recipe = recipe,
                            .keys = strcmp(c->name, "predict") == 0  ? recipe->predict_keys
                                    : strcmp(c->name, "eval") == 0   ? recipe->eval_keys
                                    : strcmp(c->name, "export") == 0 ? recipe->export_keys
                                                                     : recipe->keys};
    const bool first = c->uses && recipe == lvni_recipes_at(0);
    snprintf(out->name, sizeof out->name, "%s%s%s", c->name, first ? "" : ".", first ? "" : typed);
}

lvn_status lvni_cli_topic_defaults(const lvni_cli_topic *topic, lvni_core_config **out)
{
    LVN_TRY(lvni_core_config_create(topic->keys, out));
    const bool trains = topic->recipe != NULL && !topic->command->uses;
    const lvn_status s =
        trains ? lvni_core_config_load_job(*out, topic->recipe->defaults.job) : LVN_OK;
    if (s != LVN_OK) {
        lvni_core_config_destroy(*out);
        *out = NULL;
    }
    return s;
}

/* The i-th row beside the list that a word of the command names; NULL: there are no more. */
static const lvni_run_recipe *row_beside(const lvni_cli_command *c, int i)
{
    const lvni_recipes_word *w;
    for (int k = 0; (w = lvni_recipes_word_at(k)) != NULL; k++) {
        const bool beside = strcmp(w->command, c->name) == 0 && w->recipe->argument != NULL;
        if (beside && i-- == 0) {
            return w->recipe;
        }
    }
    return NULL;
}

/* The i-th recipe of a command that takes one: those of the list, then the rows beside it. */
static const lvni_run_recipe *recipe_of(const lvni_cli_command *c, int i)
{
    int n = 0;
    while (lvni_recipes_at(n) != NULL) {
        n++;
    }
    return i < n ? lvni_recipes_at(i) : row_beside(c, i - n);
}

bool lvni_cli_topic_at(int i, lvni_cli_topic *out)
{
    for (int k = 0; k < lvni_cli_n_commands; k++) {
        const lvni_cli_command *c = &lvni_cli_commands[k];
        for (int r = 0; (c->trains || c->uses) && recipe_of(c, r) != NULL; r++) {
            if (i-- == 0) {
                of_recipe(c, recipe_of(c, r), out);
                return true;
            }
        }
        if (c->keys != NULL && i-- == 0) {
            *out = (lvni_cli_topic){.command = c, .keys = c->keys};
            snprintf(out->name, sizeof out->name, "%s", c->name);
            return true;
        }
    }
    return false;
}

/* "eval.knn": a word that names a recipe of the list. */
static bool find_word(const char *name, lvni_cli_topic *out)
{
    const lvni_recipes_word *w;
    for (int k = 0; (w = lvni_recipes_word_at(k)) != NULL; k++) {
        const size_t n = strlen(w->command);
        if (strncmp(name, w->command, n) == 0 && name[n] == '.' &&
            strcmp(name + n + 1, w->word) == 0) {
            of_recipe(lvni_cli_command_find(w->command), w->recipe, out);
            return true;
        }
    }
    return false;
}

bool lvni_cli_topic_find(const char *name, lvni_cli_topic *out)
{
    for (int i = 0; lvni_cli_topic_at(i, out); i++) {
        if (strcmp(name, out->name) == 0 ||
            (out->recipe != NULL && strcmp(name, out->recipe->name) == 0)) {
            return true;
        }
    }
    return find_word(name, out);
}

bool lvni_cli_topic_of(const lvni_cli_command *c, const char *recipe, lvni_cli_topic *out)
{
    if (c->by_recipe || c->uses) {
        const lvni_run_recipe *file;
        if (recipe != NULL && lvni_user_is_file(recipe)) {
            const bool there = lvni_user_load(recipe, lvni_recipes_find, &file) == LVN_OK;
            if (there) {
                of_recipe(c, file, out);
            }
            return there;
        }
        const lvni_run_recipe *r = recipe == NULL ? NULL : lvni_recipes_of_word(c->name, recipe);
        of_recipe(c, r != NULL ? r : lvni_recipes_at(0), out);
        return true;
    }
    return c->keys != NULL && lvni_cli_topic_find(c->name, out);
}
