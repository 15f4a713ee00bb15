/* levin COMMAND [key=value ...]: looks the command up and runs it. Nothing else happens before. */
#include "cli/cli.h"
#include "core/edit_distance.h"
#include "core/exit_code.h"
#include "kernels/kernels.h"

#include <levin/version.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const struct command {
    const char *name;
    int (*run)(int n, const char *const *words);
    bool computes; /* uses the cpu backend: the environment must be clean */
} commands[] = {
    {"train", lvni_cmd_train, true}, {"predict", lvni_cmd_predict, true}, {"eval", lvni_cmd_eval, true},
    {"plan", lvni_cmd_plan, true},   {"ckpt", lvni_cmd_ckpt, false},      {"ops", lvni_cmd_ops, false},
    {"export", lvni_cmd_export, false}, {"help", lvni_cmd_help, false},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static int unknown(const char *name)
{
    const char *near = NULL;
    size_t nearest = SIZE_MAX;
    for (int i = 0; i < COMMANDS; i++) {
        const size_t d = lvni_edit_distance(name, commands[i].name);
        if (d <= lvni_edit_limit(name, commands[i].name) && d < nearest) {
            near = commands[i].name;
            nearest = d;
        }
    }
    fprintf(stderr, "error: unknown command %s%s%s%s; `levin help` lists all\n", name, near != NULL ? "; did you mean " : "",
            near != NULL ? near : "", near != NULL ? "?" : "");
    return LVNI_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    const char *const *words = (const char *const *)argv;
    if (argc < 2) {
        fputs("error: a command is missing: levin COMMAND [key=value ...]\n", stderr);
        lvni_cmd_help(0, NULL);
        return LVNI_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("levin " LEVIN_VERSION);
        return LVNI_EXIT_OK;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        return lvni_cmd_help(0, NULL);
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            if (commands[i].computes) {
                lvni_cpu_clean_environment(argv);
            }
            return commands[i].run(argc - 2, words + 2);
        }
    }
    return unknown(argv[1]);
}
