/* The items of a list as a user writes it: [a, 'b c', "d"]. */
#include "core/option_impl.h"

#include <string.h>

bool lvni_core_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool lvni_core_items_open(const char *text, lvni_core_items *it)
{
    const char *p = text;
    const char *end = text + strlen(text);
    while (lvni_core_is_blank(*p)) {
        p++;
    }
    while (end > p && lvni_core_is_blank(end[-1])) {
        end--;
    }
    const bool opens = p < end && *p == '[';
    const bool closes = p < end && end[-1] == ']';
    *it = (lvni_core_items){.p = opens ? p + 1 : p,
                            .end = closes && end > p + (opens ? 1 : 0) ? end - 1 : end,
                            .first = true};
    return opens == closes;
}

bool lvni_core_items_quoted(lvni_core_items *it, lvni_core_str *out)
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

int lvni_core_items_next(lvni_core_items *it, lvni_core_str *out, bool *quoted)
{
    while (it->p < it->end && lvni_core_is_blank(*it->p)) {
        it->p++;
    }
    if (it->p >= it->end) {
        return it->first ? 0 : -1; /* a comma with nothing after it */
    }
    it->first = false;
    lvni_core_str_clear(out);
    *quoted = *it->p == '"' || *it->p == '\'';
    if (*quoted) {
        if (!lvni_core_items_quoted(it, out)) {
            return -1;
        }
        while (it->p < it->end && lvni_core_is_blank(*it->p)) {
            it->p++;
        }
    } else {
        const char *start = it->p;
        while (it->p < it->end && *it->p != ',' && strchr("[]{}\"", *it->p) == NULL) {
            it->p++;
        }
        const char *stop = it->p;
        while (stop > start && lvni_core_is_blank(stop[-1])) {
            stop--;
        }
        lvni_core_str_append_n(out, start, (size_t)(stop - start));
    }
    if (it->p < it->end && *it->p != ',') {
        return -1;
    }
    return *quoted || out->len > 0 ? 1 : -1;
}

bool lvni_core_items_more(lvni_core_items *it)
{
    if (it->p < it->end && *it->p == ',') {
        it->p++;
        return true;
    }
    return false;
}
