/* Quoting for a shell (shell_quote.h). */
#include "core/shell_quote.h"

#include <string.h>

void lvni_shell_quote(lvni_str *out, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        lvni_str_append(out, word);
        return;
    }
    lvni_str_char(out, '\'');
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            lvni_str_append(out, "'\\''");
        } else {
            lvni_str_char(out, *word);
        }
    }
    lvni_str_char(out, '\'');
}
