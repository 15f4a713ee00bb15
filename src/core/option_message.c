/* What is said when a value does not fit its row (option.h). */
#include "core/option_impl.h"

#include "core/foreign_keys.h"
#include "core/str.h"

#include <stdarg.h>
#include <stdint.h>
#include <string.h>

enum { SHOWN = 80 }; /* bytes of a value that a message repeats */

lvn_status lvni_core_option_fail(const lvni_core_option *row, const lvni_core_value *value,
                                 const char *origin, const char *fmt, ...)
{
    char sentence[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    LVN_FAIL(LVN_ERR_USAGE, "%s %.*s: %s  (%s)", row->name, SHOWN,
             value->text != NULL ? value->text : "unset", sentence, origin);
}

lvn_status lvni_core_option_fail_later(const lvni_core_option *row, const lvni_core_value *value,
                                       const char *origin)
{
    if (row->later_note != NULL) {
        return lvni_core_option_fail(row, value, origin, "%s", row->later_note);
    }
    if ((row->flags & LVNI_OPT_LATER) != 0) {
        return lvni_core_option_fail(row, value, origin,
                                     "this key comes with a later version; leave it at %s",
                                     row->fallback != NULL ? row->fallback : "unset");
    }
    return lvni_core_option_fail(row, value, origin, "this value comes with a later version%s%s",
                                 row->choices != NULL ? "; this one knows " : "",
                                 row->choices != NULL ? row->choices : "");
}

static void describe_range(const lvni_core_option_range *range, lvni_core_str *out)
{
    if (!range->used) {
        return;
    }
    lvni_core_str_append(out, range->above                        ? ", above "
                              : isinf(range->max) || range->below ? ", at least "
                                                                  : ", from ");
    lvni_core_str_double(out, range->min);
    if (!isinf(range->max)) {
        lvni_core_str_append(out, range->below ? " and below " : " to ");
        lvni_core_str_double(out, range->max);
    }
}

/* "resnet101" is another network than resnet18, and no slip: digits say what is meant. */
static bool same_digits(const char *a, const char *b)
{
    static const char digits[] = "0123456789";
    for (;; a++, b++) {
        a += strcspn(a, digits);
        b += strcspn(b, digits);
        if (*a != *b || *a == '\0') {
            return *a == *b;
        }
    }
}

static const char *nearest_choice(const char *choices, const char *text, char *buffer, size_t room)
{
    size_t best = SIZE_MAX;
    for (const char *p = choices; p != NULL;) {
        const size_t length = strcspn(p, "|");
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)length, p);
        const size_t distance = lvni_core_edit_distance(word, text);
        if (distance < best && distance <= lvni_core_edit_limit(word, text) &&
            same_digits(word, text)) {
            best = distance;
            snprintf(buffer, room, "%s", word);
        }
        p = p[length] == '|' ? p + length + 1 : NULL;
    }
    return best == SIZE_MAX ? NULL : buffer;
}

static lvn_status fail_foreign(const lvni_core_option *row, const char *text,
                               const lvni_core_foreign *entry, const char *origin)
{
    lvni_core_str hint = {0};
    lvni_core_foreign_print_hint(entry, &hint);
    lvn_status s = lvni_core_str_status(&hint);
    if (s == LVN_OK) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "%s `%.*s` is not in this version: %s  (%s)", row->name, SHOWN, text,
                          lvni_core_str_text(&hint), origin);
    }
    lvni_core_str_free(&hint);
    return s;
}

lvn_status lvni_core_option_expected(const lvni_core_option *row, const char *text, bool quoted,
                                     const char *origin)
{
    const lvni_core_foreign *entry = lvni_core_foreign_value(row->name, text);
    if (entry != NULL) {
        return fail_foreign(row, text, entry, origin);
    }
    lvni_core_str want = {0};
    char word[64];
    if (row->type == LVNI_OPT_CHOICE) {
        lvni_core_str_append(&want, "one of ");
        for (const char *p = row->choices; *p != '\0'; p++) {
            lvni_core_str_append_n(&want, *p == '|' ? ", " : p, *p == '|' ? 2 : 1);
        }
        const char *near_word = nearest_choice(row->choices, text, word, sizeof word);
        if (near_word != NULL) {
            lvni_core_str_printf(&want, "; did you mean `%s`?", near_word);
        }
    } else {
        lvni_core_str_printf(&want, "%s%s", row->type == LVNI_OPT_BOOL ? "" : "a ",
                             lvni_core_option_type_name(row->type));
        describe_range(&row->range, &want);
        if (row->count > 0) {
            lvni_core_str_printf(&want, ", %zu of them", row->count);
        }
        if (row->unit != NULL) {
            lvni_core_str_printf(&want, " (in %s)", row->unit);
        }
        if ((row->flags & LVNI_OPT_AUTO) != 0) {
            lvni_core_str_append(&want, ", or auto");
        }
    }
    const bool bare = quoted && (row->type == LVNI_OPT_BOOL || row->type == LVNI_OPT_INT ||
                                 row->type == LVNI_OPT_FLOAT);
    const lvn_status status = lvni_core_str_status(&want);
    if (status == LVN_OK) {
        (void)lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__, "%s `%.*s`: expected %s%s  (%s)",
                            row->name, SHOWN, text, lvni_core_str_text(&want),
                            bare ? ", not a text in quotes" : "", origin);
    }
    lvni_core_str_free(&want);
    return status == LVN_OK ? LVN_ERR_USAGE : status;
}
