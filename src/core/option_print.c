/* The texts made of option rows (option.h): errors of values that do not fit their row, and the
 * help. */
#include "core/error.h"
#include "core/option.h"

#include "core/config_impl.h"
#include "core/str.h"

#include <stdarg.h>
#include <stdint.h>
#include <string.h>

/* ---- errors ---- */

enum { SHOWN = 80 }; /* bytes of a value that a message repeats */

lvn_status lvni_core_option_fail(const lvni_core_option *row, const lvni_core_value *value,
                                 const char *origin, const char *fmt, ...)
{
    char sentence[700];
    va_list ap;
    va_start(ap, fmt);
    lvni_core_format_args(sentence, sizeof sentence, fmt, ap);
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

/* "resnet101" is another network than resnet18, not a misspelling: digits are meant as they are. */
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
        char choice[64];
        snprintf(choice, sizeof choice, "%.*s", (int)length, p);
        const size_t distance = lvni_core_edit_distance(choice, text);
        if (distance < best && distance <= lvni_core_edit_limit(choice, text) &&
            same_digits(choice, text)) {
            best = distance;
            snprintf(buffer, room, "%s", choice);
        }
        p = p[length] == '|' ? p + length + 1 : NULL;
    }
    return best == SIZE_MAX ? NULL : buffer;
}

static lvn_status fail_foreign(const lvni_core_option *row, const char *text,
                               const lvni_core_foreign *entry, const char *origin)
{
    static const char some[] = "[N]";
    lvni_core_str hint = {0};
    lvni_core_foreign_print_hint(entry, &hint);
    lvn_status s = lvni_core_str_status(&hint);
    /* "cuda:0" with the hint devices=[N]: [0] */
    const char *colon = strrchr(text, ':'), *number = colon == NULL ? text : colon + 1,
               *at = strstr(lvni_core_str_text(&hint), some);
    const bool named =
        at != NULL && number[0] != '\0' && number[strspn(number, "0123456789,")] == '\0';
    if (s == LVN_OK) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "%s `%.*s` is not in this version: %.*s%s%.*s%s%s  (%s)", row->name,
                          SHOWN, text, named ? (int)(at - hint.data) : (int)hint.len,
                          lvni_core_str_text(&hint), named ? "[" : "", named ? SHOWN : 0, number,
                          named ? "]" : "", named ? at + sizeof some - 1 : "", origin);
    }
    lvni_core_str_free(&hint);
    return s;
}

bool lvni_core_option_is_foreign(const lvni_core_option *row, const char *text)
{
    return lvni_core_foreign_value(row->name, text) != NULL;
}

/* Those of later versions would be refused next. */
static void list_choices(const lvni_core_option *row, lvni_core_str *out)
{
    const char *between = "";
    for (const char *p = row->choices; p != NULL;) {
        const size_t n = strcspn(p, "|");
        if (row->later == NULL || lvni_core_option_choice_index(row->later, p, n) < 0) {
            lvni_core_str_append(out, between);
            lvni_core_str_append_n(out, p, n);
            between = ", ";
        }
        p = p[n] == '|' ? p + n + 1 : NULL;
    }
}

lvn_status lvni_core_option_expected(const lvni_core_option *row, const char *text, bool quoted,
                                     const char *origin)
{
    const lvni_core_foreign *entry = lvni_core_foreign_value(row->name, text);
    if (entry != NULL) {
        return fail_foreign(row, text, entry, origin);
    }
    lvni_core_str want = {0};
    char choice[64];
    if (row->type == LVNI_OPT_CHOICE) {
        lvni_core_str_append(&want, "one of ");
        list_choices(row, &want);
        if ((row->flags & LVNI_OPT_OPEN) != 0) {
            lvni_core_str_append(&want, " or a name (a letter, then letters and digits)");
        }
        const char *nearest = nearest_choice(row->choices, text, choice, sizeof choice);
        if (nearest != NULL) {
            lvni_core_str_printf(&want, "; did you mean `%s`?", nearest);
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
    lvn_status status;
    LVNI_TRY_DONE(status, lvni_core_str_status(&want));
    status = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__, "%s `%.*s`: expected %s%s  (%s)",
                           row->name, SHOWN, text, lvni_core_str_text(&want),
                           bare ? ", not a text in quotes" : "", origin);
done:
    lvni_core_str_free(&want);
    return status;
}

/* ---- the help: what `levin help train.classify` prints ---- */

/* Other names of a row, over all tables: "also: gpus, num_gpus". */
static void print_aliases(lvni_core_option_list tables, const char *name, FILE *out)
{
    bool any = false;
    for (lvni_core_option_list t = tables; *t != NULL; t++) {
        for (size_t i = 0; i < (*t)->n; i++) {
            const lvni_core_option *row = &(*t)->rows[i];
            if (row->alias_of != NULL && (row->flags & LVNI_OPT_HIDDEN) == 0 &&
                strcmp(row->alias_of, name) == 0) {
                fprintf(out, "%s%s", any ? ", " : "  Also: ", row->name);
                any = true;
            }
        }
    }
    if (any) {
        fputs(".", out);
    }
}

const char *lvni_core_option_default(const lvni_core_option *row, const lvni_core_config *defaults)
{
    const lvni_core_slot *slot =
        defaults == NULL ? NULL : lvni_core_config_find(defaults, row->name);
    if (slot != NULL && slot->layer == LVNI_LAYER_JOB && slot->value.set) {
        return slot->value.text;
    }
    if (row->fallback != NULL && row->fallback[0] != '\0') {
        return row->fallback;
    }
    return (row->flags & LVNI_OPT_AUTO) != 0 ? "auto" : "unset";
}

/* "  batch_size             whole number, samples, default 128" and below it the sentence. */
void lvni_core_option_print_row(lvni_core_option_list tables, const lvni_core_option *row,
                                const lvni_core_config *defaults, FILE *out)
{
    const int column = 27, length = (int)strlen(row->name) + 2; /* two blanks behind a long one */
    fprintf(out, "  %-*s", length > column ? length : column, row->name);
    if (row->type == LVNI_OPT_CHOICE) {
        fprintf(out, "%s%s", row->choices, (row->flags & LVNI_OPT_OPEN) != 0 ? "|NAME" : "");
    } else {
        fputs(lvni_core_option_type_name(row->type), out);
    }
    if (row->unit != NULL) {
        fprintf(out, ", %s", row->unit);
    }
    fprintf(out, ", default %s\n      %s", lvni_core_option_default(row, defaults),
            row->help != NULL ? row->help : "");
    print_aliases(tables, row->name, out);
    if ((row->flags & LVNI_OPT_LATER) != 0) {
        fputs("  (Other values come with a later version.)", out);
    } else if (row->later != NULL) {
        fprintf(out, "  (With a later version: %s.)", row->later);
    }
    fputc('\n', out);
}

void lvni_core_option_print_help(lvni_core_option_list tables, const lvni_core_config *defaults,
                                 FILE *out)
{
    for (lvni_core_option_list t = tables; *t != NULL; t++) {
        fprintf(out, "%s%s\n", t != tables ? "\n" : "", (*t)->title);
        for (size_t i = 0; i < (*t)->n; i++) {
            const lvni_core_option *row = &(*t)->rows[i];
            if (row->alias_of == NULL && (row->flags & LVNI_OPT_HIDDEN) == 0) {
                lvni_core_option_print_row(tables, row, defaults, out);
            }
        }
    }
}
