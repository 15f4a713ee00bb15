/* From text to a value of a row (option.h): scalars, lists as a user writes them, `auto` and null,
 * quotes. Called by the configuration. The messages are in option_print.c. */
#include "core/error.h"
#include "core/option.h"

#include "core/alloc.h"
#include "core/str.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TEXT_MAX = 1 << 18, ITEMS_MAX = 4096 };

static const char *const type_names[] = {
    [LVNI_OPT_BOOL] = "true or false",
    [LVNI_OPT_INT] = "whole number",
    [LVNI_OPT_FLOAT] = "number",
    [LVNI_OPT_STRING] = "text",
    [LVNI_OPT_PATH] = "path",
    [LVNI_OPT_CHOICE] = "choice",
    [LVNI_OPT_INT_LIST] = "list of whole numbers",
    [LVNI_OPT_FLOAT_LIST] = "list of numbers",
    [LVNI_OPT_STRING_LIST] = "list of texts",
};

const char *lvni_core_option_type_name(lvni_core_option_type type)
{
    return type_names[type];
}

void lvni_core_value_free(lvni_core_value *value)
{
    for (size_t i = 0; value->strings != NULL && i < value->n; i++) {
        lvni_core_free(value->strings[i]);
    }
    lvni_core_free(value->strings);
    lvni_core_free(value->ints);
    lvni_core_free(value->floats);
    lvni_core_free(value->text);
    lvni_core_free(value->given);
    *value = (lvni_core_value){0};
}

static bool same_strings(const lvni_core_value *a, const lvni_core_value *b)
{
    for (size_t i = 0; i < a->n; i++) {
        if (strcmp(a->strings[i], b->strings[i]) != 0) {
            return false;
        }
    }
    return true;
}

bool lvni_core_value_equal(const lvni_core_option *row, const lvni_core_value *a,
                           const lvni_core_value *b)
{
    if (a->set != b->set || a->later != b->later || !a->set) {
        return a->set == b->set && a->later == b->later;
    }
    if (a->later) {
        return strcasecmp(a->text, b->text) == 0;
    }
    switch (row->type) {
    case LVNI_OPT_BOOL: return a->b == b->b;
    case LVNI_OPT_INT: return a->i == b->i;
    case LVNI_OPT_FLOAT: return a->f == b->f;
    case LVNI_OPT_STRING:
    case LVNI_OPT_PATH: return strcmp(a->text, b->text) == 0;
    case LVNI_OPT_CHOICE: return a->choice == b->choice && strcasecmp(a->text, b->text) == 0;
    case LVNI_OPT_INT_LIST:
        return a->n == b->n && memcmp(a->ints, b->ints, a->n * sizeof *a->ints) == 0;
    case LVNI_OPT_FLOAT_LIST:
        return a->n == b->n && memcmp(a->floats, b->floats, a->n * sizeof *a->floats) == 0;
    case LVNI_OPT_STRING_LIST: return a->n == b->n && same_strings(a, b);
    }
    return false;
}

int lvni_core_option_choice_index(const char *choices, const char *text, size_t n)
{
    int index = 0;
    for (const char *p = choices; p != NULL; index++) {
        const size_t length = strcspn(p, "|");
        if (length == n && strncasecmp(p, text, n) == 0) {
            return index;
        }
        p = p[length] == '|' ? p + length + 1 : NULL;
    }
    return -1;
}

/* ---- scalars ---- */

static bool in_range(const lvni_core_option *row, double x)
{
    const lvni_core_option_range *range = &row->range;
    if (isinf(x) && (row->flags & LVNI_OPT_INF) == 0) {
        return false;
    }
    return !range->used || ((range->above ? x > range->min : x >= range->min) &&
                            (range->below ? x < range->max : x <= range->max));
}

static char *copy_n(const char *text, size_t n)
{
    char *copy = lvni_core_alloc(LVNI_TAG_CONFIG, n + 1);
    if (copy != NULL) {
        memcpy(copy, text, n);
        copy[n] = '\0';
    }
    return copy;
}

