/* The list of recipes (registry.h). */
#include "recipes/registry.h"

#include "core/str.h"
#include "recipes/classify/classify.h"
#include "recipes/gan/gan.h"
#include "recipes/pose/pose.h"
#include "recipes/pretrain/pretrain.h"

#include <stdint.h>
#include <string.h>

static const lvni_run_recipe *const registry[] = {&lvni_classify_recipe, &lvni_gan_recipe,
                                                  &lvni_pretrain_recipe, &lvni_pose_recipe};
enum { N_RECIPES = sizeof registry / sizeof *registry };

const lvni_run_recipe *lvni_recipes_at(int i)
{
    return i >= 0 && i < N_RECIPES ? registry[i] : NULL;
}

const lvni_run_recipe *lvni_recipes_find(const char *name)
{
    for (int i = 0; i < N_RECIPES; i++) {
        if (strcmp(name, registry[i]->name) == 0) {
            return registry[i];
        }
    }
    return NULL;
}

static const lvni_recipes_word words[] = {{"predict", "embed", &lvni_pretrain_recipe},
                                          {"eval", "knn", &lvni_pretrain_recipe},
                                          {"eval", "linear", &lvni_pretrain_linear_recipe}};
enum { N_WORDS = sizeof words / sizeof *words };

const lvni_recipes_word *lvni_recipes_word_at(int i)
{
    return i >= 0 && i < N_WORDS ? &words[i] : NULL;
}

const lvni_run_recipe *lvni_recipes_of_word(const char *command, const char *word)
{
    for (int i = 0; i < N_WORDS; i++) {
        if (strcmp(words[i].command, command) == 0 && strcmp(words[i].word, word) == 0) {
            return words[i].recipe;
        }
    }
    return lvni_recipes_find(word);
}

const lvni_run_recipe *lvni_recipes_near(const char *name)
{
    const lvni_run_recipe *near = NULL;
    size_t nearest = SIZE_MAX;
    for (int i = 0; i < N_RECIPES; i++) {
        const size_t d = lvni_core_edit_distance(name, registry[i]->name);
        if (d <= lvni_core_edit_limit(name, registry[i]->name) && d < nearest) {
            near = registry[i];
            nearest = d;
        }
    }
    return near;
}
