/* Commands that read the registry of recipes: levin train RECIPE, levin plan train RECIPE, and
 * predict, eval, export of a trained model. */
#include "cli/cli.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/str.h"
#include "recipes/registry.h"
#include "recipes/user/user_recipe.h"
#include "run/error_record.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* "classify, gan" */
static void print_names(FILE *out)
{
    for (int i = 0; lvni_recipes_at(i) != NULL; i++) {
        fprintf(out, "%s%s", i == 0 ? "" : ", ", lvni_recipes_at(i)->name);
    }
}

static bool comes_later(const char *name)
{
    static const char *const later[] = {"pretrain", "pose", "gan", "lm"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        if (strcmp(name, later[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Recipes of a later version are named, so that the error is not taken for a typing mistake. */
static void report_unknown(const char *name, const char *command)
{
    const lvni_run_recipe *near = lvni_recipes_near(name);
    if (comes_later(name)) {
        lvni_core_print(stderr, "error: the recipe %s comes with a later version; this one has ",
                        name);
        print_names(stderr);
        fputs("\n", stderr);
        return;
    }
    if (strchr(name, '=') != NULL || name[0] == '-') { /* a key: the recipe is left out */
        lvni_core_print(stderr, "error: the recipe is missing: levin %s %s %s\n",
                        strcmp(command, "plan") == 0 ? "plan train" : command,
                        lvni_recipes_at(0)->name, name);
        return;
    }
    const size_t n = strlen(name);
    if (n > 2 && strcmp(name + n - 2, ".c") == 0) {
        lvni_core_print(stderr, "error: %s is a source file: levin cc %s makes %.*s.so of it\n",
                        name, name, (int)n - 2, name);
        return;
    }
    lvni_core_print(stderr, "error: unknown recipe %s; ", name);
    if (near != NULL) {
        fprintf(stderr, "did you mean %s?", near->name);
    } else {
        fputs("this version has ", stderr);
        print_names(stderr);
    }
    fputs("\n", stderr);
    lvni_cli_command_misused(command);
}

/* *code: what to exit with where there is none. */
static const lvni_run_recipe *load(const char *path, int *code)
{
    const lvni_run_recipe *recipe;
    *code = lvni_run_report_status(lvni_user_load(path, lvni_recipes_find, &recipe));
    return recipe;
}

const lvni_run_recipe *lvni_cli_find_recipe(int n, const char *const *args, const char *command,
                                            int *code)
{
    *code = LVNI_EXIT_USAGE;
    if (n >= 1 && lvni_user_is_file(args[0])) {
        return load(args[0], code);
    }
    const lvni_run_recipe *recipe = n >= 1 ? lvni_recipes_find(args[0]) : NULL;
    if (n < 1) {
        fputs("error: which recipe?\n", stderr);
        lvni_cli_command_misused(command);
    } else if (recipe == NULL) {
        report_unknown(args[0], command);
    }
    return recipe;
}

/* ---- mistakes ---- */

/* The last value of a key on the command line; what is wrong with it is found when it is read. */
static const char *value_of(int n, const char *const *args, const char *key)
{
    const size_t length = strlen(key);
    const char *value = NULL;
    for (int i = 0; i < n; i++) {
        const char *arg = args[i] + (strncmp(args[i], "--", 2) == 0 ? 2 : 0);
        if (strncmp(arg, key, length) == 0 && arg[length] == '=') {
            value = arg + length + 1;
        } else if (arg != args[i] && strcmp(arg, key) == 0 && i + 1 < n) {
            value = args[i + 1];
        }
    }
    return value;
}

int lvni_cli_report(lvn_status s, const lvni_run_recipe *recipe, int n, const char *const *args)
{
    const char *file = value_of(n, args, "config");
    if (s != LVN_ERR_USAGE || file == NULL) {
        return lvni_run_report_status(s);
    }
    const lvn_error error = *lvn_last_error();
    for (int i = 0; lvni_recipes_at(i) != NULL; i++) {
        const lvni_run_recipe *r = lvni_recipes_at(i);
        if (r != recipe && r->takes_file != NULL && r->takes_file(file)) {
            return lvni_run_report_status(lvn_error_set(
                s, __FILE__, __LINE__,
                "config=%s: a file of rcGAN, for training: use %s, as in levin train %s config=%s",
                file, r->name, r->name, file));
        }
    }
    lvn_error_adopt(&error);
    return lvni_run_report_status(s);
}

int lvni_cli_cmd_train(int n, const char *const *args)
{
    int code;
    const lvni_run_recipe *recipe = lvni_cli_find_recipe(n, args, "train", &code);
    return recipe == NULL
               ? code
               : lvni_cli_report(lvni_run_train(recipe, n - 1, args + 1), recipe, n, args);
}

int lvni_cli_cmd_plan(int n, const char *const *args)
{
    if (n < 1 || strcmp(args[0], "train") != 0) {
        fputs("error: plan what?\n", stderr);
        return lvni_cli_command_misused("plan");
    }
    int code;
    const lvni_run_recipe *recipe = lvni_cli_find_recipe(n - 1, args + 1, "plan", &code);
    return recipe == NULL
               ? code
               : lvni_cli_report(lvni_run_plan(recipe, n - 2, args + 2), recipe, n, args);
}

/* ---- trained models ---- */

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The recipe that the model names, from the arguments alone; freed by the caller. NULL: none. An
 * error: there is no such model, so that it is not known whose keys the others are. */
static lvn_status find_model(int n, const char *const *args, char **name)
{
    const char *model = value_of(n, args, "model"), *run = value_of(n, args, "run"),
               *which = value_of(n, args, "checkpoint"), *path = model != NULL ? model : run;
    *name = NULL;
    if (path == NULL && which == NULL) {
        return LVN_OK;
    }
    const lvn_status s =
        lvni_run_exported_recipe(path != NULL ? path : which, path != NULL ? which : NULL, name);
    /* with weights= the model is a network's name; a file may have either; an empty path,
     * and a folder without a model, is reported later */
    const bool is_model = model != NULL && model[strspn(model, " \t'\"")] != '\0' &&
                          !is_folder(model) && value_of(n, args, "weights") == NULL &&
                          value_of(n, args, "config") == NULL;
    if (s != LVN_OK && s != LVN_ERR_MISMATCH && (!is_model || s == LVN_ERR_USAGE)) {
        lvn_clear_error();
        return LVN_OK;
    }
    return s;
}

/* The recipe in front of the arguments (*skip 1), else that of the model, else the first. NULL: an
 * error was printed; *code: what to exit with. */
static const lvni_run_recipe *find_user(int n, const char *const *args, const char *command,
                                        int *skip, int *code)
{
    *skip = n >= 1 && (lvni_user_is_file(args[0]) || lvni_recipes_find(args[0]) != NULL);
    if (*skip == 1) {
        return lvni_cli_find_recipe(n, args, command, code);
    }
    char *name = NULL;
    const lvn_status s = find_model(n, args, &name);
    if (s != LVN_OK && strcmp(command, "export") != 0) { /* whose keys are the same for all */
        *code = lvni_run_report_status(s);
        return NULL;
    }
    lvn_clear_error();
    const lvni_run_recipe *recipe = name == NULL ? lvni_recipes_at(0) : lvni_recipes_find(name);
    *code = LVNI_EXIT_USAGE;
    if (recipe == NULL) {
        lvni_core_print(stderr,
                        "error: this is a model of the recipe %s, which is not one of levin's own: "
                        "give the shared object, as in levin %s ./%s.so model=...\n",
                        name, command, name);
    }
    lvni_core_free(name);
    return recipe;
}

int lvni_cli_cmd_predict(int n, const char *const *args)
{
    int skip, code;
    const lvni_run_recipe *recipe = find_user(n, args, "predict", &skip, &code);
    return recipe == NULL
               ? code
               : lvni_cli_report(recipe->predict(recipe, n - skip, args + skip), recipe, n, args);
}

int lvni_cli_cmd_eval(int n, const char *const *args)
{
    int skip, code;
    const lvni_run_recipe *recipe = find_user(n, args, "eval", &skip, &code);
    return recipe == NULL
               ? code
               : lvni_cli_report(recipe->eval(recipe, n - skip, args + skip), recipe, n, args);
}

int lvni_cli_cmd_export(int n, const char *const *args)
{
    int skip, code;
    const lvni_run_recipe *recipe = find_user(n, args, "export", &skip, &code);
    return recipe == NULL
               ? code
               : lvni_cli_report(lvni_run_export(recipe, n - skip, args + skip), recipe, n, args);
}
