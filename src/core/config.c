/* The slots of a configuration (config.h): finding them, loading defaults, assigning values by
 * layer, and the checks after the last layer. The layers are read by config_arguments.c and
 * config_yaml.c; values are read and written out by config_values.c. */
#include "core/config_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- finding keys ---- */

static bool same_key(const char *name, const char *key)
{
    for (; *name != '\0' && *key != '\0'; name++, key++) {
        if (*name != (*key == '-' ? '_' : (char)tolower((unsigned char)*key))) {
            return false;
        }
    }
    return *name == *key;
}

lvni_core_slot *lvni_core_config_find(const lvni_core_config *config, const char *key)
{
    for (size_t i = 0; i < config->n; i++) {
        if (same_key(config->slots[i].row->name, key)) {
            return &config->slots[i];
        }
    }
    return NULL;
}

bool lvni_core_config_is_prefix(const lvni_core_config *config, const char *prefix)
{
    const size_t n = strlen(prefix);
    for (size_t i = 0; i < config->n; i++) {
        const char *name = config->slots[i].row->name;
        size_t k = 0;
        while (k < n && name[k] != '\0' && name[k] == (prefix[k] == '-' ? '_' : prefix[k])) {
            k++;
        }
        if (k == n && name[n] == '.') {
            return true;
        }
    }
    return false;
}

/* ---- tables ---- */

static lvn_status resolve_alias(const lvni_core_config *config, lvni_core_slot *slot)
{
    const lvni_core_slot *other = lvni_core_config_find(config, slot->row->alias_of);
    if (other == NULL || other->row->alias_of != NULL) {
        LVN_FAIL(LVN_ERR_INTERNAL, "option table: `%s` is an alias of `%s`, which is not a row",
                 slot->row->name, slot->row->alias_of);
    }
    slot->target = other->row;
    return LVN_OK;
}

static lvn_status load_default(lvni_core_slot *slot)
{
    const lvni_core_option *row = slot->row;
    if (row->type == LVNI_OPT_CHOICE && row->choices == NULL) {
        LVN_FAIL(LVN_ERR_INTERNAL, "option table: `%s` has no choices", row->name);
    }
    slot->origin = lvni_core_strdup(LVNI_TAG_CONFIG, "default");
    if (slot->origin == NULL) {
        return LVN_ERR_MEMORY;
    }
    slot->target = row;
    slot->layer = LVNI_LAYER_DEFAULT;
    const lvn_status status = lvni_core_option_parse(
        row, row->fallback != NULL ? row->fallback : "", false, "default", &slot->value);
    if (status == LVN_ERR_USAGE) {
        LVN_FAIL(LVN_ERR_INTERNAL, "option table: the default of `%s` does not fit its own row",
                 row->name);
    }
    return status;
}

static lvn_status fill_slots(lvni_core_config *config, lvni_core_option_list tables)
{
    for (; *tables != NULL; tables++) {
        for (size_t i = 0; i < (*tables)->n; i++) {
            const lvni_core_option *row = &(*tables)->rows[i];
            if (lvni_core_config_find(config, row->name) != NULL) {
                LVN_FAIL(LVN_ERR_INTERNAL, "option table: two rows are called `%s`", row->name);
            }
            config->slots[config->n++].row = row;
        }
    }
    for (size_t i = 0; i < config->n; i++) {
        lvni_core_slot *slot = &config->slots[i];
        LVN_TRY(slot->row->alias_of != NULL ? resolve_alias(config, slot) : load_default(slot));
    }
    return LVN_OK;
}

lvn_status lvni_core_config_create(lvni_core_option_list tables, lvni_core_config **out)
{
    *out = NULL;
    size_t rows = 0;
    for (lvni_core_option_list t = tables; *t != NULL; t++) {
        rows += (*t)->n;
    }
    lvni_core_config *config = LVNI_NEW(LVNI_TAG_CONFIG, lvni_core_config);
    if (config == NULL) {
        return LVN_ERR_MEMORY;
    }
    config->slots = lvni_core_calloc(LVNI_TAG_CONFIG, rows, sizeof *config->slots);
    const lvn_status status = config->slots == NULL ? LVN_ERR_MEMORY : fill_slots(config, tables);
    if (status != LVN_OK) {
        lvni_core_config_destroy(config);
        return status;
    }
    *out = config;
    return LVN_OK;
}

