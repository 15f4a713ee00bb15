/* Options that do nothing with the others as they are (the rows' .needs; option.h). Called by the
 * commands after lvni_core_config_finish. */
#include "core/config_impl.h"

#include <string.h>
#include <strings.h>

/* Neither unset, off, zero nor empty. */
static bool is_on(const lvni_core_slot *slot)
{
    const lvni_core_value *v = &slot->value;
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

/* What `auto` stands for is not known yet: the program that finds it out may say more. */
static bool is_open(const lvni_core_slot *slot)
{
    return !slot->value.set && (slot->row->flags & LVNI_OPT_AUTO) != 0;
}

static lvn_status find(const lvni_core_config *config, const lvni_core_option *row, const char *key,
                       size_t n, const lvni_core_slot **out)
{
    char name[80];
    snprintf(name, sizeof name, "%.*s", (int)n, key);
    *out = lvni_core_config_find(config, name);
    if (*out == NULL || (*out)->row->alias_of != NULL) {
        LVN_FAIL(LVN_ERR_INTERNAL, "option table: `%s` needs `%s`, which is no row of this command",
                 row->name, name);
    }
    return LVN_OK;
}

/* Is `word` one of "a|b|c" (n bytes)? */
static bool has_word(const char *words, size_t n, const char *word)
{
    const size_t length = strlen(word);
    for (const char *p = words; p < words + n;) {
        const size_t here = strcspn(p, "|&");
        if (here == length && strncasecmp(p, word, length) == 0) {
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
    LVN_TRY(find(config, row, term, key, &other));
    const char *text = other->value.text;
    if (!other->value.set || text == NULL || has_word(term + key + 1, n - key - 1, text)) {
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
        LVN_TRY(find(config, row, p, length, &other));
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

static lvn_status refuse(const lvni_core_slot *slot, const char *why)
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
    lvn_status s = same || is_off(slot) ? LVN_OK : find_missing(config, slot->row, &missing);
    if (s == LVN_OK && missing.len > 0 && slot->layer == LVNI_LAYER_ARGUMENTS) {
        s = refuse(slot, lvni_core_str_text(&missing));
    } else if (s == LVN_OK && missing.len > 0) {
        lvni_core_str_printf(warnings, "%s %s: this has no effect %s  (%s)\n", slot->row->name,
                             slot->value.text, lvni_core_str_text(&missing), slot->origin);
    }
    lvni_core_str_free(&missing);
    return s;
}

lvn_status lvni_core_config_check_needs(const lvni_core_config *config, lvni_core_str *warnings)
{
    for (size_t i = 0; i < config->n; i++) {
        const lvni_core_slot *slot = &config->slots[i];
        const bool asked = slot->layer == LVNI_LAYER_ARGUMENTS || slot->layer == LVNI_LAYER_FILE;
        if (asked && slot->row->needs != NULL && slot->value.set) {
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
    if (slot == NULL || slot->layer != LVNI_LAYER_ARGUMENTS) {
        return LVN_OK;
    }
    LVN_TRY(is_default(slot, &same));
    return same ? LVN_OK : refuse(slot, why);
}
