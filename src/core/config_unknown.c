/* What a key means that is not the name of a row (config_impl.h): another trainer's name of one, or
 * a mistake, which gets the nearest name there is. Meaning comes before spelling. */
#include "core/config_impl.h"
#include "core/error.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { KEY_MAX = 128, SHORTEST = 4 }; /* shorter foreign names are near to anything */

/* ---- names of other trainers ---- */

static char fold(char c)
{
    return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

/* Does the name, n bytes of the table, fit the key? A star at its end stands for anything. */
static bool fits(const char *name, size_t n, const char *key)
{
    const size_t length = strlen(key);
    const bool star = name[n - 1] == '*';
    const size_t same = star ? n - 1 : n;
    if (star ? length < same : length != same) {
        return false;
    }
    for (size_t i = 0; i < same; i++) {
        if (fold(name[i]) != fold(key[i])) {
            return false;
        }
    }
    return true;
}

bool lvni_core_foreign_is(const lvni_core_foreign *entry, const char *key)
{
    for (const char *p = entry->names; p != NULL;) {
        const size_t n = strcspn(p, "|");
        if (fits(p, n, key)) {
            return true;
        }
        p = p[n] == '|' ? p + n + 1 : NULL;
    }
    return false;
}

const lvni_core_foreign *lvni_core_foreign_value(const char *key, const char *value)
{
    char both[KEY_MAX];
    if (snprintf(both, sizeof both, "%s=%s", key, value) >= (int)sizeof both) {
        return NULL;
    }
    for (size_t i = 0; i < lvni_core_foreign_table_n; i++) {
        if (lvni_core_foreign_is(&lvni_core_foreign_table[i], both)) {
            return &lvni_core_foreign_table[i];
        }
    }
    return NULL;
}

/* "O0, O1, O2 or O3" */
static void print_values(const char *values, lvni_core_str *out)
{
    for (const char *p = values; p != NULL;) {
        const size_t length = strcspn(p, "|");
        const bool last = p[length] == '\0';
        lvni_core_str_printf(out, "%s%.*s",
                             p == values ? ""
                             : last      ? " or "
                                         : ", ",
                             (int)strcspn(p, "="), p);
        p = last ? NULL : p + length + 1;
    }
}

/* "0,1" as "[0,1]"; what is a list, or anything else, as it is, for the row to judge. */
static lvn_status translate_list(const char *key, const char *text, const char *origin, char *out,
                                 size_t room)
{
    const size_t n = strlen(text);
    const bool numbers = n > 0 && strspn(text, "-0123456789, ") == n;
    if (snprintf(out, room, "%s%s%s", numbers ? "[" : "", text, numbers ? "]" : "") >= (int)room) {
        LVN_FAIL(LVN_ERR_USAGE, "%.80s `%.80s`: expected numbers, as 0 or [0,1]  (%s)", key, text,
                 origin);
    }
    return LVN_OK;
}

lvn_status lvni_core_foreign_translate(const lvni_core_foreign *entry, const char *key,
                                       const char *text, const char *origin, char *out, size_t room)
{
    size_t n = strlen(text);
    if (strcmp(entry->values, LVNI_CORE_FOREIGN_LIST) == 0) {
        return translate_list(key, text, origin, out, room);
    }
    if (n > 1 && (text[0] == '\'' || text[0] == '"') && text[n - 1] == text[0]) {
        text++; /* as in a script: amp_level='O2' */
        n -= 2;
    }
    for (const char *p = entry->values; p != NULL;) {
        const size_t length = strcspn(p, "|"), name = strcspn(p, "=");
        if (name == n && strncasecmp(p, text, name) == 0) {
            snprintf(out, room, "%.*s", (int)(length - name - 1), p + name + 1);
            return LVN_OK;
        }
        p = p[length] == '|' ? p + length + 1 : NULL;
    }
    lvni_core_str values = {0};
    print_values(entry->values, &values);
    const lvn_status s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                                       "%.80s `%.80s`: expected %s, another name of `%s`  (%s)",
                                       key, text, lvni_core_str_text(&values), entry->key, origin);
    lvni_core_str_free(&values);
    return s;
}

bool lvni_core_foreign_next_key(const char **at, char *key, size_t room)
{
    const char *open = strchr(*at, '{');
    const char *close = open != NULL ? strchr(open, '}') : NULL;
    if (close == NULL) {
        return false;
    }
    snprintf(key, room, "%.*s", (int)(close - open - 1), open + 1);
    *at = close + 1;
    return true;
}

void lvni_core_foreign_print_hint(const lvni_core_foreign *entry, lvni_core_str *out)
{
    for (const char *p = entry->hint; *p != '\0'; p++) {
        if (*p != '{' && *p != '}') {
            lvni_core_str_char(out, *p);
        }
    }
}

