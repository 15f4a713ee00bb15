/* levin tune batch-size|lr [RECIPE] [key=value ...]: finders of what a training needs. */
#include "cli/cli.h"
#include "core/error.h"
#include "core/escape.h"
#include "recipes/registry.h"
#include "run/error_record.h"
#include "tune/tune.h"

#include <stdio.h>
#include <string.h>

/* Without a recipe: the first. */
static bool names_recipe(int n, const char *const *args)
{
    return n > 0 && args[0][0] != '-' && strchr(args[0], '=') == NULL;
}

static const struct {
    const char *name;
    lvn_status (*find)(const lvni_tune_command *command);
} finders[] = {{"batch-size", lvni_tune_batch_size}, {"lr", lvni_tune_lr}};

/* -1: there is none */
static int finder_of(const char *name)
{
    for (size_t i = 0; i < sizeof finders / sizeof *finders; i++) {
        if (strcmp(name, finders[i].name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

int lvni_cli_cmd_tune(int n, const char *const *args)
{
    const int finder = n < 1 ? -1 : finder_of(args[0]);
    if (finder < 0) {
        lvni_core_print(stderr, "error: tune what?%s%s\n", n < 1 ? "" : " There is no finder ",
                        n < 1 ? "" : args[0]);
        return lvni_cli_command_misused("tune");
    }
    int code = LVNI_EXIT_USAGE;
    lvni_tune_command command = {.recipe = lvni_recipes_at(0), .n = n - 1, .args = args + 1};
    command.skip = names_recipe(command.n, command.args);
    if (command.skip == 1) {
        command.recipe = lvni_cli_find_recipe(command.n, command.args, "tune", &code);
    }
    return command.recipe == NULL
               ? code
               : lvni_cli_report(finders[finder].find(&command), command.recipe,
                                 finder == 0 ? "tune batch-size" : "tune lr", n, args);
}
