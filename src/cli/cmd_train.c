/* levin train RECIPE, levin plan train RECIPE, levin predict, levin eval. */
#include "cli/cli.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/str.h"
#include "recipes/classify.h"
#include "recipes/report_error.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Recipes of a later version are named, so that the error is not taken for a typing mistake. */
static int check_recipe(int n, const char *const *args, const char *command)
{
    static const char *const later[] = {"pretrain", "pose", "gan", "lm"};
    if (n >= 1 && strcmp(args[0], "classify") == 0) {
        return LVNI_EXIT_OK;
    }
    for (size_t i = 0; n >= 1 && i < sizeof later / sizeof *later; i++) {
        if (strcmp(args[0], later[i]) == 0) {
            lvni_core_print(
                stderr, "error: the recipe %s comes with a later version; this one has classify\n",
                args[0]);
            return LVNI_EXIT_USAGE;
        }
    }
    if (n < 1) {
        fputs("error: which recipe?\n", stderr);
        return lvni_cli_command_misused(command);
    }
    if (strchr(args[0], '=') != NULL || args[0][0] == '-') { /* a key: the recipe is left out */
        lvni_core_print(stderr, "error: the recipe is missing: levin %s classify %s\n",
                        strcmp(command, "plan") == 0 ? "plan train" : command, args[0]);
        return LVNI_EXIT_USAGE;
    }
    const bool near =
        lvni_core_edit_distance(args[0], "classify") <= lvni_core_edit_limit(args[0], "classify");
    lvni_core_print(stderr, "error: unknown recipe %s; %s\n", args[0],
                    near ? "did you mean classify?" : "this version has classify");
    return lvni_cli_command_misused(command);
}

int lvni_cli_cmd_train(int n, const char *const *args)
{
    const int code = check_recipe(n, args, "train");
    return code != LVNI_EXIT_OK
               ? code
               : lvni_recipes_report_status(lvni_recipes_classify_train(n - 1, args + 1));
}

int lvni_cli_cmd_plan(int n, const char *const *args)
{
    if (n < 1 || strcmp(args[0], "train") != 0) {
        fputs("error: plan what?\n", stderr);
        return lvni_cli_command_misused("plan");
    }
    const int code = check_recipe(n - 1, args + 1, "plan");
    return code != LVNI_EXIT_OK
               ? code
               : lvni_recipes_report_status(lvni_recipes_classify_plan(n - 2, args + 2));
}

int lvni_cli_cmd_predict(int n, const char *const *args)
{
    return lvni_recipes_report_status(lvni_recipes_classify_predict(n, args));
}

int lvni_cli_cmd_eval(int n, const char *const *args)
{
    return lvni_recipes_report_status(lvni_recipes_classify_eval(n, args));
}
