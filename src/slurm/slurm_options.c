/* The table of a job script's options, and their values (slurm_options.h). */
#include "slurm/slurm_options.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "launch/env_vars.h"
#include "slurm/slurm_grammar.h"
#include "slurm/slurm_profiles.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- the table ---- */

#define TYPE_TEXT LVNI_OPT_STRING
#define TYPE_CHOICE LVNI_OPT_CHOICE
#define TYPE_BOOL LVNI_OPT_BOOL
#define TYPE_LIST LVNI_OPT_STRING_LIST
#define TYPE_PATH LVNI_OPT_PATH

const lvni_slurm_row lvni_slurm_rows[] = {
#define LVNI_SLURM_ROW(key, kind, fallback, choices, emits, there, letter, grammar, help)          \
    {#key, TYPE_##kind, LVNI_SLURM_##emits, there, letter, LVNI_SLURM_##grammar},
#include "slurm/slurm_options.def"
#undef LVNI_SLURM_ROW
};
const size_t lvni_slurm_n_rows = sizeof lvni_slurm_rows / sizeof *lvni_slurm_rows;

/* ${NAME} is the shell's. */
static const lvni_core_option options[] = {
#define LVNI_SLURM_ROW(key, kind, usual, values, emits, there, letter, grammar, text)              \
    {.name = #key,                                                                                 \
     .type = TYPE_##kind,                                                                          \
     .fallback = (usual),                                                                          \
     .choices = (values),                                                                          \
     .help = (text),                                                                               \
     .flags = LVNI_OPT_LITERAL},
#include "slurm/slurm_options.def"
#undef LVNI_SLURM_ROW
    {.name = "num_nodes", .alias_of = "nodes"},
    {.name = "num_workers", .alias_of = "workers"},
};
static const lvni_core_option_table table = LVNI_OPTION_TABLE("job script", options);
const lvni_core_option_table *const lvni_slurm_keys[] = {&table, NULL};

const lvni_slurm_row *lvni_slurm_row_find(const char *key)
{
    for (size_t i = 0; i < lvni_slurm_n_rows; i++) {
        if (strcmp(lvni_slurm_rows[i].key, key) == 0) {
            return &lvni_slurm_rows[i];
        }
    }
    return NULL;
}

const lvni_slurm_row *lvni_slurm_row_of_directive(const char *name)
{
    for (size_t i = 0; i < lvni_slurm_n_rows; i++) {
        const lvni_slurm_row *r = &lvni_slurm_rows[i];
        const bool directive =
            r->emission >= LVNI_SLURM_DIRECTIVE && r->emission <= LVNI_SLURM_MADE;
        if (directive && r->name != NULL && strcmp(r->name, name) == 0) {
            return r;
        }
    }
    return NULL;
}

const lvni_slurm_row *lvni_slurm_row_of_letter(char letter)
{
    for (size_t i = 0; i < lvni_slurm_n_rows; i++) {
        if (letter != 0 && lvni_slurm_rows[i].letter == letter) {
            return &lvni_slurm_rows[i];
        }
    }
    return NULL;
}

const lvni_slurm_row *lvni_slurm_row_shared(const char *key)
{
    static const char *const shared[][2] = {{"config", "config"},
                                            {"devices", "devices"},
                                            {"num_nodes", "nodes"},
                                            {"strategy", "strategy"},
                                            {"accelerator", "accelerator"},
                                            {"num_workers", "workers"},
                                            {"auto_requeue", "auto_requeue"},
                                            {"max_requeues", "max_requeues"}};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        if (strcmp(shared[i][0], key) == 0) {
            return lvni_slurm_row_find(shared[i][1]);
        }
    }
    return NULL;
}

/* ---- arguments ---- */

/* `--` ends the options, and is not a value. */
static bool has_next(int n, const char *const *args)
{
    return n > 1 && strcmp(args[1], "--") != 0;
}

