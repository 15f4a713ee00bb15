/* Every name that the other trainers take has an answer, and what the table of foreign names
 * claims is true. */
#include "core/config_impl.h"
#include "launch/launch.h"
#include "launch/launch_options.h"
#include "recipes/classify/classify.h"

#include <ctype.h>

#include "slurm/slurm_options.h"
#include "support/test.h"
#include "sweep/sweep_options.h"
#include <string.h>

enum { COMMANDS = 7, TRAIN = 0, LAUNCH = 4, NAME = 128 };

static const lvni_core_option_table *const sweep_keys[] = {&lvni_sweep_plan_table, NULL};

static lvni_core_option_list keys_at(int command)
{
    const lvni_run_recipe *r = &lvni_classify_recipe;
    const lvni_core_option_list all[COMMANDS] = {r->keys,        r->predict_keys,  r->eval_keys,
                                                 r->export_keys, lvni_launch_keys, sweep_keys,
                                                 lvni_slurm_keys};
    return all[command];
}

static lvni_core_config *open_command(int command)
{
    lvni_core_config *c;
    assert_int_equal(lvni_core_config_create(keys_at(command), &c), LVN_OK);
    return c;
}

static bool take(lvni_core_config *c, const char *word)
{
    return lvni_core_config_load_arguments(c, 1, &word) == LVN_OK;
}

/* A row of this command, or a sentence for it. */
static void answers_list(const char *list, int command)
{
    char path[512], name[NAME];
    int n = 0;
    snprintf(path, sizeof path, "%s/%s.txt", LEVIN_FOREIGN_NAMES, list);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    lvni_core_config *c = open_command(command);
    while (fgets(name, sizeof name, f) != NULL) {
        name[strcspn(name, "\n")] = '\0';
        const char *key = command == LAUNCH ? lvni_launch_short_form(name) : name;
        key += strncmp(key, "--", 2) == 0 ? 2 : 0;
        const lvni_core_foreign *entry = lvni_core_config_foreign(c, key);
        if (lvni_core_config_target(c, key) == NULL && (entry == NULL || entry->hint == NULL)) {
            fail_msg("%s: `%s` gets no answer", list, name);
        }
        n++;
    }
    assert_true(n > 20);
    fclose(f);
    lvni_core_config_destroy(c);
}

TEST(every_name_of_other_trainers_is_answered)
{
    answers_list("lightning", TRAIN);
    answers_list("timm", TRAIN);
    answers_list("keras", TRAIN);
}

TEST(every_option_of_torchrun_is_answered)
{
    answers_list("torchrun", LAUNCH);
}

/* "{max_steps}=1" of a hint is a word that the command takes; capitals stand for a value of the
 * user's. */
static void check_values(lvni_core_config *c, const lvni_core_foreign *entry)
{
    char key[NAME], word[2 * NAME];
    for (const char *at = entry->hint; lvni_core_foreign_next_key(&at, key, sizeof key);) {
        const bool list = at[0] == '=' && at[1] == '[';
        const size_t n = at[0] != '=' ? 0 : list ? strcspn(at, "]") + 1 : strcspn(at, " ,;'");
        if (n > 1 && !isupper((unsigned char)at[1]) && at[1] != '\'' &&
            !(list && isupper((unsigned char)at[2]))) {
            snprintf(word, sizeof word, "%s%.*s", key, (int)n, at);
            if (!take(c, word)) {
                fail_msg("%s: %s", entry->hint, lvn_last_error()->message);
            }
        }
    }
}

static bool has_keys(const lvni_core_config *c, const lvni_core_foreign *entry)
{
    char key[NAME];
    for (const char *at = entry->hint; lvni_core_foreign_next_key(&at, key, sizeof key);) {
        if (lvni_core_config_find(c, key) == NULL) {
            return false;
        }
    }
    return true;
}

TEST(sentences_name_keys_and_values_that_exist)
{
    for (size_t i = 0; i < lvni_core_foreign_table_n; i++) {
        const lvni_core_foreign *entry = &lvni_core_foreign_table[i];
        assert_true((entry->key == NULL) != (entry->hint == NULL));
        bool used = entry->key != NULL;
        for (int k = 0; k < COMMANDS && !used; k++) {
            lvni_core_config *c = open_command(k);
            used = has_keys(c, entry);
            if (used) {
                check_values(c, entry);
            }
            lvni_core_config_destroy(c);
        }
        if (!used) {
            fail_msg("no command has all keys of: %s", entry->hint);
        }
    }
}

/* Is the entry what some command finds by this name? An alias must be of a row itself. */
static bool is_found(const lvni_core_foreign *entry, const char *name)
{
    bool found = false;
    for (int k = 0; k < COMMANDS && !found; k++) {
        lvni_core_config *c = open_command(k);
        found =
            lvni_core_config_find(c, name) == NULL && lvni_core_config_foreign(c, name) == entry;
        if (found && entry->key != NULL) {
            const lvni_core_slot *slot = lvni_core_config_target(c, name);
            assert_non_null(slot);
            assert_null(slot->row->alias_of);
        }
        lvni_core_config_destroy(c);
    }
    return found;
}

/* A row that takes other names, too: the code that looks them up asks for the sentence
 * (run/devices.c). */
static bool is_left_open(lvni_core_config *c, const char *word)
{
    char key[NAME];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(word, "="), word);
    const lvni_core_slot *slot = lvni_core_config_target(c, key);
    return slot != NULL && (slot->row->flags & LVNI_OPT_OPEN) != 0 &&
           lvni_core_option_is_foreign(slot->row, word + strlen(key) + 1);
}

/* A value of the table is one that the row refuses, and then the table's sentence is the error. */
static bool is_refused(const char *word)
{
    bool refused = false;
    for (int k = 0; k < COMMANDS && !refused; k++) {
        lvni_core_config *c = open_command(k);
        refused = take(c, word)
                      ? is_left_open(c, word)
                      : strstr(lvn_last_error()->message, "is not in this version: ") != NULL;
        lvni_core_config_destroy(c);
    }
    return refused;
}

TEST(every_name_of_the_table_is_in_use)
{
    for (size_t i = 0; i < lvni_core_foreign_table_n; i++) {
        const lvni_core_foreign *entry = &lvni_core_foreign_table[i];
        for (const char *p = entry->names; p != NULL;) {
            const size_t n = strcspn(p, "|");
            char name[NAME];
            snprintf(name, sizeof name, "%.*s", (int)n, p);
            name[strcspn(name, "*")] = '\0';
            if (strchr(name, '=') != NULL ? !is_refused(name) : !is_found(entry, name)) {
                fail_msg("`%s` never gets the answer of its row", name);
            }
            p = p[n] == '|' ? p + n + 1 : NULL;
        }
    }
}

TEST(spelling_comes_behind_meaning)
{
    lvni_core_config *c = open_command(TRAIN);
    assert_string_equal(lvni_core_config_target(c, "wd")->row->name, "optim.weight_decay");
    assert_string_equal(lvni_core_config_target(c, "Batch-Size")->row->name, "batch_size");
    assert_string_equal(lvni_core_config_target(c, "optimizer")->row->name, "optim.name");
    assert_null(lvni_core_config_target(c, "optimzer"));
    lvni_core_config_destroy(c);
}