void lvni_core_config_destroy(lvni_core_config *config)
{
    if (config == NULL) {
        return;
    }
    for (size_t i = 0; config->slots != NULL && i < config->n; i++) {
        lvni_core_value_free(&config->slots[i].value);
        lvni_core_free(config->slots[i].origin);
        lvni_core_free(config->slots[i].spelled);
        lvni_core_free(config->slots[i].open);
        lvni_core_free(config->slots[i].job);
    }
    lvni_core_free(config->slots);
    lvni_core_str_free(&config->notes);
    lvni_core_str_free(&config->mistakes);
    lvni_core_free(config);
}

void lvni_core_config_set_help(lvni_core_config *config, const char *command)
{
    config->help_command = command;
}

void lvni_core_config_set_section(lvni_core_config *config, const char *section)
{
    config->section = section;
}

/* ---- one assignment ---- */

/* Another name of the key has given a value in this file or on this command line. */
static bool stands_beside(const lvni_core_slot *slot, const lvni_core_assignment *a)
{
    return slot->spelled != NULL && slot->layer == a->layer && slot->source == a->source &&
           !same_key(slot->spelled, a->key);
}

/* On a command line the last one wins, but two names of one key (an alias and the present name)
 * that disagree are a mistake. */
static lvn_status check_repeated(const lvni_core_slot *slot, const lvni_core_assignment *a,
                                 const lvni_core_value *value)
{
    if (!stands_beside(slot, a) || lvni_core_value_equal(slot->row, &slot->value, value)) {
        return LVN_OK;
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "`%.80s` (%.80s) and `%.80s` (%.80s) are two names of `%s` and differ; give one  (%s)",
             slot->spelled, slot->value.set ? slot->value.text : "unset", a->key,
             value->set ? value->text : "unset", slot->row->name, a->origin);
}

static char *key_copy(const char *key)
{
    char *copy = lvni_core_strdup(LVNI_TAG_CONFIG, key);
    for (char *p = copy; p != NULL && *p != '\0'; p++) {
        *p = *p == '-' ? '_' : *p;
    }
    return copy;
}

/* Takes *value in every case. */
static lvn_status store(lvni_core_slot *slot, const lvni_core_assignment *a, lvni_core_value *value)
{
    /* what ~key has given back follows the job, whenever that loads */
    if (a->layer < slot->layer && !(slot->back && a->layer == LVNI_LAYER_JOB)) {
        lvni_core_value_free(value);
        return LVN_OK;
    }
    char *origin = lvni_core_strdup(LVNI_TAG_CONFIG, a->origin);
    char *spelled = key_copy(a->key);
    if (origin == NULL || spelled == NULL) {
        lvni_core_free(origin);
        lvni_core_free(spelled);
        lvni_core_value_free(value);
        return LVN_ERR_MEMORY;
    }
    lvni_core_value_free(&slot->value);
    lvni_core_free(slot->origin);
    lvni_core_free(slot->spelled);
    lvni_core_free(slot->open);
    slot->open = NULL;
    slot->value = *value;
    slot->origin = origin;
    slot->spelled = spelled;
    slot->layer = slot->back && a->layer == LVNI_LAYER_JOB ? slot->layer : a->layer;
    slot->back = a->back || (slot->back && a->layer == LVNI_LAYER_JOB);
    slot->source = a->source;
    return LVN_OK;
}

/* What the program writes itself has null where there is no path. */
static bool is_empty_path(const lvni_core_option *row, const lvni_core_assignment *a)
{
    const bool given = a->layer == LVNI_LAYER_ARGUMENTS || a->layer == LVNI_LAYER_FILE ||
                       a->layer == LVNI_LAYER_JOB;
    const char *text = a->text;
    if (!a->quoted) { /* in quotes a name may be made of blanks */
        text += strspn(text, " \t\r\n");
        text += strcmp(text, "''") == 0 || strcmp(text, "\"\"") == 0 ? 2 : 0;
    }
    return row->type == LVNI_OPT_PATH && !a->back && given && *text == '\0';
}

/* "weights=$FILE" with an unset variable: training without would not be the requested run. *unset:
 * in a file it may be so. */