/* Has this command all that the entry names? */
static bool is_usable(const lvni_core_config *config, const lvni_core_foreign *entry)
{
    char key[KEY_MAX];
    if (entry->key != NULL) {
        return lvni_core_config_find(config, entry->key) != NULL;
    }
    for (const char *at = entry->hint; lvni_core_foreign_next_key(&at, key, sizeof key);) {
        if (lvni_core_config_find(config, key) == NULL) {
            return false;
        }
    }
    return true;
}

const lvni_core_foreign *lvni_core_config_foreign(const lvni_core_config *config, const char *key)
{
    for (size_t i = 0; i < lvni_core_foreign_table_n; i++) {
        const lvni_core_foreign *entry = &lvni_core_foreign_table[i];
        if (lvni_core_foreign_is(entry, key) && is_usable(config, entry)) {
            return entry;
        }
    }
    return NULL;
}

lvni_core_slot *lvni_core_config_target(const lvni_core_config *config, const char *key)
{
    lvni_core_slot *slot = lvni_core_config_find(config, key);
    if (slot == NULL) {
        const lvni_core_foreign *entry = lvni_core_config_foreign(config, key);
        slot =
            entry != NULL && entry->key != NULL ? lvni_core_config_find(config, entry->key) : NULL;
    }
    return slot != NULL && slot->row->alias_of != NULL
               ? lvni_core_config_find(config, slot->row->alias_of)
               : slot;
}

const lvni_core_option *lvni_core_config_row(const lvni_core_config *config, const char *key)
{
    const lvni_core_slot *slot = lvni_core_config_target(config, key);
    return slot != NULL ? slot->row : NULL;
}

/* ---- the nearest ---- */

typedef struct nearest {
    char name[KEY_MAX];
    size_t distance;                  /* SIZE_MAX: none */
    const lvni_core_option *row;      /* what the name means, or */
    const lvni_core_foreign *foreign; /* the entry it is from */
} nearest;

/* "lr" is nearer to "optim.lr" than its letters: the last part of a name alone counts too, at the
 * price of one edit. */
static size_t key_distance(const char *name, const char *key)
{
    const char *dot = strrchr(name, '.');
    const size_t whole = lvni_core_edit_distance(name, key);
    size_t best = whole <= lvni_core_edit_limit(name, key) ? whole : SIZE_MAX;
    if (dot != NULL && strchr(key, '.') == NULL) {
        const size_t part = lvni_core_edit_distance(dot + 1, key);
        if (part <= lvni_core_edit_limit(dot + 1, key) && part + 1 < best) {
            best = part + 1;
        }
    }
    return best;
}

static bool offer(nearest *best, const char *name, size_t n, const char *key)
{
    char copy[KEY_MAX];
    snprintf(copy, sizeof copy, "%.*s", (int)n, name);
    const size_t distance = key_distance(copy, key);
    if (distance >= best->distance) {
        return false;
    }
    memcpy(best->name, copy, sizeof copy);
    best->distance = distance;
    return true;
}

/* "optimizer.lrr" in a section of another program's file, whose keys the help does not list. */
static bool is_of_section(const lvni_core_option *row, const char *key)
{
    const size_t n = strcspn(key, ".");
    return key[n] == '.' && strncmp(row->name, key, n + 1) == 0;
}

static void offer_rows(const lvni_core_config *config, const char *key, nearest *best)
{
    for (size_t i = 0; i < config->n; i++) {
        const lvni_core_slot *slot = &config->slots[i];
        const lvni_core_option *row = slot->row;
        const bool shown = (row->flags & LVNI_OPT_HIDDEN) == 0 || is_of_section(row, key);
        if (shown && offer(best, row->name, strlen(row->name), key)) {
            best->row = slot->target;
        }
    }
}

static void offer_foreign(const lvni_core_config *config, const char *key, nearest *best)
{
    for (size_t i = 0; i < lvni_core_foreign_table_n; i++) {
        const lvni_core_foreign *entry = &lvni_core_foreign_table[i];
        if (!is_usable(config, entry)) {
            continue;
        }
        for (const char *p = entry->names; p != NULL;) {
            const size_t n = strcspn(p, "|");
            const bool name = n >= SHORTEST && p[n - 1] != '*' && memchr(p, '=', n) == NULL;
            if (name && offer(best, p, n, key)) {
                best->row =
                    entry->key != NULL ? lvni_core_config_target(config, entry->key)->row : NULL;
                best->foreign = entry;
            }
            p = p[n] == '|' ? p + n + 1 : NULL;
        }
    }
}

/* "trainer.max_epochs", "optimizer.lr": what stands behind the last dot may be a key by itself. */
static const char *known_part(const lvni_core_config *config, const char *key)
{
    const char *dot = strrchr(key, '.');
    const lvni_core_slot *slot =
        dot != NULL && dot[1] != '\0' ? lvni_core_config_target(config, dot + 1) : NULL;
    return slot != NULL ? slot->row->name : NULL;
}

