/* Reading a configuration out (config.h): the getters, and its written forms - config.yaml of a run
 * directory, the JSON inside checkpoints, and the lines that the ranks of a run compare. All forms
 * are read back by config_yaml.c to the same values, the last of them only in the same directory.
 */
#include "core/config_impl.h"

#include "core/escape.h"
#include "core/vfs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- getters: a question that cannot be answered is a mistake in levin and ends it ---- */

_Noreturn static void mistake(const char *name, const char *what)
{
    fprintf(stderr, "levin: internal error: configuration key `%s`: %s\n", name, what);
    abort();
}

static const lvni_core_slot *own_slot(const lvni_core_config *config, const char *name)
{
    const lvni_core_slot *slot = lvni_core_config_find(config, name);
    if (slot == NULL) {
        mistake(name, "no table of this command declares it");
    }
    if (slot->row->alias_of != NULL) {
        mistake(name, "is an alias; ask for the row itself");
    }
    return slot;
}

static const lvni_core_value *typed(const lvni_core_config *config, const char *name,
                                    lvni_core_option_type type)
{
    const lvni_core_slot *slot = own_slot(config, name);
    if (slot->row->type != type) {
        mistake(name, "has another type");
    }
    return &slot->value;
}

static const lvni_core_value *set_value(const lvni_core_config *config, const char *name,
                                        lvni_core_option_type type)
{
    const lvni_core_value *value = typed(config, name, type);
    if (!value->set || value->later) {
        mistake(name, "is unset; ask lvni_core_config_is_set first");
    }
    return value;
}

bool lvni_core_config_bool(const lvni_core_config *config, const char *name)
{
    return set_value(config, name, LVNI_OPT_BOOL)->b;
}

int64_t lvni_core_config_int(const lvni_core_config *config, const char *name)
{
    return set_value(config, name, LVNI_OPT_INT)->i;
}

double lvni_core_config_float(const lvni_core_config *config, const char *name)
{
    if (own_slot(config, name)->row->type == LVNI_OPT_INT) {
        return (double)lvni_core_config_int(config, name);
    }
    return set_value(config, name, LVNI_OPT_FLOAT)->f;
}

const char *lvni_core_config_str(const lvni_core_config *config, const char *name)
{
    const lvni_core_slot *slot = own_slot(config, name);
    if (slot->row->type != LVNI_OPT_STRING && slot->row->type != LVNI_OPT_PATH &&
        slot->row->type != LVNI_OPT_CHOICE) {
        mistake(name, "has another type");
    }
    return slot->value.text;
}

const char *lvni_core_config_given(const lvni_core_config *config, const char *name)
{
    const lvni_core_value *value = &own_slot(config, name)->value;
    return value->given != NULL ? value->given : value->text;
}

int lvni_core_config_choice(const lvni_core_config *config, const char *name)
{
    const lvni_core_value *value = typed(config, name, LVNI_OPT_CHOICE);
    return value->set ? value->choice : -1;
}

const int64_t *lvni_core_config_int_list(const lvni_core_config *config, const char *name,
                                         size_t *n)
{
    const lvni_core_value *value = typed(config, name, LVNI_OPT_INT_LIST);
    *n = value->n;
    return value->ints;
}

const double *lvni_core_config_float_list(const lvni_core_config *config, const char *name,
                                          size_t *n)
{
    const lvni_core_value *value = typed(config, name, LVNI_OPT_FLOAT_LIST);
    *n = value->n;
    return value->floats;
}

const char *const *lvni_core_config_str_list(const lvni_core_config *config, const char *name,
                                             size_t *n)
{
    const lvni_core_value *value = typed(config, name, LVNI_OPT_STRING_LIST);
    *n = value->n;
    return (const char *const *)value->strings;
}

const char *const *lvni_core_config_paths(const lvni_core_config *config, const char *name,
                                          size_t *n)
{
    const lvni_core_value *value = typed(config, name, LVNI_OPT_PATH);
    *n = value->n;
    return (const char *const *)value->strings;
}

bool lvni_core_config_has(const lvni_core_config *config, const char *name)
{
    return lvni_core_config_find(config, name) != NULL;
}

bool lvni_core_config_is_on(const lvni_core_config *config, const char *name)
{
    return lvni_core_config_has(config, name) && lvni_core_config_bool(config, name);
}

int lvni_core_config_switch(const lvni_core_config *config, const char *name)
{
    return !lvni_core_config_has(config, name) ||
                   lvni_core_config_layer(config, name) == LVNI_LAYER_DEFAULT
               ? -1
               : lvni_core_config_bool(config, name);
}