static lvn_status check_path(const lvni_core_option *row, const lvni_core_assignment *a,
                             bool *unset)
{
    const bool empty = is_empty_path(row, a);
    *unset = empty && a->layer == LVNI_LAYER_FILE && (row->flags & LVNI_OPT_EMPTY) != 0;
    if (!empty || *unset) {
        return LVN_OK;
    }
    LVN_FAIL(LVN_ERR_USAGE, "`%.80s`: the path is empty; give one, or omit the key  (%s)", a->key,
             a->origin);
}

/* The entry of a key that is another trainer's; NULL: it is a key of here. */
static const lvni_core_foreign *foreign_of(const lvni_core_config *config, const char *key)
{
    return lvni_core_config_find(config, key) != NULL ? NULL
                                                      : lvni_core_config_foreign(config, key);
}

static bool yields(const lvni_core_config *config, const char *key)
{
    const lvni_core_foreign *entry = foreign_of(config, key);
    return entry != NULL && entry->yields;
}

/* *text in the words of the row, where another trainer's key has values of its own. */
static lvn_status translate(const lvni_core_config *config, const lvni_core_assignment *a,
                            char room[LVNI_CORE_FOREIGN_TEXT], const char **text)
{
    const lvni_core_foreign *entry = a->back ? NULL : foreign_of(config, a->key);
    if (entry != NULL && entry->values != NULL) {
        LVN_TRY(lvni_core_foreign_translate(entry, a->key, *text, a->origin, room,
                                            LVNI_CORE_FOREIGN_TEXT));
        *text = room;
    }
    return LVN_OK;
}

/* null and None are "not given", as in the files that other trainers write out with all their keys:
 * of a row that has a default, or of a key of theirs that is not here (row NULL). Where a row can
 * be unset null does that, over what an earlier layer has. */
static bool is_left_out(const lvni_core_config *config, const lvni_core_assignment *a,
                        const lvni_core_option *row)
{
    const bool given = a->layer == LVNI_LAYER_FILE || a->layer == LVNI_LAYER_ARGUMENTS ||
                       a->layer == LVNI_LAYER_JOB;
    if (!given || a->quoted || a->back || !lvni_core_option_is_null(a->text)) {
        return false;
    }
    const lvni_core_foreign *entry = foreign_of(config, a->key);
    return row == NULL || (entry != NULL && entry->values != NULL)
               ? entry != NULL
               : !lvni_core_option_knows_null(row, a->text);
}

/* Also in quotes, as shells and YAML have them. */
static bool is_auto_text(const char *text)
{
    return lvni_core_option_choice_index("auto|'auto'|\"auto\"", text, strlen(text)) >= 0;
}

/* A batch that the job has a size of: auto is that one. */
static bool has_job_size(const lvni_core_slot *slot)
{
    return (slot->row->flags & LVNI_OPT_TUNED) != 0 && slot->layer == LVNI_LAYER_JOB &&
           slot->value.set;
}

/* auto of a row whose default that is; what another layer or an earlier value has decided it cannot
 * undo. */
static lvn_status take_auto(const lvni_core_slot *slot, const lvni_core_assignment *a,
                            bool *is_auto)
{
    *is_auto = ((slot->row->flags & LVNI_OPT_AUTO_DEFAULT) != 0 || has_job_size(slot)) &&
               !a->back && a->layer != LVNI_LAYER_RESOLVED && is_auto_text(a->text);
    if (*is_auto && (slot->layer == LVNI_LAYER_FILE || slot->layer == LVNI_LAYER_ARGUMENTS)) {
        LVN_FAIL(LVN_ERR_USAGE, "`%.80s` auto beside `%.80s` %.80s (%s): give one of the two  (%s)",
                 a->key, slot->spelled, slot->value.set ? slot->value.text : "unset", slot->origin,
                 a->origin);
    }
    return LVN_OK;
}

/* batch_size=auto of a user would silently be the default. */
static lvn_status check_tuned(const lvni_core_slot *slot, const lvni_core_assignment *a)
{
    char text[] = "auto";
    const lvni_core_option *row = slot->row;
    const lvni_core_value value = {.text = text};
    if ((row->flags & LVNI_OPT_TUNED) == 0 || has_job_size(slot) || a->back ||
        a->layer == LVNI_LAYER_RESOLVED || !is_auto_text(a->text)) {
        return LVN_OK;
    }
    return lvni_core_option_fail(row, &value, a->origin, "%s", row->later_note);
}