int lvni_slurm_option_at(const lvni_core_config *config, int n, const char *const *args,
                         const lvni_slurm_row **row, const char **text)
{
    const char *arg = args[0], *name, *key = arg + (strncmp(arg, "--", 2) == 0 ? 2 : 0);
    const bool letter = arg[0] == '-' && isalpha((unsigned char)arg[1]);
    *row = NULL;
    *text = NULL;
    if (letter) {
        *row = lvni_slurm_row_of_letter(arg[1]);
        const bool alone = arg[2] == '\0', apart = alone && has_next(n, args);
        *text = apart ? args[1] : alone ? NULL : arg + 2 + (arg[2] == '=');
        return *row == NULL ? 0 : apart ? 2 : 1;
    }
    for (size_t i = 0; key != arg && i < lvni_slurm_n_rows; i++) {
        const lvni_slurm_row *r = &lvni_slurm_rows[i];
        const bool no = strncmp(key, "no-", 3) == 0 || strncmp(key, "no_", 3) == 0;
        if ((r->emission == LVNI_SLURM_OPTIONAL && strcmp(key, r->key) == 0) ||
            (no && r->type == LVNI_OPT_BOOL && lvni_core_config_row(config, key) == NULL &&
             lvni_core_config_row(config, key + 3) != NULL &&
             strcmp(lvni_core_config_row(config, key + 3)->name, r->key) == 0)) {
            *row = r;
            *text = r->emission == LVNI_SLURM_OPTIONAL ? "true" : "false";
            return 1;
        }
    }
    const int used =
        lvni_core_config_arguments_of(config, has_next(n, args) ? n : 1, args, &name, text);
    *row = used > 0 ? lvni_slurm_row_find(name) : NULL;
    if (*row != NULL && *text == NULL && (*row)->type == LVNI_OPT_BOOL) {
        *text = "true";
    }
    return *row != NULL ? used : 0;
}

/* "key=text", which lives as long as the options. */
static lvn_status make_argument(lvni_slurm_options *o, const char *key, const char *text,
                                const char **out)
{
    lvni_core_str s = {0};
    lvni_core_str_printf(&s, "%s=%s", key, text);
    LVN_TRY(lvni_core_str_status(&s));
    char *made = lvni_core_str_take(&s);
    o->made[o->n_made++] = made;
    *out = made;
    return LVN_OK;
}

bool lvni_slurm_has_value(int n, const char *const *args)
{
    return n > 1 && args[0][0] == '-' && strchr(args[0], '=') == NULL && args[1][0] != '-' &&
           strchr(args[1], '=') == NULL && strcmp(args[1], "train") != 0;
}

/* Options of sbatch that follow from others here. */
static bool is_sbatchs_own(const char *arg, int n, const char *const *args, lvni_slurm_findings *f,
                           int *used)
{
    static const struct {
        const char *name, *rule, *instead;
    } own[] = {{"ntasks", "V03",
                "the tasks follow from nodes and devices; of tasks that are not one group "
                "independent_tasks=N"},
               {"gres", "V01",
                "GPUs are devices=D, with gpu_type=TYPE and gpu_syntax=gres; other GRES "
                "are --sbatch gres=..."},
               {"gpus_per_node", "V01", "GPUs are devices=D, with gpu_type=TYPE"},
               {"gpus_per_task", "V01", "GPUs of a node are devices=D; each task has one"}};
    const bool letter = strncmp(arg, "-n", 2) == 0;
    const char *key = arg + (strncmp(arg, "--", 2) == 0 ? 2 : 0);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        size_t k = 0;
        while (own[i].name[k] != '\0' &&
               (key[k] == own[i].name[k] || (key[k] == '-' && own[i].name[k] == '_'))) {
            k++;
        }
        const bool same = own[i].name[k] == '\0' && (key[k] == '\0' || key[k] == '=');
        if (same || (letter && i == 0)) {
            const bool unknown = strcmp(own[i].rule, "V01") == 0;
            lvni_slurm_error(f, own[i].rule, "%s`%.60s`: %s  (command line)",
                             unknown ? "unknown key " : "", unknown ? own[i].name : arg,
                             own[i].instead);
            *used = (same && key[k] == '\0') || strcmp(arg, "-n") == 0
                        ? 1 + lvni_slurm_has_value(n, args)
                        : 1;
            return true;
        }
    }
    return false;
}

/* Each argument into the items or, as key=value, into `rest`. */
static lvn_status sort_arguments(lvni_slurm_options *o, int n, const char *const *args,
                                 lvni_slurm_findings *f, const char **rest, int *n_rest)
{
    const size_t prefix = strlen(LVNI_SLURM_PREFIX);
    for (int i = 0; i < n;) {
        const lvni_slurm_row *row;
        const char *text;
        const char *const *at = args + i;
        const bool dashes = strncmp(*at, "--" LVNI_SLURM_PREFIX, prefix + 2) == 0,
                   own_key = dashes || strncmp(*at, LVNI_SLURM_PREFIX, prefix) == 0;
        const char *own[2] = {*at, i + 1 < n ? at[1] : NULL};
        if (own_key && strchr(*at, '=') == NULL) {
            lvni_slurm_error(f, "V01",
                             "%s has no value: " LVNI_SLURM_PREFIX "KEY=VALUE  (command "
                             "line)",
                             *at);
            i++;
            continue;
        }
        own[0] += own_key ? prefix + (dashes ? 2 : 0) : 0;
        const int used = lvni_slurm_option_at(o->config, n - i, own, &row, &text);
        int passed = 0;
        if (used == 0 && is_sbatchs_own(own[0], n - i, own, f, &passed)) {
            i += passed;
            continue;
        }
        i += used > 0 ? used : 1;
        if (used == 0 || own[0][0] == '~') {
            rest[(*n_rest)++] = own[0]; /* the configuration words it */
            i += lvni_slurm_has_value(n - i + 1, own) ? 1 : 0;
        } else if (text == NULL) {
            lvni_slurm_error(f, "V01", "%s needs a value  (command line)", row->key);
        } else if (text[0] == '\0') { /* of a variable that is not set */
            lvni_slurm_error(f, "V01", "%s is empty: give a value, or omit it  (command line)",
                             row->key);
        } else if (row->type == LVNI_OPT_STRING_LIST) {
            o->items[o->n_items++] = (struct lvni_slurm_item){row, text};
        } else {
            LVN_TRY(make_argument(o, row->key, text, &rest[*n_rest]));
            ++*n_rest;
        }
    }
    return LVN_OK;
}