/* The choice as the table writes it. */
static lvn_status take_choice(const lvni_core_option *row, int index, lvni_core_value *out)
{
    const char *p = row->choices;
    for (out->choice = index; index > 0; index--) {
        p = strchr(p, '|') + 1;
    }
    lvni_core_free(out->text);
    out->text = copy_n(p, strcspn(p, "|"));
    return out->text != NULL ? LVN_OK : LVN_ERR_MEMORY;
}

static bool read_bool(const char *text, bool *out)
{
    static const char yes[] = "true|yes|on|1";
    static const char no[] = "false|no|off|0";
    const size_t n = strlen(text);
    *out = lvni_core_option_choice_index(yes, text, n) >= 0;
    return *out || lvni_core_option_choice_index(no, text, n) >= 0;
}

/* The choice that true or false stands for, as in profiler=False and cuda_graph=yes; -1: none. */
static int truth_choice(const char *choices, const char *text)
{
    static const char *const names[2][4] = {{"false", "off", "no", "none"}, {"true", "on", "yes"}};
    bool on;
    int index = -1;
    if (isalpha((unsigned char)*text) && read_bool(text, &on)) {
        for (int i = 0; i < 4 && index < 0 && names[on][i] != NULL; i++) {
            index = lvni_core_option_choice_index(choices, names[on][i], strlen(names[on][i]));
        }
    }
    return index;
}

static bool read_int(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-' || *text == '+' ? 1 : 0);
    if (*digits == '\0' || digits[strspn(digits, "0123456789")] != '\0') {
        return false;
    }
    errno = 0;
    *out = strtoll(text, NULL, 10);
    return errno == 0;
}

/* Decimal only: strtod would also take hexadecimal numbers and NaN. Too small is 0, too large is
 * refused. */
static bool read_float(const char *text, double *out)
{
    const char *p = text + (*text == '-' || *text == '+' ? 1 : 0);
    if (strcasecmp(p, "inf") == 0 || strcasecmp(p, ".inf") == 0) {
        *out = *text == '-' ? -HUGE_VAL : HUGE_VAL;
        return true;
    }
    if ((!isdigit((unsigned char)*p) && *p != '.') || p[strspn(p, "0123456789.eE+-")] != '\0') {
        return false;
    }
    char *end = NULL;
    *out = lvni_core_strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*out);
}

/* ---- the items of a list: [a, 'b c', "d"], with or without brackets ---- */

typedef struct items {
    const char *p, *end;
    bool first;
} items;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The text without blanks at its ends and without the brackets of a list; those of numbers may be
 * round, as of a tuple in Python. False: only one of the brackets is there. */
static bool items_open(const lvni_core_option *row, const char *text, items *it)
{
    const bool numbers = row->type == LVNI_OPT_INT_LIST || row->type == LVNI_OPT_FLOAT_LIST;
    const char *p = text;
    const char *end = text + strlen(text);
    while (is_blank(*p)) {
        p++;
    }
    while (end > p && is_blank(end[-1])) {
        end--;
    }
    const bool round = numbers && p < end && *p == '(';
    const bool opens = p < end && (round || *p == '[');
    const bool closes = p < end && end[-1] == (round ? ')' : ']');
    *it = (items){.p = opens ? p + 1 : p,
                  .end = closes && end > p + (opens ? 1 : 0) ? end - 1 : end,
                  .first = true};
    return opens == closes;
}

/* Reads a text in quotes that begins at it->p: 'it''s' and "a \" b". False: it does not end. */
static bool items_quoted(items *it, lvni_core_str *out)
{
    const char quote = *it->p++;
    for (; it->p < it->end; it->p++) {
        if (*it->p == quote && quote == '\'' && it->p + 1 < it->end && it->p[1] == quote) {
            it->p++;
        } else if (*it->p == quote) {
            it->p++;
            return true;
        } else if (*it->p == '\\' && quote == '"' && it->p + 1 < it->end) {
            it->p++;
        }
        lvni_core_str_char(out, *it->p);
    }
    return false;
}

