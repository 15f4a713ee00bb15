/* Quoting for a shell (shell_quote.h). */
#include "core/shell_quote.h"

#include "core/escape.h"

#include <string.h>

/* $'...' of bash and zsh, for what must not reach a terminal raw. */
static void quote_bytes(lvni_core_str *out, const char *word)
{
    lvni_core_str_append(out, "$'");
    for (size_t left = strlen(word); left > 0;) {
        const size_t n = lvni_core_escape_plain(word, left);
        if (n == 0) {
            lvni_core_str_printf(out, "\\x%02x", (unsigned char)*word);
        } else {
            lvni_core_str_append(out, *word == '\'' || *word == '\\' ? "\\" : "");
            lvni_core_str_append_n(out, word, n);
        }
        word += n > 0 ? n : 1;
        left -= n > 0 ? n : 1;
    }
    lvni_core_str_char(out, '\'');
}

static bool is_plain(const char *word)
{
    for (size_t n, left = strlen(word); left > 0; word += n, left -= n) {
        n = lvni_core_escape_plain(word, left);
        if (n == 0) {
            return false;
        }
    }
    return true;
}

void lvni_core_shell_quote(lvni_core_str *out, const char *word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789_@%+=:,./-";
    if (word[0] != '\0' && word[strspn(word, safe)] == '\0') {
        lvni_core_str_append(out, word);
        return;
    }
    if (!is_plain(word)) {
        quote_bytes(out, word);
        return;
    }
    lvni_core_str_char(out, '\'');
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            lvni_core_str_append(out, "'\\''");
        } else {
            lvni_core_str_char(out, *word);
        }
    }
    lvni_core_str_char(out, '\'');
}