/* A mistake that the configuration has worded is a finding. */
static lvn_status as_finding(lvn_status s, lvni_slurm_findings *f)
{
    if (s == LVN_ERR_USAGE) {
        lvni_slurm_error(f, "V01", "%s", lvn_last_error()->message);
        lvn_clear_error();
        return LVN_OK;
    }
    return s;
}

static lvn_status load_layers(lvni_slurm_options *o, int n, const char *const *rest,
                              char *const *environment, lvni_slurm_findings *f)
{
    for (int i = 0; i < n; i++) { /* one by one, so that each mistake is a finding */
        LVN_TRY(as_finding(lvni_core_config_load_arguments(o->config, 1, rest + i), f));
    }
    const char *profile = lvni_slurm_text(o, "profile");
    if (profile != NULL) {
        LVN_TRY(as_finding(lvni_slurm_profile_load(o->config, profile, environment), f));
    }
    return as_finding(lvni_core_config_finish(o->config), f);
}

/* ---- values ---- */

static const char *const paths[LVNI_SLURM_PATHS] = {"venv",    "conda_base", "output",    "error",
                                                    "log_dir", "chdir",      "container", "out"};

/* Neither Slurm nor a word between quotes has a meaning for `~`. */
static lvn_status expand_paths(lvni_slurm_options *o, char *const *environment)
{
    const char *home = lvni_launch_env_get(environment, "HOME");
    for (size_t i = 0; home != NULL && home[0] != '\0' && i < LVNI_SLURM_PATHS; i++) {
        const char *text = lvni_slurm_given(o, paths[i]),
                   *path = text != NULL && text[0] == '?' ? text + 1 : text;
        if (path != NULL && path[0] == '~' && (path[1] == '/' || path[1] == '\0')) {
            lvni_core_str s = {0};
            lvni_core_str_printf(&s, "%s%s%s", path > text ? "?" : "", home, path + 1);
            LVN_TRY(lvni_core_str_status(&s));
            o->paths[i] = o->made[o->n_made++] = lvni_core_str_take(&s);
        }
    }
    return LVN_OK;
}

const char *lvni_slurm_given(const lvni_slurm_options *o, const char *key)
{
    for (size_t i = 0; i < LVNI_SLURM_PATHS; i++) {
        if (o->paths[i] != NULL && strcmp(paths[i], key) == 0) {
            return o->paths[i];
        }
    }
    return lvni_core_config_is_set(o->config, key) ? lvni_core_config_str(o->config, key) : NULL;
}

const char *lvni_slurm_text(const lvni_slurm_options *o, const char *key)
{
    const char *text = lvni_slurm_given(o, key);
    return text != NULL && text[0] == '?' ? NULL : text;
}

const char *lvni_slurm_comment(const lvni_slurm_options *o, const char *key)
{
    const char *text = lvni_slurm_given(o, key);
    return text != NULL && text[0] == '?' ? text + 1 : NULL;
}

bool lvni_slurm_is_on(const lvni_slurm_options *o, const char *key)
{
    return lvni_core_config_is_on(o->config, key);
}

int64_t lvni_slurm_number(const lvni_slurm_options *o, const char *key, int64_t fallback)
{
    const char *text = lvni_slurm_text(o, key);
    int64_t n;
    return text != NULL && lvni_slurm_count_read(text, 0, &n) ? n : fallback;
}

const char *lvni_slurm_item_at(const lvni_slurm_options *o, const char *key, size_t i)
{
    bool given = false;
    for (size_t k = 0; k < o->n_items; k++) {
        if (strcmp(o->items[k].row->key, key) == 0) {
            given = true;
            if (i-- == 0) {
                return o->items[k].text;
            }
        }
    }
    size_t n;
    const char *const *list = lvni_core_config_str_list(o->config, key, &n);
    return !given && i < n ? list[i] : NULL;
}

