/* levin report RUN: the page of a run (report/run_page.h). */
#include "cli/cli.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "recipes/registry.h"
#include "report/run_page.h"
#include "run/error_record.h"
#include "run/recipe.h"
#include "run/run_dir.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const size_t MOST_CONFIG = (size_t)1 << 22;

/* That config.yaml names; NULL: none of levin's own. */
static lvn_status find_recipe(const char *run, const lvni_run_recipe **out)
{
    lvni_core_str path = {0}, name = {0};
    char *config = NULL;
    size_t n;
    *out = NULL;
    lvni_core_str_printf(&path, "%s/config.yaml", run);
    lvn_status s = lvni_core_str_status(&path);
    if (s == LVN_OK && lvni_core_path_exists(lvni_core_str_text(&path))) {
        s = lvni_core_regular_read(lvni_core_str_text(&path), MOST_CONFIG, &config, &n);
    }
    if (s == LVN_OK && config != NULL && lvni_report_config_value(config, "recipe", &name)) {
        *out = lvni_recipes_find(lvni_core_str_text(&name));
    }
    lvni_core_free(config);
    lvni_core_str_free(&path);
    lvni_core_str_free(&name);
    return s;
}

static lvn_status write_report(const char *run, const char *output)
{
    const lvni_run_recipe *recipe;
    LVN_TRY(find_recipe(run, &recipe));
    LVN_TRY(lvni_run_page_write(recipe, run, output));
    if (strcmp(output, "-") != 0) {
        lvni_core_print(stdout, "%s\n", output);
    }
    return LVN_OK;
}

/* RUN and output=FILE in any order; false: reported. */
static bool read_arguments(int n, const char *const *args, const char **run, const char **output)
{
    static const char key[] = "output=";
    for (int i = 0; i < n; i++) {
        const char *a = args[i] + (strncmp(args[i], "--output=", 9) == 0 ? 2 : 0);
        if (strncmp(a, key, sizeof key - 1) == 0 && a[sizeof key - 1] != '\0') {
            *output = a + sizeof key - 1;
        } else if (*run == NULL && a[0] != '-' && a[0] != '\0' &&
                   (strchr(a, '=') == NULL || access(a, F_OK) == 0)) {
            *run = a;
        } else {
            lvni_core_print(stderr, "error: levin report does not take %s\n",
                            a[0] == '\0' ? "an empty path" : a);
            return false;
        }
    }
    if (*run == NULL) {
        fputs("error: levin report: the directory of a run is missing\n", stderr);
    }
    return *run != NULL;
}

int lvni_cli_cmd_report(int n, const char *const *args)
{
    const char *run = NULL, *output = NULL;
    lvni_core_str beside = {0};
    if (!read_arguments(n, args, &run, &output)) {
        return lvni_cli_command_misused("report");
    }
    lvn_status s = LVN_OK;
    if (output == NULL) {
        lvni_core_str_printf(&beside, "%s%s" LVNI_RUN_PAGE, run,
                             run[strlen(run) - 1] == '/' ? "" : "/");
        s = lvni_core_str_status(&beside);
        output = lvni_core_str_text(&beside);
    }
    s = s == LVN_OK ? write_report(run, output) : s;
    lvni_core_str_free(&beside);
    return s == LVN_OK ? LVNI_EXIT_OK : lvni_run_report_status(s);
}
