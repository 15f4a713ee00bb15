/* levin help [TOPIC]: the commands, or usage and option table of one of them. */
#include "cli/cli.h"
#include "core/escape.h"
#include "core/exit_code.h"

#include <levin/version.h>
#include <stdio.h>
#include <string.h>

static void print_overview(FILE *out)
{
    fputs("levin " LEVIN_VERSION ": training of neural networks, the same bits on every layout\n\n", out);
    for (int i = 0; i < lvni_n_commands; i++) {
        const lvni_command *c = &lvni_commands[i];
        for (int k = 0; k < LVNI_COMMAND_USES && c->use[k].usage != NULL; k++) {
            fprintf(out, "  %-47s %s\n", c->use[k].usage, c->use[k].help);
        }
    }
    fputs("\nKeys come from the command line or from config=FILE (YAML). First try:\n"
          "  levin train classify data=builtin:shapes model=cnn out=out/first\n",
          out);
}

/* The name of a command, or the topic of its keys: "train.classify". */
static const lvni_command *find_topic(const char *topic)
{
    const lvni_command *named = lvni_command_find(topic);
    for (int i = 0; i < lvni_n_commands && named == NULL; i++) {
        const lvni_command *c = &lvni_commands[i];
        named = c->tables != NULL && strcmp(topic, c->topic) == 0 ? c : NULL;
    }
    return named != NULL || strcmp(topic, "classify") != 0 ? named : lvni_command_find("train");
}

int lvni_cmd_help(int n, const char *const *words)
{
    if (n == 0) {
        print_overview(stdout);
        return LVNI_EXIT_OK;
    }
    const lvni_command *c = find_topic(words[0]);
    if (c == NULL) {
        const char *near = lvni_command_near(words[0]);
        lvni_print(stderr, "error: there is no help on %s%s%s%s\n", words[0],
                   near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                   near != NULL ? "?" : "");
        print_overview(stderr);
        return LVNI_EXIT_USAGE;
    }
    lvni_command_print_help(c);
    return LVNI_EXIT_OK;
}
