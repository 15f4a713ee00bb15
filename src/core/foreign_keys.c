/* Looking names up in the table of foreign names (foreign_keys.h). */
#include "core/foreign_keys.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { BOTH_MAX = 128 };

static char plain(char c)
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
        if (plain(name[i]) != plain(key[i])) {
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
    char both[BOTH_MAX];
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
