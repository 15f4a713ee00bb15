/* A growable string. Used wherever text of unknown length is put together: configuration, messages,
 * JSON lines. Appending never returns a status: the first failed allocation marks the string, later
 * appends do nothing, and lvni_core_str_status() reports it at the end. A zeroed lvni_core_str is
 * an empty one. */
#ifndef LEVIN_CORE_STR_H
#define LEVIN_CORE_STR_H

#include <levin/status.h>
#include <stdarg.h>

typedef struct lvni_core_str {
    char *data; /* zero-terminated; NULL while empty: read it with lvni_core_str_text */
    size_t len, room;
    bool failed;
} lvni_core_str;

void lvni_core_str_append(lvni_core_str *s, const char *text);
void lvni_core_str_append_n(lvni_core_str *s, const char *bytes, size_t n);
void lvni_core_str_char(lvni_core_str *s, char c);
/* n more bytes at the end, for the caller to fill at once; NULL: no memory, and s is marked. */
char *lvni_core_str_room(lvni_core_str *s, size_t n);
void lvni_core_str_printf(lvni_core_str *s, const char *fmt, ...) LVN_PRINTF(2, 3);
/* snprintf, vsnprintf and strtod with a decimal point, whatever locale the program that uses the
 * library has set: texts with numbers in them are for files, other programs and levin itself. Those
 * of the C library are for texts without (tools/check-names looks). */
int lvni_core_format(char *out, size_t room, const char *fmt, ...) LVN_PRINTF(3, 4);
int lvni_core_format_args(char *out, size_t room, const char *fmt, va_list args) LVN_PRINTF(3, 0);
double lvni_core_strtod(const char *text, char **end);
/* The text as a JSON string with its quotes, control characters and hidden ones as \uHHHH. A byte
 * that is not UTF-8 becomes the text `\xHH` (escape.h has the form that can be undone). A YAML
 * reader takes it as the same text. */
void lvni_core_str_json(lvni_core_str *s, const char *text);
bool lvni_core_utf8_valid(const char *text);
/* Length of the character at the front of n bytes, and its number; 0: none (an overlong form, a
 * surrogate). */
size_t lvni_core_utf8_char(const char *bytes, size_t n, uint32_t *code);
/* Bytes of the text, at most `most`, without the part of a character at the end: where a text that
 * is too long is cut. Reads no further. */
size_t lvni_core_utf8_cut(const char *text, size_t most);
/* A character above ASCII that controls a terminal, ends a line, changes the order of text or
 * cannot be seen. */
bool lvni_core_utf8_hidden(uint32_t code);
/* The shortest of %.15g, %.16g, %.17g that reads back as the same value; nan, inf and -inf as such.
 * Single digits before an exponent keep no point ("1e-05"); whole numbers get none ("20"). */
void lvni_core_str_double(lvni_core_str *s, double value);

enum { LVNI_BYTES_TEXT = 24 };
/* An amount of memory for people, never with an exponent: "64 KiB", "36.8 MiB", "1023 MiB", "1.25
 * GiB". Returns out. */
const char *lvni_core_bytes_text(uint64_t bytes, char out[LVNI_BYTES_TEXT]);

/* What a count is followed by: one when n is 1, else many. ("%d step%s", n, lvni_core_plural(n, "",
 * "s")) */
const char *lvni_core_plural(int64_t n, const char *one, const char *many);
/* "" while empty; borrowed until the next append */
const char *lvni_core_str_text(const lvni_core_str *s);
lvn_status lvni_core_str_status(const lvni_core_str *s); /* LVN_ERR_MEMORY when an append failed */
/* the caller's (lvni_core_free), NULL when an append failed; s is empty */
char *lvni_core_str_take(lvni_core_str *s);
void lvni_core_str_clear(lvni_core_str *s); /* empty, keeps the memory and forgets a failure */
void lvni_core_str_free(lvni_core_str *s);  /* s is empty again */

/* How far two texts are apart, for "did you mean": an insertion, a deletion, an exchange and a swap
 * of neighbours count one. Case is ignored; only the first 63 bytes of each are compared. */
size_t lvni_core_edit_distance(const char *a, const char *b);
/* The largest distance at which one is suggested for the other: a third of the longer text, at
 * least 1 and at most 4. */
size_t lvni_core_edit_limit(const char *a, const char *b);

#endif
