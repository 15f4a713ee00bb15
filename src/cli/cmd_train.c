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
#include "run/inference.h"

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
    static const char *const later[] = {"lm"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        if (strcmp(name, later[i]) == 0) {
            return true;
        }
    }
    return false;
}

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

/* The one that takes this configuration file of another program's; NULL: none. */
static const lvni_run_recipe *recipe_of_file(const char *file)
{
    for (int i = 0; file != NULL && lvni_recipes_at(i) != NULL; i++) {
        const lvni_run_recipe *r = lvni_recipes_at(i);
        if (r->takes_file != NULL && r->takes_file(file)) {
            return r;
        }
    }
    return NULL;
}

static bool is_key(const char *arg)
{
    return strchr(arg, '=') != NULL || arg[0] == '-';
}

/* How many of the arguments are keys of its trainings. */
static int count_keys(const lvni_run_recipe *r, int n, const char *const *args)
{
    lvni_core_config *c;
    int known = 0;
    if (lvni_core_config_create(r->keys, &c) != LVN_OK) {
        lvn_clear_error();
        return 0;
    }
    for (int i = 0; i < n;) {
        const char *name, *text;
        const int used = lvni_core_config_arguments_of(c, n - i, args + i, &name, &text);
        known += name != NULL;
        i += used > 0 ? used : 1;
    }
    lvni_core_config_destroy(c);
    return known;
}

/* The ones that have most of the keys, or the one that takes the file; returns how many. */
enum { MOST_MEANT = 4 };
static int recipes_meant(int n, const char *const *args, const lvni_run_recipe *out[MOST_MEANT])
{
    int most = -1, meant = 0;
    out[0] = recipe_of_file(value_of(n, args, "config"));
    if (out[0] != NULL) {
        return 1;
    }
    for (int i = 0; lvni_recipes_at(i) != NULL; i++) {
        const int known = count_keys(lvni_recipes_at(i), n, args);
        meant = known > most ? 0 : meant;
        most = known > most ? known : most;
        if (known == most && meant < MOST_MEANT) {
            out[meant++] = lvni_recipes_at(i);
        }
    }
    return meant;
}

/* args begins with a key. */
static void report_missing(int n, const char *const *args, const char *command)
{
    const bool two = strchr(args[0], '=') == NULL && n > 1 && args[1][0] != '-';
    const lvni_run_recipe *recipe[MOST_MEANT];
    const int meant = recipes_meant(n, args, recipe);
    lvni_core_print(stderr, "error: the recipe is missing:");
    for (int i = 0; i < meant; i++) {
        lvni_core_print(stderr, "%s levin %s %s %s%s%s", i > 0 ? ", or" : "",
                        strcmp(command, "plan") == 0 ? "plan train" : command, recipe[i]->name,
                        args[0], two ? " " : "", two ? args[1] : "");
    }
    fputs("\n", stderr);
}

/* Recipes of a later version are named, so that the error is not taken for a typing mistake. */
static void report_unknown(int n_args, const char *const *args, const char *command)
{
    const char *name = args[0];
    const lvni_run_recipe *near = lvni_recipes_near(name);
    if (comes_later(name)) {
        lvni_core_print(stderr, "error: the recipe %s comes with a later version; this one has ",
                        name);
        print_names(stderr);
        fputs("\n", stderr);
        return;
    }
    if (is_key(name)) {
        report_missing(n_args, args, command);
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
    const lvni_run_recipe *recipe = n >= 1 ? lvni_recipes_of_word(command, args[0]) : NULL;
    if (n < 1) {
        fputs("error: which recipe?\n", stderr);
        lvni_cli_command_misused(command);
    } else if (recipe == NULL) {
        report_unknown(n, args, command);
    }
    return recipe;
}

/* ---- mistakes ---- */

/* Where a training with the file of another program has put its run: "CHECKPOINT_DIR/NAME". */
static void print_run(const lvni_run_recipe *r, int n, const char *const *args, const char *file,
                      lvni_core_str *out)
{
    static const char dir_key[] = "checkpoint_dir";
    const char *name = value_of(n, args, "exp-name"), *dir = value_of(n, args, dir_key);
    lvni_core_config *c = NULL;
    name = name != NULL ? name : value_of(n, args, "exp_name");
    if (dir == NULL && lvni_core_config_create(r->keys, &c) == LVN_OK) {
        lvni_core_config_collect(c);
        (void)lvni_core_config_load_file(c, LVNI_LAYER_FILE, file);
        dir = lvni_core_config_has(c, dir_key) ? lvni_core_config_str(c, dir_key) : NULL;
    }
    const size_t bytes = dir == NULL ? 0 : strlen(dir);
    lvni_core_str_printf(out, "%s%s%s", dir == NULL ? "" : dir,
                         bytes == 0 || dir[bytes - 1] == '/' ? "" : "/",
                         name != NULL ? name : "NAME");
    lvni_core_config_destroy(c);
    lvn_clear_error();
}

/* Commands that use a trained model have other keys than such a file. */
static lvn_status refuse_file(const lvni_run_recipe *taker, const char *command, int n,
                              const char *const *args, const char *file)
{
    const char *weights = value_of(n, args, "weights");
    if (weights != NULL) {
        return lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                             "config=%s: a file of rcGAN, for training: levin export %s config=%s "
                             "weights=%s output=W.safetensors makes a model of it for levin %s "
                             "model=W.safetensors",
                             file, taker->name, file, weights, command);
    }
    lvni_core_str run = {0};
    print_run(taker, n, args, file, &run);
    lvn_status s = lvni_core_str_status(&run);
    if (s == LVN_OK) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "config=%s: a file of rcGAN, for training: levin %s takes the run that "
                          "was trained with it, as in levin %s model=%s",
                          file, command, command, lvni_core_str_text(&run));
    }
    lvni_core_str_free(&run);
    return s;
}