/* 1: an item; 0: the end; -1: not a list. */
static int items_next(items *it, lvni_core_str *out, bool *quoted)
{
    while (it->p < it->end && is_blank(*it->p)) {
        it->p++;
    }
    if (it->p >= it->end) {
        return it->first ? 0 : -1; /* a comma with nothing after it */
    }
    it->first = false;
    lvni_core_str_clear(out);
    *quoted = *it->p == '"' || *it->p == '\'';
    if (*quoted) {
        if (!items_quoted(it, out)) {
            return -1;
        }
        while (it->p < it->end && is_blank(*it->p)) {
            it->p++;
        }
    } else {
        const char *start = it->p;
        while (it->p < it->end && *it->p != ',' && strchr("[]{}\"", *it->p) == NULL) {
            it->p++;
        }
        const char *stop = it->p;
        while (stop > start && is_blank(stop[-1])) {
            stop--;
        }
        lvni_core_str_append_n(out, start, (size_t)(stop - start));
    }
    if (it->p < it->end && *it->p != ',') {
        return -1;
    }
    return *quoted || out->len > 0 ? 1 : -1;
}

/* Behind an item: true when a comma (and so another item) follows. */
static bool items_more(items *it)
{
    if (it->p < it->end && *it->p == ',') {
        it->p++;
        return true;
    }
    return false;
}

/* ---- lists ---- */

static bool store_item(const lvni_core_option *row, const char *text, bool quoted,
                       lvni_core_value *out)
{
    const size_t i = out->n;
    if (row->type == LVNI_OPT_INT_LIST) {
        return !quoted && read_int(text, &out->ints[i]) && in_range(row, (double)out->ints[i]);
    }
    if (row->type == LVNI_OPT_FLOAT_LIST) {
        return !quoted && read_float(text, &out->floats[i]) && in_range(row, out->floats[i]);
    }
    return true;
}

static lvn_status count_items(const lvni_core_option *row, const char *text, const char *origin,
                              lvni_core_str *item, size_t *n)
{
    items it;
    bool quoted = false;
    *n = 0;
    int got = items_open(row, text, &it) ? 1 : -1;
    for (bool more = got == 1; more; more = got == 1 && items_more(&it)) {
        got = items_next(&it, item, &quoted);
        *n += got == 1 ? 1 : 0;
    }
    /* first: an item that could not be stored looks like an empty one */
    LVN_TRY(lvni_core_str_status(item));
    if (got < 0 || *n > ITEMS_MAX || (row->count > 0 && *n != row->count)) {
        return lvni_core_option_expected(row, text, false, origin);
    }
    return LVN_OK;
}

static bool make_room(const lvni_core_option *row, size_t n, lvni_core_value *out)
{
    switch (row->type) {
    case LVNI_OPT_INT_LIST:
        out->ints = lvni_core_calloc(LVNI_TAG_CONFIG, n, sizeof *out->ints);
        return out->ints != NULL;
    case LVNI_OPT_FLOAT_LIST:
        out->floats = lvni_core_calloc(LVNI_TAG_CONFIG, n, sizeof *out->floats);
        return out->floats != NULL;
    default:
        out->strings = lvni_core_calloc(LVNI_TAG_CONFIG, n, sizeof *out->strings);
        return out->strings != NULL;
    }
}

