/* levin help [TOPIC]: the commands, or usage and option table of one of them. */
#include "cli/cli.h"
#include "core/error.h"

#include <levin/version.h>
#include <stdio.h>
#include <string.h>

static void print_overview(FILE *out)
{
    fputs("levin " LEVIN_VERSION ": training of neural networks, the same bits on every layout\n\n",
          out);
    for (int i = 0; i < lvni_cli_n_commands; i++) {
        const lvni_cli_command *c = &lvni_cli_commands[i];
        for (int k = 0; k < LVNI_COMMAND_USES && c->use[k].usage != NULL; k++) {
            fprintf(out, "  %-47s %s\n", c->use[k].usage, c->use[k].help);
        }
    }
    fputs("\nKeys come from the command line or from config=FILE (YAML). First try:\n"
          "  levin train classify data=builtin:shapes model=cnn out=out/first\n",
          out);
}

/* The name of a command, or the topic of its keys: "train.classify". */
static const lvni_cli_command *find_topic(const char *topic)
{
    const lvni_cli_command *named = lvni_cli_command_find(topic);
    named = named != NULL ? named : lvni_cli_command_of_topic(topic);
    return named != NULL || strcmp(topic, "classify") != 0 ? named : lvni_cli_command_find("train");
}

int lvni_cli_cmd_help(int n, const char *const *words)
{
    if (n == 0) {
        print_overview(stdout);
        return LVNI_EXIT_OK;
    }
    const lvni_cli_command *c = find_topic(words[0]);
    if (c == NULL) {
        return lvni_cli_help_key(NULL, words[0], lvni_cli_command_near(words[0]));
    }
    const bool recipe = n > 2 && strcmp(words[1], "classify") == 0;
    if (n > 1 && c->topic != NULL && (recipe || strcmp(words[1], "classify") != 0)) {
        return lvni_cli_help_key(c, words[recipe ? 2 : 1], NULL);
    }
    lvni_cli_command_print_help(c);
    return LVNI_EXIT_OK;
}
