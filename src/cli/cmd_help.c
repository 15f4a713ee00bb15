/* levin help [TOPIC] [KEY]: the commands; usage and option table of one of them; or the rows of one
 * key in all commands. */
#include "cli/cli.h"
#include "core/config_impl.h"
#include "core/error.h"
#include "core/escape.h"
#include "recipes/registry.h"
#include "recipes/user/user_recipe.h"
#include "run/error_record.h"

#include <levin/version.h>
#include <stdio.h>
#include <string.h>

enum { NAME_MAX_BYTES = 128 };

/* ---- one key ---- */

/* The rows of one topic. */
typedef struct keys {
    lvni_cli_topic topic;
    lvni_core_config *config;
} keys;

static lvn_status open_keys(const lvni_cli_topic *topic, keys *k)
{
    *k = (keys){.topic = *topic};
    return lvni_cli_topic_defaults(topic, &k->config);
}

/* Is the row what the key means, or does its name begin with "key."? */
static bool is_asked(const keys *k, const lvni_core_option *row, const char *key)
{
    const size_t n = strlen(key);
    return row == lvni_core_config_row(k->config, key) ||
           (strncmp(row->name, key, n) == 0 && row->name[n] == '.');
}

/* "      Taken as well: opt, optimizer." */
static void print_foreign(const lvni_core_option *row)
{
    bool any = false;
    for (size_t i = 0; i < lvni_core_foreign_table_n; i++) {
        const lvni_core_foreign *entry = &lvni_core_foreign_table[i];
        const bool same = entry->key != NULL && strcmp(entry->key, row->name) == 0;
        for (const char *p = same ? entry->names : NULL; p != NULL;) {
            const size_t n = strcspn(p, "|");
            printf("%s%.*s", any ? ", " : "      Taken as well: ", (int)n, p);
            any = true;
            p = p[n] == '|' ? p + n + 1 : NULL;
        }
    }
    fputs(any ? ".\n" : "", stdout);
}

static bool has_row(const lvni_cli_topic *topic, const lvni_core_option *row)
{
    for (lvni_core_option_list t = topic->keys; *t != NULL; t++) {
        if (row >= (*t)->rows && row < (*t)->rows + (*t)->n) {
            return true;
        }
    }
    return false;
}

/* Has a topic in front of this one the same row under that name? Then it was printed there. Another
 * command's name for the row may be this topic's alone, as LightlyTrain's are pretrain's. */
static bool is_repeated(const lvni_core_option *row, const char *key, const lvni_cli_topic *of)
{
    lvni_cli_topic before;
    bool found = false;
    for (int i = 0; !found && lvni_cli_topic_at(i, &before) && strcmp(before.name, of->name) != 0;
         i++) {
        keys k;
        if (has_row(&before, row) && open_keys(&before, &k) == LVN_OK) {
            found = is_asked(&k, row, key);
            lvni_core_config_destroy(k.config);
        }
    }
    return found;
}

/* "      The same in: train.gan (default 20)." */
static void print_other_topics(const keys *k, const lvni_core_option *row)
{
    lvni_cli_topic other;
    const char *here = lvni_core_option_default(row, k->config);
    bool any = false, behind = false;
    for (int i = 0; lvni_cli_topic_at(i, &other); i++) {
        keys o;
        const bool same = strcmp(other.name, k->topic.name) == 0;
        behind = behind || same;
        if (same || !behind || !has_row(&other, row) || open_keys(&other, &o) != LVN_OK) {
            continue;
        }
        const char *there = lvni_core_option_default(row, o.config);
        printf("%s%s", any ? ", " : "      The same in: ", other.name);
        if (strcmp(here, there) != 0) {
            printf(" (default %s)", there);
        }
        any = true;
        lvni_core_config_destroy(o.config);
    }
    fputs(any ? ".\n" : "", stdout);
}

static int print_rows(const keys *k, const char *key, bool all)
{
    int n = 0;
    for (lvni_core_option_list t = k->topic.keys; *t != NULL; t++) {
        for (size_t i = 0; i < (*t)->n; i++) {
            const lvni_core_option *row = &(*t)->rows[i];
            if (row->alias_of != NULL || !is_asked(k, row, key) ||
                (all && is_repeated(row, key, &k->topic))) {
                continue;
            }
            if (n++ == 0) {
                printf("levin help %s\n", k->topic.name);
            }
            lvni_core_option_print_row(k->topic.keys, row, k->config, stdout);
            print_foreign(row);
            if (all) {
                print_other_topics(k, row);
            }
        }
    }
    return n;
}

/* No row: another trainer's key, or a typing mistake of a key or a command. */
static int report_unknown(const keys *k, const char *key, const char *near)
{
    const lvni_core_foreign *entry = lvni_core_config_foreign(k->config, key);
    const bool hint_only = entry != NULL && entry->hint != NULL;
    if (!hint_only && near != NULL) {
        lvni_core_print(stderr, "error: there is no help on %s; did you mean %s?\n", key, near);
        return LVNI_EXIT_USAGE;
    }
    if (!hint_only) {
        char help[NAME_MAX_BYTES];
        snprintf(help, sizeof help, "levin help %s", k->topic.name);
        lvni_core_config_set_help(k->config, help);
        return lvni_run_report_status(lvni_core_config_unknown(k->config, key, "levin help"));
    }
    lvni_core_str hint = {0};
    lvni_core_foreign_print_hint(entry, &hint);
    const lvn_status s = lvni_core_str_status(&hint);
    if (s == LVN_OK) {
        lvni_core_print(stdout, "%s is not in this version: %s\n", key, lvni_core_str_text(&hint));
    }
    lvni_core_str_free(&hint);
    return lvni_run_report_status(s);
}