static lvn_status parse_list(const lvni_core_option *row, const char *text, const char *origin,
                             lvni_core_str *item, lvni_core_value *out)
{
    size_t n = 0;
    LVN_TRY(count_items(row, text, origin, item, &n));
    if (!make_room(row, n, out)) {
        return LVN_ERR_MEMORY;
    }
    items it;
    (void)items_open(row, text, &it);
    for (bool quoted = false; out->n < n; out->n++, (void)items_more(&it)) {
        (void)items_next(&it, item, &quoted);
        LVN_TRY(lvni_core_str_status(item));
        if (!store_item(row, lvni_core_str_text(item), quoted, out)) {
            return lvni_core_option_expected(row, text, false, origin);
        }
        if (out->strings != NULL) {
            out->strings[out->n] = lvni_core_strdup(LVNI_TAG_CONFIG, lvni_core_str_text(item));
            if (out->strings[out->n] == NULL) {
                return LVN_ERR_MEMORY;
            }
        }
    }
    return LVN_OK;
}

/* A text in quotes is one item, whatever commas it holds. */
static lvn_status parse_one_string(const lvni_core_option *row, const char *origin,
                                   lvni_core_value *out)
{
    if (row->count > 1) {
        return lvni_core_option_expected(row, out->text, true, origin);
    }
    if (!make_room(row, 1, out)) {
        return LVN_ERR_MEMORY;
    }
    out->n = 1;
    out->strings[0] = lvni_core_strdup(LVNI_TAG_CONFIG, out->text);
    return out->strings[0] != NULL ? LVN_OK : LVN_ERR_MEMORY;
}

/* "[a,b]" for a row that takes several paths. One in brackets is itself. */
static lvn_status parse_paths(const lvni_core_option *row, const char *origin, lvni_core_str *item,
                              lvni_core_value *out)
{
    LVN_TRY(parse_list(row, out->text, origin, item, out));
    if (out->n == 0) {
        return lvni_core_option_expected(row, out->text, false, origin);
    }
    if (out->n == 1) {
        lvni_core_free(out->text);
        out->text = out->strings[0];
        lvni_core_free(out->strings);
        out->strings = NULL;
        out->n = 0;
    }
    return LVN_OK;
}

static bool is_path_list(const lvni_core_option *row, const char *text, size_t n)
{
    return (row->flags & LVNI_OPT_PATHS) != 0 && n > 1 && text[0] == '[' && text[n - 1] == ']';
}

/* ---- one value ---- */