/* Another value than the one that always holds: a note, and the row stays as it is. */
static lvn_status note_always(lvni_core_config *config, const lvni_core_assignment *a,
                              const lvni_core_option *row, const lvni_core_value *value,
                              bool *noted)
{
    lvni_core_value always = {0};
    *noted = false;
    if ((row->flags & LVNI_OPT_ALWAYS) == 0) {
        return LVN_OK;
    }
    LVN_TRY(lvni_core_option_parse(row, row->fallback, false, "default", &always));
    *noted = !lvni_core_value_equal(row, value, &always);
    lvni_core_value_free(&always);
    if (*noted) {
        lvni_core_str_printf(&config->notes, "note: %s=%.40s has no effect: %s  (%s)\n", row->name,
                             a->text, row->later_note, a->origin);
    }
    return lvni_core_str_status(&config->notes);
}

/* The value of a text with ${...} is known when all keys are. */
static lvn_status postpone(lvni_core_slot *slot, const lvni_core_assignment *a)
{
    lvni_core_value none = {0};
    char *open = lvni_core_strdup(LVNI_TAG_CONFIG, a->text);
    if (open == NULL) {
        return LVN_ERR_MEMORY;
    }
    const bool wins = a->layer >= slot->layer;
    const lvn_status status = store(slot, a, &none);
    if (status == LVN_OK && wins) {
        slot->open = open;
        slot->open_quoted = a->quoted;
    } else {
        lvni_core_free(open);
    }
    return status;
}

/* \${ of a saved configuration is ${. */
static lvn_status parse(const lvni_core_option *row, const char *text, bool quoted,
                        const lvni_core_assignment *a, lvni_core_value *out)
{
    if (a->layer != LVNI_LAYER_SAVED || (row->flags & LVNI_OPT_LITERAL) != 0 ||
        strstr(text, "\\${") == NULL) {
        return lvni_core_option_parse(row, text, quoted, a->origin, out);
    }
    char *copy = lvni_core_strdup(LVNI_TAG_CONFIG, text);
    if (copy == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_core_config_unescape(copy);
    const lvn_status status = lvni_core_option_parse(row, copy, quoted, a->origin, out);
    lvni_core_free(copy);
    return status;
}

static lvn_status keep_job(lvni_core_slot *slot, const lvni_core_assignment *a, const char *text)
{
    if (a->layer != LVNI_LAYER_JOB || a->back) {
        return LVN_OK;
    }
    lvni_core_free(slot->job);
    slot->job = lvni_core_strdup(LVNI_TAG_CONFIG, text);
    return slot->job == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* Of the row, or of the job. */
static const char *usual_text(const lvni_core_slot *slot)
{
    const char *fallback = slot->row->fallback != NULL ? slot->row->fallback : "";
    return slot->job != NULL ? slot->job : fallback;
}

static lvn_status assign(lvni_core_config *config, const lvni_core_assignment *a)
{
    lvni_core_slot *slot = lvni_core_config_target(config, a->key);
    if (slot == NULL) {
        return is_left_out(config, a, NULL) ? LVN_OK : lvni_core_config_assign_foreign(config, a);
    }
    const lvni_core_option *row = slot->row;
    LVN_TRY(check_tuned(slot, a));
    if (is_left_out(config, a, row)) {
        return LVN_OK;
    }
    bool empty = false, is_auto;
    LVN_TRY(take_auto(slot, a, &is_auto));
    if (is_auto) {
        return LVN_OK;
    }
    LVN_TRY(check_path(row, a, &empty));
    const bool beside = stands_beside(slot, a), replaces = beside && yields(config, slot->spelled),
               gives_way = beside && !replaces && yields(config, a->key);
    if (a->once && !replaces && !gives_way && slot->seen_source == a->source) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "`%.80s`: this file sets `%s` already, by this or another name  (%s)", a->key,
                 row->name, a->origin);
    }
    slot->seen_source = a->source;
    if (a->layer == LVNI_LAYER_SAVED && (row->flags & LVNI_OPT_LAYOUT) != 0) {
        return LVN_OK; /* of an early version's file; this process has its own machine */
    }
    if (lvni_core_config_is_open(row, a)) {
        return postpone(slot, a);
    }
    const char *text = a->back ? usual_text(slot) : a->text;
    char room[LVNI_CORE_FOREIGN_TEXT];
    lvni_core_value value = {0};
    LVN_TRY(translate(config, a, room, &text));
    LVN_TRY(keep_job(slot, a, text));
    LVN_TRY(parse(row, text, a->quoted && !empty, a, &value));
    bool noted = false;
    lvn_status s;
    LVNI_TRY_DONE(s, note_always(config, a, row, &value, &noted));
    if (gives_way || noted) {
        goto done;
    }
    LVNI_TRY_DONE(s, replaces ? LVN_OK : check_repeated(slot, a, &value));
    return store(slot, a, &value);
done:
    lvni_core_value_free(&value);
    return s;
}