const char *lvni_slurm_origin(const lvni_slurm_options *o, const char *key)
{
    for (size_t k = 0; k < o->n_items; k++) {
        if (strcmp(o->items[k].row->key, key) == 0) {
            return "command line";
        }
    }
    return lvni_core_config_origin(o->config, key);
}

/* ---- checks of each value ---- */

static bool may_be_comment(const lvni_slurm_row *row)
{
    return row->emission != LVNI_SLURM_NOTHING && row->emission != LVNI_SLURM_SRUN &&
           strcmp(row->key, "shebang") != 0;
}

static void check_one(const lvni_slurm_options *o, const lvni_slurm_row *row, const char *text,
                      lvni_slurm_findings *f)
{
    const char *where = lvni_slurm_origin(o, row->key);
    if (text[0] == '?' && !may_be_comment(row)) {
        lvni_slurm_error(f, "V01",
                         "%s `%.80s`: `?` makes a comment of a line, and this is not one "
                         " (%s)",
                         row->key, text, where);
        return;
    }
    lvni_slurm_value_check(row->grammar, row->key, text + (text[0] == '?'), where, f);
}

static void check_values(const lvni_slurm_options *o, lvni_slurm_findings *f)
{
    for (size_t i = 0; i < lvni_slurm_n_rows; i++) {
        const lvni_slurm_row *row = &lvni_slurm_rows[i];
        const char *text;
        if (row->type == LVNI_OPT_STRING_LIST) {
            for (size_t k = 0; (text = lvni_slurm_item_at(o, row->key, k)) != NULL; k++) {
                check_one(o, row, text, f);
            }
        } else if (row->type != LVNI_OPT_BOOL && (text = lvni_slurm_given(o, row->key)) != NULL) {
            check_one(o, row, text, f);
        }
    }
}

/* ---- all of them ---- */

lvn_status lvni_slurm_options_load(int n, const char *const *args, char *const *environment,
                                   lvni_slurm_findings *f, lvni_slurm_options *out)
{
    *out = (lvni_slurm_options){0};
    LVN_TRY(lvni_core_config_create(lvni_slurm_keys, &out->config));
    lvni_core_config_set_help(out->config, "levin help slurm");
    lvni_core_config_set_section(out->config, "slurm");
    const size_t room = (size_t)n + 1 + LVNI_SLURM_PATHS;
    const char **rest = lvni_core_calloc(LVNI_TAG_CONFIG, room, sizeof *rest);
    out->items = lvni_core_calloc(LVNI_TAG_CONFIG, room, sizeof *out->items);
    out->made = lvni_core_calloc(LVNI_TAG_CONFIG, room, sizeof *out->made);
    int n_rest = 0;
    lvn_status s;
    LVNI_TRY_DONE(s, rest == NULL || out->items == NULL || out->made == NULL ? LVN_ERR_MEMORY
                                                                             : LVN_OK);
    LVNI_TRY_DONE(s, sort_arguments(out, n, args, f, rest, &n_rest));
    LVNI_TRY_DONE(s, load_layers(out, n_rest, rest, environment, f));
    LVNI_TRY_DONE(s, expand_paths(out, environment));
    check_values(out, f);
done:
    lvni_core_free(rest);
    return s;
}

void lvni_slurm_options_free(lvni_slurm_options *o)
{
    lvni_core_config_destroy(o->config);
    lvni_core_free(o->items);
    for (size_t i = 0; i < o->n_made; i++) {
        lvni_core_free(o->made[i]);
    }
    lvni_core_free(o->made);
    *o = (lvni_slurm_options){0};
}

void lvni_slurm_print_origins(const lvni_slurm_options *o, lvni_core_str *out)
{
    for (size_t i = 0; i < lvni_slurm_n_rows; i++) {
        const lvni_slurm_row *row = &lvni_slurm_rows[i];
        const char *key = row->key, *where = lvni_slurm_origin(o, key), *text;
        if (strcmp(where, "default") == 0) {
            continue;
        }
        if (row->type == LVNI_OPT_STRING_LIST) {
            for (size_t k = 0; (text = lvni_slurm_item_at(o, key, k)) != NULL; k++) {
                lvni_core_str_message(out, "%s=%s  (%s)\n", key, text, where);
            }
        } else if (row->type == LVNI_OPT_BOOL) {
            lvni_core_str_message(out, "%s=%s  (%s)\n", key,
                                  lvni_slurm_is_on(o, key) ? "true" : "false", where);
        } else {
            text = lvni_slurm_given(o, key);
            lvni_core_str_message(out, "%s=%s  (%s)\n", key, text != NULL ? text : "", where);
        }
    }
}