static bool is_name(const char *text)
{
    return text[0] >= 'a' && text[0] <= 'z' &&
           text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static lvn_status parse_scalar(const lvni_core_option *row, const char *text, bool quoted,
                               const char *origin, lvni_core_value *out)
{
    bool good = false;
    switch (row->type) {
    case LVNI_OPT_BOOL: good = !quoted && read_bool(text, &out->b); break;
    case LVNI_OPT_INT:
        good = !quoted && read_int(text, &out->i) && in_range(row, (double)out->i);
        break;
    case LVNI_OPT_FLOAT: /* JSON writes infinity as the text "inf" */
        good = read_float(text, &out->f) && (!quoted || isinf(out->f)) && in_range(row, out->f);
        break;
    case LVNI_OPT_CHOICE:
        out->choice = lvni_core_option_choice_index(row->choices, text, strlen(text));
        out->choice = out->choice < 0 && !quoted ? truth_choice(row->choices, text) : out->choice;
        if (out->choice >= 0) {
            return take_choice(row, out->choice, out);
        }
        good = (row->flags & LVNI_OPT_OPEN) != 0 && is_name(text);
        break;
    default: good = true; break;
    }
    return good ? LVN_OK : lvni_core_option_expected(row, text, quoted, origin);
}

static bool nullable(const lvni_core_option *row)
{
    return row->fallback == NULL || row->fallback[0] == '\0' || (row->flags & LVNI_OPT_AUTO) != 0;
}

/* null, none, nothing at all and auto, where the row knows no value of that name. */
static bool means_unset(const lvni_core_option *row, const char *text)
{
    const size_t n = strlen(text);
    if (row->choices != NULL && lvni_core_option_choice_index(row->choices, text, n) >= 0) {
        return false;
    }
    if ((row->flags & LVNI_OPT_AUTO) != 0 && strcasecmp(text, "auto") == 0) {
        return true;
    }
    return nullable(row) && (n == 0 || lvni_core_option_choice_index("null|none|~", text, n) >= 0);
}

/* "none=single|ddp_spawn=ddp": the value a text stands for; its length in *n. A text is also the
 * default, whatever its case. */
static const char *respell(const lvni_core_option *row, const char *text, size_t *n)
{
    *n = strlen(text);
    for (const char *p = row->spellings; p != NULL;) {
        const size_t length = strcspn(p, "|");
        const size_t name = strcspn(p, "=");
        if (name < length && name == *n && strncasecmp(p, text, name) == 0) {
            *n = length - name - 1;
            return p + name + 1;
        }
        p = p[length] == '|' ? p + length + 1 : NULL;
    }
    const char *own = row->respell != NULL ? row->respell(text) : NULL;
    if (own == NULL && row->type == LVNI_OPT_STRING && row->fallback != NULL &&
        strcasecmp(text, row->fallback) == 0) {
        own = row->fallback;
    }
    *n = own != NULL ? strlen(own) : *n;
    return own != NULL ? own : text;
}

bool lvni_core_option_is_null(const char *text)
{
    return lvni_core_option_choice_index("null|none|~", text, strlen(text)) >= 0;
}

bool lvni_core_option_knows_null(const lvni_core_option *row, const char *text)
{
    size_t n;
    return nullable(row) || respell(row, text, &n) != text ||
           (row->type == LVNI_OPT_STRING && strcmp(text, "none") == 0) || /* a text as any */
           (row->choices != NULL &&
            lvni_core_option_choice_index(row->choices, text, strlen(text)) >= 0) ||
           (row->type == LVNI_OPT_PATH && strcasecmp(text, "none") == 0);
}

/* "{0: 8, 4: 4}" as "0:8,4:4". */
static lvn_status flatten_map(const char *text, lvni_core_str *out)
{
    const size_t n = strlen(text);
    for (size_t i = 1; n > 1 && i < n - 1; i++) {
        if (strchr(" \t\r\n'\"", text[i]) == NULL) {
            lvni_core_str_char(out, text[i]);
        }
    }
    return lvni_core_str_status(out);
}

/* A value in quotes as a whole, as job strings and copied YAML have it: key='a b'. */
static bool unquote_whole(const char *text, lvni_core_str *out)
{
    items it = {.p = text, .end = text + strlen(text)};
    return (*text == '"' || *text == '\'') && items_quoted(&it, out) && it.p == it.end;
}

static lvn_status parse_text(const lvni_core_option *row, const char *text, size_t n, bool quoted,
                             const char *origin, lvni_core_str *item, lvni_core_value *out)
{
    out->text = copy_n(text, n);
    if (out->text == NULL) {
        return LVN_ERR_MEMORY;
    }
    out->set = true;
    if (row->later != NULL && lvni_core_option_choice_index(row->later, out->text, n) >= 0) {
        out->later = true;
        out->choice = -1;
        return LVN_OK;
    }
    if (!quoted && is_path_list(row, out->text, n)) {
        return parse_paths(row, origin, item, out);
    }
    if (row->type == LVNI_OPT_STRING_LIST && quoted) {
        return parse_one_string(row, origin, out);
    }
    if (row->type == LVNI_OPT_INT_LIST || row->type == LVNI_OPT_FLOAT_LIST ||
        row->type == LVNI_OPT_STRING_LIST) {
        return parse_list(row, out->text, origin, item, out);
    }
    return parse_scalar(row, out->text, quoted, origin, out);
}

/* A text that the row's check refuses may be a truth value in another spelling (logger=True). */
static lvn_status parse_truth(const lvni_core_option *row, const char *text, const char *origin,
                              lvni_core_str *item, lvni_core_value *out)
{
    bool on;
    const bool texts = row->type == LVNI_OPT_STRING || row->type == LVNI_OPT_STRING_LIST;
    if (!texts || row->check == NULL || !out->set || !isalpha((unsigned char)*text) ||
        !read_bool(text, &on) || row->check(row, out, origin) == LVN_OK) {
        return LVN_OK;
    }
    lvn_clear_error();
    lvni_core_value_free(out);
    return parse_text(row, on ? "true" : "false", on ? 4 : 5, false, origin, item, out);
}

/* Quotes make a text of what else would be a number, a list or null. A name of a value is a text
 * already, and YAML and JSON of other programs have it in quotes. */
static bool is_word(const lvni_core_option *row, const char *text, bool quoted)
{
    return !quoted || (row->type == LVNI_OPT_CHOICE &&
                       lvni_core_option_choice_index(row->choices, text, strlen(text)) < 0);
}

static bool is_unset(const lvni_core_option *row, const char *text, bool quoted)
{
    const bool may_be_name = row->type == LVNI_OPT_PATH || row->type == LVNI_OPT_STRING ||
                             row->type == LVNI_OPT_STRING_LIST;
    return (!quoted || (strcasecmp(text, "auto") == 0 && !may_be_name)) && means_unset(row, text);
}

static lvn_status parse_clean(const lvni_core_option *row, const char *given, bool quoted,
                              const char *origin, lvni_core_str *item, lvni_core_value *out)
{
    if (is_unset(row, given, quoted)) {
        return LVN_OK;
    }
    lvni_core_str map = {0};
    const char *text = given;
    size_t n = strlen(given);
    if ((row->flags & LVNI_OPT_MAP) != 0 && *given == '{' && given[n - 1] == '}') {
        LVN_TRY(flatten_map(given, &map));
        text = lvni_core_str_text(&map);
        n = strlen(text);
    } else if (is_word(row, given, quoted)) {
        text = respell(row, given, &n);
    }
    const lvn_status s = parse_text(row, text, n, quoted, origin, item, out);
    lvni_core_str_free(&map);
    LVN_TRY(s);
    if (row->respell != NULL && text != given) {
        out->given = lvni_core_strdup(LVNI_TAG_CONFIG, given);
        LVN_TRY(out->given == NULL ? LVN_ERR_MEMORY : LVN_OK);
    }
    return quoted ? LVN_OK : parse_truth(row, given, origin, item, out);
}

lvn_status lvni_core_option_parse(const lvni_core_option *row, const char *text, bool quoted,
                                  const char *origin, lvni_core_value *out)
{
    *out = (lvni_core_value){0};
    if (strnlen(text, TEXT_MAX + 1) > TEXT_MAX) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: the value is longer than %d bytes  (%s)", row->name, TEXT_MAX,
                 origin);
    }
    if (row->type != LVNI_OPT_PATH && !lvni_core_utf8_valid(text)) {
        /* names of files are any bytes */
        LVN_FAIL(LVN_ERR_USAGE, "%s: the value is not valid UTF-8: %.80s  (%s)", row->name, text,
                 origin);
    }
    lvni_core_str clean = {0}, unquoted = {0}, scratch = {0};
    lvn_status status;
    if (!quoted) {
        size_t n = strlen(text);
        while (n > 0 && is_blank(text[n - 1])) {
            n--;
        }
        const size_t lead = strspn(text, " \t\r\n");
        lvni_core_str_append_n(&clean, text + (lead < n ? lead : n), lead < n ? n - lead : 0);
        LVNI_TRY_DONE(status, lvni_core_str_status(&clean));
        quoted = unquote_whole(lvni_core_str_text(&clean), &unquoted);
    }
    const char *final = clean.data == NULL ? text
                        : quoted           ? lvni_core_str_text(&unquoted)
                                           : clean.data;
    LVNI_TRY_DONE(status, lvni_core_str_status(&unquoted));
    status = parse_clean(row, final, quoted, origin, &scratch, out);
done:
    lvni_core_str_free(&clean);
    lvni_core_str_free(&unquoted);
    lvni_core_str_free(&scratch);
    if (status != LVN_OK) {
        lvni_core_value_free(out);
    }
    return status;
}
