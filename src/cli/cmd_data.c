/* levin data dlc|check: projects of labelled frames before a training. */
#include "cli/cli.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/option.h"
#include "core/str.h"
#include "recipes/pose/pose_check.h"
#include "recipes/pose/pose_dlc.h"
#include "run/error_record.h"

#include <stdio.h>
#include <string.h>

/* Is this key=value or --key[=value] of the switch? *on: its value; false: it is not, or *wrong. */
static bool take_switch(const char *arg, const char *key, bool *on, bool *wrong)
{
    static const char choices[] = "true|false|yes|no|on|off|1|0";
    const bool dashes = strncmp(arg, "--", 2) == 0;
    const char *name = arg + (dashes ? 2 : 0);
    const size_t n = strlen(key);
    if (strncmp(name, key, n) != 0 || (name[n] != '=' && !(dashes && name[n] == '\0'))) {
        return false;
    }
    const char *value = name[n] == '=' ? name + n + 1 : "true";
    const int choice = lvni_core_option_choice_index(choices, value, strlen(value));
    if (choice < 0) {
        lvni_core_print(stderr, "error: %s `%s`: expected true or false\n", key, value);
        *wrong = true;
        return false;
    }
    *on = choice % 2 == 0;
    return true;
}

static int dlc(int n, const char *const *args)
{
    lvni_pose_dlc_options o = {.videos = true};
    const char *path[2] = {NULL, NULL};
    int paths = 0;
    for (int i = 0; i < n; i++) {
        bool wrong = false;
        if (take_switch(args[i], "videos", &o.videos, &wrong) ||
            take_switch(args[i], "link", &o.link, &wrong)) {
            continue;
        }
        if (wrong) {
            return LVNI_EXIT_USAGE;
        }
        if (args[i][0] == '-' || paths == 2) {
            lvni_core_print(stderr,
                            "error: levin data dlc does not take %s; it takes a project of "
                            "DeepLabCut and the folder of the new one\n",
                            args[i]);
            return LVNI_EXIT_USAGE;
        }
        path[paths++] = args[i];
    }
    if (paths < 2) {
        fprintf(stderr, "error: levin data dlc: %s is missing\n",
                paths == 0 ? "the project of DeepLabCut" : "the folder of the new project");
        return lvni_cli_command_misused("data");
    }
    o.in = path[0];
    o.out = path[1];
    lvni_core_str report = {0};
    const lvn_status s = lvni_pose_dlc_convert(&o, &report);
    fputs(lvni_core_str_text(&report), stdout);
    lvni_core_str_free(&report);
    return lvni_run_report_status(s);
}

/* All but json= are keys of the training. */
static int check(int n, const char *const *args)
{
    enum { MOST = 1024 };
    const char *rest[MOST];
    int keys = 0;
    bool json = false, wrong = false, clean = false;
    if (n == 0 || n > MOST) {
        fprintf(stderr, "error: levin data check: %s\n",
                n == 0 ? "config=FILE is missing: the configuration of the project"
                       : "too many arguments");
        return lvni_cli_command_misused("data");
    }
    for (int i = 0; i < n; i++) {
        if (!take_switch(args[i], "json", &json, &wrong)) {
            rest[keys++] = args[i];
        }
    }
    if (wrong) {
        return LVNI_EXIT_USAGE;
    }
    const lvn_status s = lvni_pose_data_check(keys, rest, json, &clean);
    return s != LVN_OK ? lvni_run_report_status(s) : clean ? LVNI_EXIT_OK : LVNI_EXIT_FAILURE;
}

int lvni_cli_cmd_data(int n, const char *const *args)
{
    static const struct {
        const char *name;
        int (*run)(int n, const char *const *args);
    } all[] = {{"dlc", dlc}, {"check", check}};
    for (size_t i = 0; n > 0 && i < sizeof all / sizeof *all; i++) {
        if (strcmp(args[0], all[i].name) == 0) {
            return all[i].run(n - 1, args + 1);
        }
    }
    if (n > 0) {
        lvni_core_print(stderr, "error: there is no levin data %s\n", args[0]);
    }
    return lvni_cli_command_misused("data");
}