int lvni_cli_report(lvn_status s, const lvni_run_recipe *recipe, const char *command, int n,
                    const char *const *args)
{
    const char *file = value_of(n, args, "config");
    if (s != LVN_ERR_USAGE || file == NULL) {
        return lvni_run_report_status(s);
    }
    const lvn_error error = *lvn_last_error();
    const lvni_run_recipe *taker = recipe_of_file(file);
    const bool trains = strcmp(command, "train") == 0 || strcmp(command, "plan train") == 0 ||
                        strncmp(command, "tune ", 5) == 0,
               starts = strcmp(command, "export") == 0 && value_of(n, args, "weights") != NULL;
    if (taker != NULL && !trains && !starts) {
        return lvni_run_report_status(refuse_file(taker, command, n, args, file));
    }
    if (taker != NULL && taker != recipe) {
        return lvni_run_report_status(lvn_error_set(
            s, __FILE__, __LINE__,
            "config=%s: a file of rcGAN, for training: use %s, as in levin %s %s config=%s", file,
            taker->name, command, taker->name, file));
    }
    lvn_error_adopt(&error);
    return lvni_run_report_status(s);
}

int lvni_cli_cmd_train(int n, const char *const *args)
{
    int code;
    const lvni_run_recipe *recipe = lvni_cli_find_recipe(n, args, "train", &code);
    if (recipe != NULL && recipe->needs_keys && n == 1) {
        lvni_cli_command_print_help_of(lvni_cli_command_find("train"), args[0]);
        return 0;
    }
    return recipe == NULL
               ? code
               : lvni_cli_report(lvni_run_train(recipe, n - 1, args + 1), recipe, "train", n, args);
}

/* `train` is left out, or the recipe, too. */
static int misuse_plan(int n, const char *const *args)
{
    const bool keys = n > 0 && is_key(args[0]), recipe = n > 0 && lvni_user_is_file(args[0]);
    if (keys) {
        report_missing(n, args, "plan");
        return LVNI_EXIT_USAGE;
    }
    if (recipe) {
        lvni_core_print(stderr, "error: plan what? levin plan train %s\n", args[0]);
        return LVNI_EXIT_USAGE;
    }
    fputs("error: plan what?\n", stderr);
    return lvni_cli_command_misused("plan");
}

int lvni_cli_cmd_plan(int n, const char *const *args)
{
    /* as levin pretrain is levin train pretrain */
    const int front = n >= 1 && strcmp(args[0], "train") == 0 ? 1 : 0;
    if (n < 1 || (front == 0 && lvni_recipes_find(args[0]) == NULL)) {
        return misuse_plan(n, args);
    }
    int code;
    const lvni_run_recipe *recipe = lvni_cli_find_recipe(n - front, args + front, "plan", &code);
    return recipe == NULL ? code
                          : lvni_cli_report(lvni_run_plan(recipe, n - front - 1, args + front + 1),
                                            recipe, "plan train", n, args);
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
    *skip =
        n >= 1 && (lvni_user_is_file(args[0]) || lvni_recipes_of_word(command, args[0]) != NULL);
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
    return recipe == NULL ? code
                          : lvni_cli_report(lvni_run_predict(recipe, n - skip, args + skip), recipe,
                                            "predict", n, args);
}

int lvni_cli_cmd_eval(int n, const char *const *args)
{
    int skip, code;
    const lvni_run_recipe *recipe = find_user(n, args, "eval", &skip, &code);
    return recipe == NULL ? code
                          : lvni_cli_report(lvni_run_eval(recipe, n - skip, args + skip), recipe,
                                            "eval", n, args);
}

int lvni_cli_cmd_export(int n, const char *const *args)
{
    int skip, code;
    const lvni_run_recipe *recipe = find_user(n, args, "export", &skip, &code);
    return recipe == NULL ? code
                          : lvni_cli_report(lvni_run_export(recipe, n - skip, args + skip), recipe,
                                            "export", n, args);
}