bool lvni_core_config_is_set(const lvni_core_config *config, const char *name)
{
    return own_slot(config, name)->value.set;
}

lvni_core_layer lvni_core_config_layer(const lvni_core_config *config, const char *name)
{
    return own_slot(config, name)->layer;
}

bool lvni_core_config_is_given(const lvni_core_config *config, const char *name)
{
    const lvni_core_slot *slot = own_slot(config, name);
    return !slot->back && (slot->layer == LVNI_LAYER_FILE || slot->layer == LVNI_LAYER_ARGUMENTS);
}

const char *lvni_core_config_origin(const lvni_core_config *config, const char *name)
{
    return own_slot(config, name)->origin;
}

int lvni_core_config_mistakes(const lvni_core_config *config)
{
    return config->n_mistakes;
}

const char *lvni_core_config_spelled(const lvni_core_config *config, const char *name)
{
    const lvni_core_slot *slot = own_slot(config, name);
    return slot->spelled != NULL ? slot->spelled : slot->row->name;
}

/* ---- written forms ---- */

enum form { YAML, YAML_AS_GIVEN /* paths as they are */, JSON };

/* With a point before the exponent: YAML readers of the 1.1 rules take "1e-05" for text. */
static void write_float(lvni_core_str *out, double value, enum form form)
{
    lvni_core_str text = {0};
    lvni_core_str_double(&text, value);
    const char *t = lvni_core_str_text(&text);
    const char *e = strchr(t, 'e');
    if (isinf(value) && form == JSON) {
        lvni_core_str_json(out, t);
    } else if (isinf(value)) {
        lvni_core_str_append(out, value < 0.0 ? "-.inf" : ".inf");
    } else if (e != NULL && strchr(t, '.') == NULL) {
        lvni_core_str_append_n(out, t, (size_t)(e - t));
        lvni_core_str_append(out, ".0");
        lvni_core_str_append(out, e);
    } else {
        lvni_core_str_append(out, t);
    }
    out->failed = out->failed || text.failed;
    lvni_core_str_free(&text);
}

/* Text that needs no quotes: a letter or / first, and nothing that means something to YAML or to
 * the value grammar. */
static bool is_plain(const lvni_core_option *row, const char *text)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/";
    static const char rest[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/_.+-";
    static const char reserved[] = "null|none|auto|true|false|yes|no|on|off|y|n|inf|nan";
    const bool plain =
        text[0] != '\0' && strchr(first, text[0]) != NULL && text[strspn(text, rest)] == '\0';
    return plain && lvni_core_option_choice_index(reserved, text, strlen(text)) < 0 &&
           (row->spellings == NULL || row->type == LVNI_OPT_CHOICE);
}

static void write_text(lvni_core_str *out, const lvni_core_option *row, const char *text,
                       enum form form)
{
    if (strstr(text, "${") != NULL && (row->flags & LVNI_OPT_LITERAL) == 0) {
        lvni_core_str escaped = {0}; /* \${, without which it is another key's value */
        lvni_core_config_escape(text, &escaped);
        lvni_core_str_json(out, lvni_core_str_text(&escaped));
        out->failed |= escaped.failed;
        lvni_core_str_free(&escaped);
    } else if (form != JSON && is_plain(row, text)) {
        lvni_core_str_append(out, text);
    } else if (row->type == LVNI_OPT_PATH) { /* any bytes */
        lvni_core_str name = {0};
        lvni_core_str_escape(&name, text, strlen(text), LVNI_ESCAPE_NAME);
        lvni_core_str_json(out, lvni_core_str_text(&name));
        out->failed |= name.failed;
        lvni_core_str_free(&name);
    } else {
        lvni_core_str_json(out, text); /* YAML reads a JSON string as it is meant */
    }
}

/* Is the text one of the row's values that are not a path ("builtin:")? */
static bool names_no_file(const lvni_core_option *row, const char *text)
{
    for (const char *p = row->no_file; p != NULL && *p != '\0';) {
        const size_t n = strcspn(p, "|");
        if (strncmp(text, p, n) == 0) {
            return true;
        }
        p += n + (p[n] == '|');
    }
    return false;
}

/* Absolute: the reader may be in another directory. */
static void write_path(lvni_core_str *out, const lvni_core_option *row, const char *text,
                       enum form form)
{
    lvni_core_str path = {0};
    if (text[0] == '\0' || form == YAML_AS_GIVEN || names_no_file(row, text)) {
        lvni_core_str_append(&path, text);
    } else {
        lvni_core_path_absolute(text, &path);
    }
    write_text(out, row, lvni_core_str_text(&path), form);
    out->failed |= path.failed;
    lvni_core_str_free(&path);
}

