/* Blocks and warning lines of notice.h. */
#include "core/notice.h"

#include "core/escape.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINE = 1024 }; /* bytes of one line; what is longer is cut */

/* Errors of resources and of time leave with a code of their own; all others are usage. */
static const struct kind {
    int code;
    lvn_status status;
    lvni_core_exit_code exit;
} kinds[] = {
    {105, LVN_ERR_NOT_FOUND, LVNI_EXIT_RESOURCE}, {106, LVN_ERR_NOT_FOUND, LVNI_EXIT_RESOURCE},
    {110, LVN_ERR_NOT_FOUND, LVNI_EXIT_RESOURCE}, {113, LVN_ERR_TIMEOUT, LVNI_EXIT_RENDEZVOUS},
    {114, LVN_ERR_TIMEOUT, LVNI_EXIT_RENDEZVOUS}, {120, LVN_ERR_NOT_FOUND, LVNI_EXIT_RESOURCE},
};

static const struct kind *kind_of(int code)
{
    static const struct kind usage = {0, LVN_ERR_USAGE, LVNI_EXIT_USAGE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].code == code) {
            return &kinds[i];
        }
    }
    return &usage;
}

static void add_line(lvni_core_str *out, const char *before, const char *fmt, va_list args)
{
    char line[LINE];
    lvni_core_escape_format(line, sizeof line, fmt, args);
    lvni_core_str_append(out, before);
    lvni_core_str_append(out, line);
    lvni_core_str_char(out, '\n');
}

lvn_status lvni_core_notice_error(lvni_core_notices *n, int code, const char *fmt, ...)
{
    char line[LINE], head[40];
    va_list args;
    va_start(args, fmt);
    lvni_core_escape_format(line, sizeof line, fmt, args);
    va_end(args);
    snprintf(head, sizeof head, "levin: error E%d: ", code);
    lvni_core_str_clear(&n->text);
    lvni_core_str_append(&n->text, head);
    lvni_core_str_append(&n->text, line);
    lvni_core_str_char(&n->text, '\n');
    n->error = code;
    n->own = false;
    lvn_error_set(kind_of(code)->status, __FILE__, __LINE__, "E%d: %s", code, line);
    return lvni_core_error_number(code);
}

void lvni_core_notice_found(lvni_core_notices *n, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add_line(&n->text, "  found: ", fmt, args);
    va_end(args);
}

void lvni_core_notice_fix(lvni_core_notices *n, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add_line(&n->text, "  fix: ", fmt, args);
    va_end(args);
}

void lvni_core_notice_warn(lvni_core_notices *n, int code, const char *fmt, ...)
{
    char head[40];
    va_list args;
    snprintf(head, sizeof head, "levin: warning W%d: ", code);
    va_start(args, fmt);
    add_line(&n->warnings, head, fmt, args);
    va_end(args);
    n->first_warning = n->n_warnings == 0 ? code : n->first_warning;
    n->n_warnings++;
}

lvn_status lvni_core_notices_refuse_warnings(lvni_core_notices *n)
{
    static const char warning[] = "levin: warning ";
    const size_t skip = sizeof warning - 1;
    LVN_TRY(lvni_core_notices_status(n));
    if (n->n_warnings == 0) {
        return LVN_OK;
    }
    const char *line = lvni_core_str_text(&n->warnings);
    char first[LINE];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(line + skip, "\n"), line + skip);
    lvni_core_str_clear(&n->text);
    for (const char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        lvni_core_str_append(&n->text, "levin: error ");
        lvni_core_str_append_n(&n->text, line + skip, (size_t)(end + 1 - line) - skip);
    }
    lvni_core_notice_fix(
        n, "warnings are errors here (strict=true, or LEVIN_STRICT=1): mend what they "
           "say, or say strict=false");
    n->error = n->first_warning;
    n->own = false;
    n->n_warnings = 0;
    lvni_core_str_clear(&n->warnings);
    LVN_TRY(lvni_core_str_status(&n->text));
    lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__, "%s (warnings are errors: strict)", first);
    return lvni_core_error_number(n->error);
}

lvni_core_exit_code lvni_core_notices_exit(const lvni_core_notices *n)
{
    return n->error == 0 ? LVNI_EXIT_OK : kind_of(n->error)->exit;
}

lvni_core_exit_code lvni_core_exit_of_error(const lvn_error *error)
{
    return error->number != 0 ? kind_of(error->number)->exit
                              : lvni_core_exit_of_status(error->code);
}

const char *lvni_core_error_prefix(const lvn_error *error)
{
    return error->number != 0 ? "levin: error " : "error: ";
}

bool lvni_core_notices_should_print(const lvni_core_notices *n)
{
    return n->error != 0 && (n->own || n->by_hand || n->rank <= 0);
}

lvn_status lvni_core_notices_status(const lvni_core_notices *n)
{
    LVN_TRY(lvni_core_str_status(&n->text));
    return lvni_core_str_status(&n->warnings);
}

void lvni_core_notices_free(lvni_core_notices *n)
{
    lvni_core_str_free(&n->text);
    lvni_core_str_free(&n->warnings);
    memset(n, 0, sizeof *n);
}
