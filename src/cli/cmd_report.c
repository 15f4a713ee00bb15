/* levin report RUN: the page of a run (report/run_page.h). */
#include "cli/cli.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "report/run_page.h"
#include "run/error_record.h"
#include "run/recipe.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const size_t MOST_CONFIG = (size_t)1 << 22;

/* The lines of all keys of `levin train NAME` as they are by default; empty: no such recipe here.
 */
static lvn_status write_defaults(const char *name, lvni_core_str *out)
{
    char topic[80];
    lvni_cli_topic of;
    lvni_core_config *config;
    snprintf(topic, sizeof topic, "train.%.60s", name);
    if (!lvni_cli_topic_find(topic, &of)) {
        return LVN_OK;
    }
    LVN_TRY(lvni_cli_topic_defaults(&of, &config));
    const lvn_status s = lvni_core_config_write_yaml(config, out);
    lvni_core_config_destroy(config);
    return s;
}

/* Those of the recipe that config.yaml names. */
static lvn_status find_defaults(const char *run, lvni_core_str *out)
{
    lvni_core_str path = {0}, name = {0};
    char *config = NULL;
    size_t n;
    lvni_core_str_printf(&path, "%s/config.yaml", run);
    lvn_status s = lvni_core_str_status(&path);
    if (s == LVN_OK && lvni_core_path_exists(lvni_core_str_text(&path))) {
        s = lvni_core_regular_read(lvni_core_str_text(&path), MOST_CONFIG, &config, &n);
    }
    if (s == LVN_OK && config != NULL && lvni_report_config_value(config, "recipe", &name)) {
        s = write_defaults(lvni_core_str_text(&name), out);
    }
    lvni_core_free(config);
    lvni_core_str_free(&path);
    lvni_core_str_free(&name);
    return s;
}

static lvn_status write_report(const char *run, const char *output)
{
    lvni_core_str page = {0}, defaults = {0};
    lvn_status s = find_defaults(run, &defaults);
    const char *of_recipe = defaults.len > 0 ? lvni_core_str_text(&defaults) : NULL;
    s = s == LVN_OK ? lvni_report_run_page(run, of_recipe, &page) : s;
    if (s == LVN_OK) {
        const bool print = strcmp(output, "-") == 0;
        s = lvni_core_file_write(print ? LVNI_STDOUT_PATH : output, lvni_core_str_text(&page),
                                 page.len);
        if (s == LVN_OK && !print) {
            lvni_core_print(stdout, "%s\n", output);
        }
    }
    lvni_core_str_free(&page);
    lvni_core_str_free(&defaults);
    return s;
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
        lvni_core_str_printf(&beside, "%s%sreport.html", run,
                             run[strlen(run) - 1] == '/' ? "" : "/");
        s = lvni_core_str_status(&beside);
        output = lvni_core_str_text(&beside);
    }
    s = s == LVN_OK ? write_report(run, output) : s;
    lvni_core_str_free(&beside);
    return s == LVN_OK ? LVNI_EXIT_OK : lvni_run_report_status(s);
}
