/* Patterns and lists of ranks (launch_pattern.h). */
#include "launch/launch_pattern.h"

#include "core/escape.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH_MAX = 9 };

/* One code behind a percent sign: its letter and width; returns what follows, NULL when the text
 * ends before the letter. */
static const char *read_code(const char *p, char *letter, int *width)
{
    *width = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        *width = *width > WIDTH_MAX ? *width : *width * 10 + (*p - '0');
    }
    *letter = *p;
    return *p == '\0' ? NULL : p + 1;
}

lvn_status lvni_launch_pattern_check(const char *key, const char *pattern)
{
    for (const char *p = pattern; *p != '\0';) {
        if (*p++ != '%') {
            continue;
        }
        char letter;
        int width;
        const char *next = read_code(p, &letter, &width);
        if (next == NULL || strchr("rlnwhjap%", letter) == NULL || width > WIDTH_MAX) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s `%.200s`: `%%%.*s` is no code; there are %%r rank, %%l local rank, %%n "
                     "node, %%w number of ranks, %%h host, %%j run, "
                     "%%a attempt, %%p process, %%%% percent sign, and a width such as %%3r",
                     key, pattern, (int)(next == NULL ? strlen(p) : (size_t)(next - p)), p);
        }
        p = next;
    }
    return LVN_OK;
}

static void put_number(lvni_core_str *out, int64_t value, int width)
{
    lvni_core_str_printf(out, "%0*lld", width > 0 ? width : 1, (long long)value);
}

static void put_text(lvni_core_str *out, const char *text)
{
    lvni_core_str_escape(out, text, strlen(text), LVNI_ESCAPE_TEXT);
}

static bool put_code(lvni_core_str *out, char letter, int width, const lvni_launch_rank_name *name)
{
    switch (letter) {
    case 'r': put_number(out, name->rank, width); return true;
    case 'l': put_number(out, name->local_rank, width); return true;
    case 'n': put_number(out, name->node_rank, width); return true;
    case 'w': put_number(out, name->world, width); return true;
    case 'a': put_number(out, name->attempt, width); return true;
    case 'p': put_number(out, name->pid, width); return true;
    case 'h': put_text(out, name->host); return true;
    case 'j': put_text(out, name->run_id); return true;
    case '%': lvni_core_str_char(out, '%'); return true;
    default: return false;
    }
}

static void expand(lvni_core_str *out, const char *pattern, const char *codes,
                   const lvni_launch_rank_name *name)
{
    for (const char *p = pattern; *p != '\0';) {
        char letter;
        int width;
        const char *next = *p == '%' ? read_code(p + 1, &letter, &width) : NULL;
        if (next != NULL && strchr(codes, letter) != NULL && put_code(out, letter, width, name)) {
            p = next;
        } else {
            lvni_core_str_char(out, *p++);
        }
    }
}

void lvni_launch_pattern_expand(lvni_core_str *out, const char *pattern,
                                const lvni_launch_rank_name *name)
{
    expand(out, pattern, "rlnwhjap%", name);
}

void lvni_launch_pattern_expand_value(lvni_core_str *out, const char *value,
                                      const lvni_launch_rank_name *name)
{
    expand(out, value, "rlnw%", name);
}

/* "3" or "3-5" at p; returns what follows, NULL when it is neither. */
static const char *read_range(const char *p, int world, int *first, int *last)
{
    char *end;
    if (*p < '0' || *p > '9') {
        return NULL;
    }
    const long a = strtol(p, &end, 10);
    long b = a;
    if (*end == '-' && end[1] >= '0' && end[1] <= '9') {
        b = strtol(end + 1, &end, 10);
    }
    *first = (int)a;
    *last = (int)b;
    return a <= b && b < world ? end : NULL;
}

lvn_status lvni_launch_rank_list(const char *key, const char *text, int world, bool *in)
{
    const bool all = strcmp(text, "all") == 0;
    for (int r = 0; r < world; r++) {
        in[r] = all;
    }
    if (all || strcmp(text, "none") == 0) {
        return LVN_OK;
    }
    for (const char *p = text;; p++) {
        int first, last;
        p = read_range(p, world, &first, &last);
        if (p == NULL || (*p != ',' && *p != '\0')) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s %.80s: give `all`, `none` or ranks of 0 to %d, such as 0 or 0,2-3", key,
                     text, world - 1);
        }
        for (int r = first; r <= last; r++) {
            in[r] = true;
        }
        if (*p == '\0') {
            return LVN_OK;
        }
    }
}