/* ---- the message ---- */

static lvn_status fail_with_hint(const char *key, const char *near, const lvni_core_foreign *entry,
                                 const char *origin)
{
    lvni_core_str hint = {0};
    lvni_core_foreign_print_hint(entry, &hint);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&hint));
    if (near != NULL) {
        s = lvn_error_set(
            LVN_ERR_USAGE, __FILE__, __LINE__,
            "unknown key `%.80s`; did you mean `%s`? It is not in this version: %s  (%s)", key,
            near, lvni_core_str_text(&hint), origin);
    } else {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "`%.80s` is not in this version: %s  (%s)", key,
                          lvni_core_str_text(&hint), origin);
    }
done:
    lvni_core_str_free(&hint);
    return s;
}

lvn_status lvni_core_config_unknown(const lvni_core_config *config, const char *key,
                                    const char *origin)
{
    const lvni_core_foreign *entry = lvni_core_config_foreign(config, key);
    if (entry != NULL && entry->hint != NULL) {
        return fail_with_hint(key, NULL, entry, origin);
    }
    const char *part = known_part(config, key);
    nearest best = {.distance = SIZE_MAX};
    offer_rows(config, key, &best);
    if (part != NULL && best.distance > 1) {
        LVN_FAIL(LVN_ERR_USAGE, "unknown key `%.80s`; did you mean `%s`?  (%s)", key, part, origin);
    }
    offer_foreign(config, key, &best);
    if (best.row == NULL && best.foreign != NULL) {
        return fail_with_hint(key, best.name, best.foreign, origin);
    }
    if (best.row != NULL) {
        lvni_core_config_find(config, best.row->name)->mistaken = true;
        const bool other = strcmp(best.name, best.row->name) != 0;
        if (other && best.foreign != NULL && key_distance(best.row->name, key) < SIZE_MAX) {
            LVN_FAIL(LVN_ERR_USAGE, "unknown key `%.80s`; did you mean `%s`?  (%s)", key,
                     best.row->name, origin);
        }
        LVN_FAIL(LVN_ERR_USAGE, "unknown key `%.80s`; did you mean `%s`%s%s%s?  (%s)", key,
                 best.name, other ? " (" : "", other ? best.row->name : "", other ? ")" : "",
                 origin);
    }
    const char *help = config->help_command;
    LVN_FAIL(LVN_ERR_USAGE, "unknown key `%.80s`%s%s%s  (%s)", key,
             help != NULL ? "; all keys: `" : "", help != NULL ? help : "", help != NULL ? "`" : "",
             origin);
}

/* ---- keys without effect ---- */

void lvni_core_config_add_note(lvni_core_config *config, const char *key,
                               const lvni_core_foreign *entry, const char *origin)
{
    lvni_core_str_printf(&config->notes, "note: %.80s has no effect: ", key);
    lvni_core_foreign_print_hint(entry, &config->notes);
    lvni_core_str_printf(&config->notes, "  (%s)\n", origin);
}

const char *lvni_core_config_notes(const lvni_core_config *config)
{
    return lvni_core_str_text(&config->notes);
}

static bool has(const lvni_core_assignment *a, const char *values)
{
    return lvni_core_option_choice_index(values, a->text, strlen(a->text)) >= 0;
}

/* A key of another trainer that is switched off: what it would do is not here, or off by default.
 */
static bool is_off_already(const lvni_core_foreign *entry, const lvni_core_assignment *a)
{
    return (entry->harmless & LVNI_CORE_HARMLESS_OFF) != 0 && has(a, "false|no|off|0|0.0");
}

/* That, or one that asks for what is so here anyhow, or is for what is not here. */
static bool is_harmless(const lvni_core_foreign *entry, const lvni_core_assignment *a)
{
    return ((entry->harmless & LVNI_CORE_HARMLESS_ON) != 0 && has(a, "true|yes|on|1")) ||
           is_off_already(entry, a) || (entry->harmless & LVNI_CORE_HARMLESS_ANY) != 0;
}

lvn_status lvni_core_config_assign_foreign(lvni_core_config *config, const lvni_core_assignment *a)
{
    const lvni_core_foreign *entry = lvni_core_config_foreign(config, a->key);
    if (entry == NULL || !is_harmless(entry, a)) {
        return lvni_core_config_unknown(config, a->key, a->origin);
    }
    if (is_off_already(entry, a)) { /* the hint is for those who switch it on */
        lvni_core_str_printf(&config->notes,
                             "note: %.80s has no effect: it is off already; leave it out  (%s)\n",
                             a->key, a->origin);
    } else {
        lvni_core_config_add_note(config, a->key, entry, a->origin);
    }
    return lvni_core_str_status(&config->notes);
}