void lvni_core_config_collect(lvni_core_config *config)
{
    config->collects = true;
}

void lvni_core_config_add_mistake(lvni_core_config *config, const char *fmt, ...)
{
    char text[sizeof lvn_last_error()->message];
    va_list args;
    va_start(args, fmt);
    lvni_core_format_args(text, sizeof text, fmt, args);
    va_end(args);
    lvni_core_str_append(&config->mistakes, config->n_mistakes++ == 0 ? "" : "\n");
    lvni_core_str_append(&config->mistakes, text);
}

void lvni_core_config_note(lvni_core_config *config, const char *fmt, ...)
{
    char text[sizeof lvn_last_error()->message];
    va_list args;
    va_start(args, fmt);
    lvni_core_format_args(text, sizeof text, fmt, args);
    va_end(args);
    lvni_core_str_printf(&config->notes, "note: %s\n", text);
}

/* The thread's error becomes a mistake. */
static lvn_status collect(lvni_core_config *config, lvn_status status)
{
    if (status != LVN_ERR_USAGE) {
        return status;
    }
    lvni_core_config_add_mistake(config, "%s", lvn_last_error()->message);
    lvn_clear_error();
    return lvni_core_str_status(&config->mistakes);
}

lvn_status lvni_core_config_keep(lvni_core_config *config, lvn_status status)
{
    return config->collects ? collect(config, status) : status;
}

bool lvni_core_config_is_mistaken(const lvni_core_config *config, const char *name)
{
    const lvni_core_slot *slot = lvni_core_config_find(config, name);
    return slot != NULL && slot->mistaken;
}

lvn_status lvni_core_config_assign(lvni_core_config *config, const lvni_core_assignment *a)
{
    const lvn_status s = assign(config, a);
    const bool given = a->layer == LVNI_LAYER_FILE || a->layer == LVNI_LAYER_ARGUMENTS;
    lvni_core_slot *slot = s == LVN_ERR_USAGE ? lvni_core_config_target(config, a->key) : NULL;
    if (slot != NULL) {
        slot->mistaken = true;
    }
    return config->collects && given ? collect(config, s) : s;
}

lvn_status lvni_core_config_set(lvni_core_config *config, const char *name, const char *text,
                                const char *origin)
{
    return lvni_core_config_assign(config, &(lvni_core_assignment){.key = name,
                                                                   .text = text,
                                                                   .layer = LVNI_LAYER_RESOLVED,
                                                                   .source = ++config->sources,
                                                                   .origin = origin});
}

/* ---- checks after the last layer ---- */

static lvn_status is_default(const lvni_core_slot *slot, bool *same)
{
    lvni_core_value usual;
    LVN_TRY(lvni_core_option_parse(slot->row,
                                   slot->row->fallback != NULL ? slot->row->fallback : "", false,
                                   "default", &usual));
    *same = lvni_core_value_equal(slot->row, &slot->value, &usual);
    lvni_core_value_free(&usual);
    return LVN_OK;
}

static lvn_status check_later_key(const lvni_core_slot *slot)
{
    bool same = true;
    if ((slot->row->flags & LVNI_OPT_LATER) != 0) {
        LVN_TRY(is_default(slot, &same));
    }
    return same ? LVN_OK : lvni_core_option_fail_later(slot->row, &slot->value, slot->origin);
}