/* As rows are written: "--batch-size" is batch_size. */
static void clean(const char *key, char name[NAME_MAX_BYTES])
{
    const bool dashes = strncmp(key, "--", 2) == 0;
    snprintf(name, NAME_MAX_BYTES, "%s", key + (dashes ? 2 : 0));
    name[strcspn(name, "=")] = '\0';
    for (char *p = name; *p != '\0' && name[0] != '-'; p++) {
        *p = *p == '-' ? '_' : *p;
    }
}

/* The rows of this key in all topics (`of`: in that one alone), or what else is known of it. near:
 * the command that the key may have meant, or NULL. Returns the exit code. */
static int help_key(const lvni_cli_topic *of, const char *key, const char *near)
{
    char name[NAME_MAX_BYTES];
    int n = 0, code = LVNI_EXIT_OK;
    keys k;
    lvni_cli_topic topic;
    clean(key, name);
    for (int i = 0; of != NULL ? i == 0 : lvni_cli_topic_at(i, &topic); i++) {
        topic = of != NULL ? *of : topic;
        const lvn_status s = open_keys(&topic, &k);
        if (s != LVN_OK) {
            return lvni_run_report_status(s);
        }
        n += print_rows(&k, name, of == NULL);
        lvni_core_config_destroy(k.config);
    }
    if (n == 0 && (of != NULL || lvni_cli_topic_at(0, &topic))) {
        const lvn_status s = open_keys(of != NULL ? of : &topic, &k);
        code = s == LVN_OK ? report_unknown(&k, name, near) : lvni_run_report_status(s);
        lvni_core_config_destroy(k.config);
    }
    return code;
}

/* ---- the command ---- */

static void print_use(void *user, const char *usage, const char *help)
{
    fprintf(user, "  %-47s %s\n", usage, help);
}

static void print_overview(FILE *out)
{
    fputs("levin " LEVIN_VERSION ": training of neural networks, the same bits on every layout\n\n",
          out);
    for (int i = 0; i < lvni_cli_n_commands; i++) {
        lvni_cli_command_each_use(&lvni_cli_commands[i], print_use, out);
    }
    fputs("\nlevin pretrain, as every recipe, is levin train pretrain, and levin plan pretrain is "
          "levin "
          "plan train pretrain.\n"
          "Keys come from the command line or from config=FILE (YAML). First try:\n"
          "  levin train classify data=builtin:shapes model=cnn out=out/first\n",
          out);
}

/* A command: by its name, by the topic of its keys ("train.classify"), by a recipe. */
static const lvni_cli_command *find_command(const char *name)
{
    lvni_cli_topic t;
    const lvni_cli_command *c = lvni_cli_command_find(name);
    return c == NULL && lvni_cli_topic_find(name, &t) ? t.command : c;
}

/* levin help ./mine.so [KEY] */
static int help_file(int n, const char *const *args)
{
    const lvni_run_recipe *recipe;
    lvni_cli_topic t;
    const lvni_cli_command *train = lvni_cli_command_find("train");
    const lvn_status s = lvni_user_load(args[0], lvni_recipes_find, &recipe);
    if (s != LVN_OK || !lvni_cli_topic_of(train, args[0], &t)) {
        return lvni_run_report_status(s);
    }
    if (n > 1) {
        return help_key(&t, args[1], NULL);
    }
    lvni_cli_command_print_help_of(train, args[0]);
    return LVNI_EXIT_OK;
}

/* Is it one of those that the command's first argument may be? */
static bool has_word(const lvni_cli_command *c, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = c->words; at != NULL && *at != '\0'; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        if (length == n && memcmp(at, word, n) == 0) {
            return true;
        }
        at += length;
    }
    return false;
}

int lvni_cli_cmd_help(int n, const char *const *args)
{
    if (n == 0) {
        print_overview(stdout);
        return LVNI_EXIT_OK;
    }
    if (lvni_user_is_file(args[0])) {
        return help_file(n, args);
    }
    const lvni_cli_command *c = find_command(args[0]);
    if (c == NULL) {
        return help_key(NULL, args[0], lvni_cli_command_near(args[0]));
    }
    if (n > 1 && has_word(c, args[1])) { /* levin help tune lr [KEY]: on the whole command */
        n--;
        args++;
    }
    /* levin help train.classify KEY, levin help train classify KEY, levin help train KEY; a file in
     * place of the recipe */
    const bool named =
        n > 1 && (lvni_recipes_of_word(c->name, args[1]) != NULL || lvni_user_is_file(args[1]));
    const char *dot = strchr(args[0], '.'), *recipe = named         ? args[1]
                                                      : dot != NULL ? dot + 1
                                                                    : args[0];
    const int key = named ? 2 : 1;
    lvni_cli_topic t;
    if (n > key && lvni_cli_topic_of(c, recipe, &t)) {
        return help_key(&t, args[key], NULL);
    }
    lvni_cli_command_print_help_of(c, named ? args[1] : args[0]);
    return LVNI_EXIT_OK;
}