static void write_paths(lvni_core_str *out, const lvni_core_option *row,
                        const lvni_core_value *value, enum form form)
{
    lvni_core_str_char(out, '[');
    for (size_t i = 0; i < value->n; i++) {
        lvni_core_str_append(out, i > 0 ? ", " : "");
        write_path(out, row, value->strings[i], form);
    }
    lvni_core_str_char(out, ']');
}

static void write_list(lvni_core_str *out, const lvni_core_option *row,
                       const lvni_core_value *value, enum form form)
{
    lvni_core_str_char(out, '[');
    for (size_t i = 0; i < value->n; i++) {
        lvni_core_str_append(out, i > 0 ? ", " : "");
        if (value->ints != NULL) {
            lvni_core_str_printf(out, "%" PRId64, value->ints[i]);
        } else if (value->floats != NULL) {
            write_float(out, value->floats[i], form);
        } else {
            write_text(out, row, value->strings[i], form);
        }
    }
    lvni_core_str_char(out, ']');
}

static void write_value(lvni_core_str *out, const lvni_core_option *row,
                        const lvni_core_value *value, enum form form)
{
    if (!value->set) {
        lvni_core_str_append(out,
                             form != JSON && (row->flags & LVNI_OPT_AUTO) != 0 ? "auto" : "null");
        return;
    }
    switch (row->type) {
    case LVNI_OPT_BOOL: lvni_core_str_append(out, value->b ? "true" : "false"); break;
    case LVNI_OPT_INT: lvni_core_str_printf(out, "%" PRId64, value->i); break;
    case LVNI_OPT_FLOAT: write_float(out, value->f, form); break;
    case LVNI_OPT_STRING:
    case LVNI_OPT_CHOICE: write_text(out, row, value->text, form); break;
    case LVNI_OPT_PATH:
        if (value->n > 0) {
            write_paths(out, row, value, form);
        } else {
            write_path(out, row, value->text, form);
        }
        break;
    case LVNI_OPT_INT_LIST:
    case LVNI_OPT_FLOAT_LIST:
    case LVNI_OPT_STRING_LIST: write_list(out, row, value, form); break;
    }
}

/* Unset rows are omitted where reading nothing gives the same again. */
static bool saved(const lvni_core_slot *slot)
{
    if (slot->row->alias_of != NULL ||
        (slot->row->flags & (LVNI_OPT_NOT_SAVED | LVNI_OPT_LAYOUT)) != 0 || slot->value.later) {
        return false;
    }
    return slot->value.set || (slot->row->flags & LVNI_OPT_AUTO) != 0 ||
           slot->layer != LVNI_LAYER_DEFAULT;
}

static void write_lines(const lvni_core_config *config, enum form form, lvni_core_str *out)
{
    for (size_t i = 0; i < config->n; i++) {
        const lvni_core_slot *slot = &config->slots[i];
        if (saved(slot)) {
            lvni_core_str_printf(out, "%s: ", slot->row->name);
            write_value(out, slot->row, &slot->value, form);
            lvni_core_str_char(out, '\n');
        }
    }
}

lvn_status lvni_core_config_write_yaml(const lvni_core_config *config, lvni_core_str *out)
{
    lvni_core_str_append(
        out, "# The whole configuration of a levin run; config=THIS_FILE repeats it.\n");
    write_lines(config, YAML, out);
    return lvni_core_str_status(out);
}

lvn_status lvni_core_config_write_as_given(const lvni_core_config *config, lvni_core_str *out)
{
    write_lines(config, YAML_AS_GIVEN, out);
    return lvni_core_str_status(out);
}

static lvn_status write_json(const lvni_core_config *config, unsigned without, lvni_core_str *out)
{
    lvni_core_str_char(out, '{');
    bool first = true;
    for (size_t i = 0; i < config->n; i++) {
        const lvni_core_slot *slot = &config->slots[i];
        if (saved(slot) && (slot->row->flags & without) == 0) {
            lvni_core_str_append(out, first ? "" : ",");
            lvni_core_str_json(out, slot->row->name);
            lvni_core_str_char(out, ':');
            write_value(out, slot->row, &slot->value, JSON);
            first = false;
        }
    }
    lvni_core_str_char(out, '}');
    return lvni_core_str_status(out);
}

lvn_status lvni_core_config_to_json(const lvni_core_config *config, lvni_core_str *out)
{
    return write_json(config, 0, out);
}

lvn_status lvni_core_config_to_model_json(const lvni_core_config *config, lvni_core_str *out)
{
    return write_json(config, LVNI_OPT_RUN, out);
}