static lvn_status check_last(const lvni_core_slot *slot)
{
    if (slot->row->alias_of != NULL || slot->layer == LVNI_LAYER_DEFAULT) {
        return LVN_OK;
    }
    if (slot->value.later) {
        return lvni_core_option_fail_later(slot->row, &slot->value, slot->origin);
    }
    LVN_TRY(check_later_key(slot));
    return slot->row->check != NULL && slot->value.set
               ? slot->row->check(slot->row, &slot->value, slot->origin)
               : LVN_OK;
}

lvn_status lvni_core_config_finish(const lvni_core_config *config)
{
    for (size_t i = 0; i < config->n; i++) {
        LVN_TRY(check_last(&config->slots[i]));
    }
    return LVN_OK;
}

lvn_status lvni_core_config_check(lvni_core_config *config)
{
    LVN_TRY(lvni_core_config_resolve(config));
    for (size_t i = 0; i < config->n; i++) {
        LVN_TRY(collect(config, check_last(&config->slots[i])));
    }
    const int n = config->n_mistakes;
    if (n == 0) {
        return LVN_OK;
    }
    LVN_TRY(lvni_core_str_status(&config->mistakes));
    if (n == 1) {
        LVN_FAIL(LVN_ERR_USAGE, "%-s", lvni_core_str_text(&config->mistakes));
    }
    LVN_FAIL(LVN_ERR_USAGE, "%d mistakes:\n%-s", n, lvni_core_str_text(&config->mistakes));
}

/* ---- values without effect, because the row's .needs (option.h) are not met ---- */

/* Neither unset, off, zero nor empty. */
static bool is_on(const lvni_core_slot *slot)
{
    const lvni_core_value *v = &slot->value;
    if ((slot->row->flags & LVNI_OPT_ON_IF_GIVEN) != 0) {
        return v->set;
    }
    switch (slot->row->type) {
    case LVNI_OPT_BOOL: return v->set && v->b;
    case LVNI_OPT_INT: return v->set && v->i != 0;
    case LVNI_OPT_FLOAT: return v->set && v->f != 0.0;
    case LVNI_OPT_INT_LIST:
    case LVNI_OPT_FLOAT_LIST:
    case LVNI_OPT_STRING_LIST: return v->set && v->n > 0;
    default: return v->set && v->text != NULL && v->text[0] != '\0';
    }
}

/* `auto`: the value is not known yet. */
static bool is_open(const lvni_core_slot *slot)
{
    return !slot->value.set &&
           (slot->row->flags & (LVNI_OPT_AUTO | LVNI_OPT_ON_IF_GIVEN)) == LVNI_OPT_AUTO;
}

static lvn_status find_needed(const lvni_core_config *config, const lvni_core_option *row,
                              const char *key, size_t n, const lvni_core_slot **out)
{
    char name[80];
    snprintf(name, sizeof name, "%.*s", (int)n, key);
    *out = lvni_core_config_find(config, name);
    if (*out == NULL || (*out)->row->alias_of != NULL) {
        LVN_FAIL(LVN_ERR_INTERNAL,
                 "option table: `%s` needs `%s`, which is not a row of this command", row->name,
                 name);
    }
    return LVN_OK;
}

/* Is `text` one of the choices "a|b|c" (n bytes)? */
static bool has_choice(const char *choices, size_t n, const char *text)
{
    const size_t length = strlen(text);
    for (const char *p = choices; p < choices + n;) {
        const size_t here = strcspn(p, "|&");
        if (here == length && strncasecmp(p, text, length) == 0) {
            return true;
        }
        p += here + 1;
    }
    return false;
}

/* "optim.name=sgd|lars" */
static lvn_status check_value(const lvni_core_config *config, const lvni_core_option *row,
                              const char *term, size_t n, lvni_core_str *missing)
{
    const size_t key = strcspn(term, "=");
    const lvni_core_slot *other;
    LVN_TRY(find_needed(config, row, term, key, &other));
    const char *text = other->value.text;
    if (!other->value.set || text == NULL || has_choice(term + key + 1, n - key - 1, text)) {
        return LVN_OK;
    }
    lvni_core_str_printf(missing, "with %s=%s; it is for %s=", other->row->name, text,
                         other->row->name);
    for (const char *p = term + key + 1; p < term + n; p++) {
        lvni_core_str_append_n(missing, *p == '|' ? " or " : p, *p == '|' ? 4 : 1);
    }
    return LVN_OK;
}

