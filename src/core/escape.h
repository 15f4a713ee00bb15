/* Text that came from outside (names of files, classes, tensors and hosts, what another process
 * sent) on its way to a terminal, a log or a file. A byte that is not part of a valid UTF-8
 * character, and every byte of a character that controls the terminal or hides text (C0, DEL, C1,
 * line separators, bidirectional controls, invisible characters), becomes `\xHH`, two lower-case
 * hexadecimal digits; all others stay as they are. All of it is thread-safe and, where it writes to
 * a buffer, allocates nothing. */
#ifndef LEVIN_CORE_ESCAPE_H
#define LEVIN_CORE_ESCAPE_H

#include "core/str.h"

#include <stdarg.h>
#include <stdio.h>

typedef enum lvni_core_escape {
    LVNI_ESCAPE_TEXT,  /* one line; text that is escaped already stays as it is */
    LVNI_ESCAPE_LINES, /* text that levin put together: '\n' and '\t' stay, too */
    LVNI_ESCAPE_NAME   /* reversible: a backslash in front of xHH becomes `\x5c` */
} lvni_core_escape_kind;

/* The n bytes escaped into out, which is always terminated and ends with a whole character; room
 * >= 1. Returns the length without the limit, as snprintf does. */
size_t lvni_core_escape(char *out, size_t room, const char *bytes, size_t n,
                        lvni_core_escape_kind kind);
void lvni_core_str_escape(lvni_core_str *s, const char *bytes, size_t n,
                          lvni_core_escape_kind kind);
/* Length of the character at the front when it stays, 0: its first byte is to be escaped. */
size_t lvni_core_escape_plain(const char *bytes, size_t n);
/* The bytes that LVNI_ESCAPE_NAME made the text of; n: their number. In place, it never grows. */
size_t lvni_core_unescape_name(char *text);

/* As vsnprintf, with the text of each %s and %c escaped as LVNI_ESCAPE_TEXT; the format itself is
 * levin's own and stays. `%-s` without a width means lines that levin put together
 * (LVNI_ESCAPE_LINES). A result that is too long ends with a whole character. No positional
 * arguments, %n, %m or wide characters. */
size_t lvni_core_escape_format(char *out, size_t room, const char *fmt, va_list args)
    LVN_PRINTF(3, 0);
/* The same, appended to s, and printed: for everything that has a name in it. */
void lvni_core_str_message(lvni_core_str *s, const char *fmt, ...) LVN_PRINTF(2, 3);
void lvni_core_print(FILE *file, const char *fmt, ...) LVN_PRINTF(2, 3);

/* Appends the argument as one would type it into a shell: in quotes where the shell would change
 * it, in $'...' of bash and zsh where it holds what must not reach a terminal raw. */
void lvni_core_shell_quote(lvni_core_str *out, const char *arg);

#endif