/* "ema.decay", or "augment.hue|augment.contrast": one of them is on. */
static lvn_status check_on(const lvni_core_config *config, const lvni_core_option *row,
                           const char *term, size_t n, lvni_core_str *missing)
{
    bool several = false;
    for (const char *p = term; p < term + n;) {
        const size_t length = strcspn(p, "|&");
        const lvni_core_slot *other;
        LVN_TRY(find_needed(config, row, p, length, &other));
        if (is_on(other) || is_open(other)) {
            return LVN_OK;
        }
        several = several || p + length < term + n;
        p += length + 1;
    }
    lvni_core_str_append(missing, several ? "without one of " : "without ");
    for (const char *p = term; p < term + n; p++) {
        lvni_core_str_append_n(missing, *p == '|' ? ", " : p, *p == '|' ? 2 : 1);
    }
    return LVN_OK;
}

/* The first term of row->needs that does not hold, as a piece of a sentence; nothing: all do. */
static lvn_status find_missing(const lvni_core_config *config, const lvni_core_option *row,
                               lvni_core_str *missing)
{
    for (const char *term = row->needs; *term != '\0' && missing->len == 0;) {
        const size_t n = strcspn(term, "&");
        const bool has_value = memchr(term, '=', n) != NULL;
        LVN_TRY(has_value ? check_value(config, row, term, n, missing)
                          : check_on(config, row, term, n, missing));
        term += n + (term[n] == '&' ? 1 : 0);
    }
    return lvni_core_str_status(missing);
}

/* Switched off by its value: what the row would do is not done, as asked. */
static bool is_off(const lvni_core_slot *slot)
{
    return !is_on(slot) && (slot->row->flags & LVNI_OPT_ZERO_IS_ON) == 0;
}

static lvn_status fail_no_effect(const lvni_core_slot *slot, const char *why)
{
    return lvni_core_option_fail(slot->row, &slot->value, slot->origin, "this has no effect %s",
                                 why);
}

static lvn_status check_slot(const lvni_core_config *config, const lvni_core_slot *slot,
                             lvni_core_str *warnings)
{
    bool same;
    lvni_core_str missing = {0};
    LVN_TRY(is_default(slot, &same));
    if (same || is_off(slot)) {
        return LVN_OK;
    }
    lvn_status s;
    LVNI_TRY_DONE(s, find_missing(config, slot->row, &missing));
    if (missing.len > 0 && slot->layer == LVNI_LAYER_ARGUMENTS) {
        s = fail_no_effect(slot, lvni_core_str_text(&missing));
    } else if (missing.len > 0) {
        lvni_core_str_printf(warnings, "%s %s: this has no effect %s  (%s)\n", slot->row->name,
                             slot->value.text, lvni_core_str_text(&missing), slot->origin);
    }
done:
    lvni_core_str_free(&missing);
    return s;
}

lvn_status lvni_core_config_check_needs(const lvni_core_config *config, lvni_core_str *warnings)
{
    for (size_t i = 0; i < config->n; i++) {
        const lvni_core_slot *slot = &config->slots[i];
        const bool asked = slot->layer == LVNI_LAYER_ARGUMENTS || slot->layer == LVNI_LAYER_FILE;
        if (asked && !slot->back && slot->row->needs != NULL && slot->value.set) {
            LVN_TRY(check_slot(config, slot, warnings));
        }
    }
    return lvni_core_str_status(warnings);
}

lvn_status lvni_core_config_no_effect(const lvni_core_config *config, const char *name,
                                      const char *why)
{
    const lvni_core_slot *slot = lvni_core_config_find(config, name);
    bool same;
    if (slot == NULL || slot->layer != LVNI_LAYER_ARGUMENTS || slot->back) {
        return LVN_OK;
    }
    LVN_TRY(is_default(slot, &same));
    return same ? LVN_OK : fail_no_effect(slot, why);
}
