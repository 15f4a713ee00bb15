/* Growable strings, UTF-8, numbers as text and the distance of texts (str.h). */
#include "core/str.h"

#include "core/alloc.h"

#include <ctype.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(lvni_core_str *s, size_t extra)
{
    if (s->failed) {
        return false;
    }
    if (s->room > s->len && s->room - s->len > extra) {
        return true;
    }
    size_t room = s->room == 0 ? 64 : s->room * 2;
    if (room - s->len <= extra) {
        room = s->len + extra + 1;
    }
    char *data = lvni_core_realloc(LVNI_TAG_CORE, s->data, room);
    if (data == NULL) {
        s->failed = true;
        return false;
    }
    if (s->data == NULL) {
        data[0] = '\0';
    }
    s->data = data;
    s->room = room;
    return true;
}

void lvni_core_str_append_n(lvni_core_str *s, const char *bytes, size_t n)
{
    if (reserve(s, n)) {
        memcpy(s->data + s->len, bytes, n);
        s->len += n;
        s->data[s->len] = '\0';
    }
}

char *lvni_core_str_room(lvni_core_str *s, size_t n)
{
    if (!reserve(s, n)) {
        return NULL;
    }
    char *at = s->data + s->len;
    s->len += n;
    s->data[s->len] = '\0';
    return at;
}

void lvni_core_str_append(lvni_core_str *s, const char *text)
{
    lvni_core_str_append_n(s, text, strlen(text));
}

void lvni_core_str_char(lvni_core_str *s, char c)
{
    lvni_core_str_append_n(s, &c, 1);
}

/* ---- numbers ---- */

static locale_t c_locale;

static void make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* takes no memory */
}

static locale_t get_locale(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_locale);
    return c_locale;
}

int lvni_core_format_args(char *out, size_t room, const char *fmt, va_list args)
{
    const locale_t before = uselocale(get_locale()); /* of this thread alone */
    const int n = vsnprintf(out, room, fmt, args);
    uselocale(before);
    return n;
}

int lvni_core_format(char *out, size_t room, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int n = lvni_core_format_args(out, room, fmt, args);
    va_end(args);
    return n;
}

double lvni_core_strtod(const char *text, char **end)
{
    return strtod_l(text, end, get_locale());
}

void lvni_core_str_printf(lvni_core_str *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = lvni_core_format_args(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !reserve(s, (size_t)n)) {
        s->failed = true;
        return;
    }
    va_start(ap, fmt);
    lvni_core_format_args(s->data + s->len, s->room - s->len, fmt, ap);
    va_end(ap);
    s->len += (size_t)n;
}

size_t lvni_core_utf8_char(const char *bytes, size_t n, uint32_t *code)
{
    static const struct {
        unsigned char lead_min, lead_max, next_min, next_max;
        size_t n;
    } forms[] = {
        {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3},
        {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
        {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
    };
    const unsigned char *p = (const unsigned char *)bytes;
    if (n == 0 || p[0] < 0x80) {
        *code = n == 0 ? 0 : p[0];
        return n == 0 ? 0 : 1;
    }
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (p[0] < forms[i].lead_min || p[0] > forms[i].lead_max || n < forms[i].n ||
            p[1] < forms[i].next_min || p[1] > forms[i].next_max) {
            continue;
        }
        *code = p[0] & (0x7Fu >> forms[i].n);
        for (size_t k = 1; k < forms[i].n; k++) {
            if ((p[k] & 0xC0) != 0x80) {
                return 0;
            }
            *code = *code << 6 | (p[k] & 0x3Fu);
        }
        return forms[i].n;
    }
    return 0;
}

bool lvni_core_utf8_valid(const char *text)
{
    uint32_t code;
    for (size_t left = strlen(text), k; left > 0; text += k, left -= k) {
        k = lvni_core_utf8_char(text, left, &code);
        if (k == 0) {
            return false;
        }
    }
    return true;
}

size_t lvni_core_utf8_cut(const char *text, size_t most)
{
    const size_t n = strnlen(text, most);
    size_t lead = n;
    while (lead > 0 && n - lead < 3 && ((unsigned char)text[lead - 1] & 0xC0) == 0x80) {
        lead--;
    }
    const unsigned char first = lead > 0 ? (unsigned char)text[lead - 1] : 0;
    const size_t wants = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 1;
    return n == most && n - lead + 1 < wants ? lead - 1 : n;
}

/* U+200C and U+200D stay: Persian and Indic scripts and emoji need them. */
bool lvni_core_utf8_hidden(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0x80, 0x9F},     {0x61C, 0x61C},   {0x180E, 0x180E}, {0x200B, 0x200B}, {0x200E, 0x200F},
        {0x2028, 0x202E}, {0x2060, 0x206F}, {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xFFFE, 0xFFFF},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (code >= ranges[i].first && code <= ranges[i].last) {
            return true;
        }
    }
    return false;
}

void lvni_core_str_json(lvni_core_str *s, const char *text)
{
    static const char plain[] = "\"\\\b\f\n\r\t";
    static const char letter[] = "\"\\bfnrt";
    lvni_core_str_char(s, '"');
    for (const char *p = text; *p != '\0';) {
        const unsigned char c = (unsigned char)*p;
        const char *special = strchr(plain, *p);
        uint32_t code = 0;
        const size_t n = lvni_core_utf8_char(p, strnlen(p, 4), &code);
        if (special != NULL) {
            lvni_core_str_char(s, '\\');
            lvni_core_str_char(s, letter[special - plain]);
        } else if (c < 0x20 || c == 0x7F) {
            lvni_core_str_printf(s, "\\u%04x", (unsigned)c);
        } else if (n > 1 && lvni_core_utf8_hidden(code)) {
            lvni_core_str_printf(s, "\\u%04x", (unsigned)code);
        } else if (n == 0) {
            lvni_core_str_printf(s, "\\\\x%02x", (unsigned)c);
        } else {
            lvni_core_str_append_n(s, p, n);
        }
        p += n == 0 ? 1 : n;
    }
    lvni_core_str_char(s, '"');
}

void lvni_core_str_double(lvni_core_str *s, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        lvni_core_format(text, sizeof text, "%.*g", digits, value);
        if (lvni_core_strtod(text, NULL) == value) {
            break;
        }
    }
    lvni_core_str_append(s, text);
}

const char *lvni_core_bytes_text(uint64_t bytes, char out[LVNI_BYTES_TEXT])
{
    const double kib = (double)bytes / 1024.0, mib = kib / 1024.0;
    if (mib >= 1023.5) {
        lvni_core_format(out, LVNI_BYTES_TEXT, "%.2f GiB", mib / 1024.0);
    } else {
        const double value = kib >= 1023.5 ? mib : kib;
        lvni_core_format(out, LVNI_BYTES_TEXT, "%.*g %s", value < 100.0 ? 3 : 4, value,
                         kib >= 1023.5 ? "MiB" : "KiB");
    }
    return out;
}

const char *lvni_core_plural(int64_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

const char *lvni_core_str_text(const lvni_core_str *s)
{
    return s->data != NULL ? s->data : "";
}

lvn_status lvni_core_str_status(const lvni_core_str *s)
{
    return s->failed ? LVN_ERR_MEMORY : LVN_OK;
}

char *lvni_core_str_take(lvni_core_str *s)
{
    lvni_core_str_append_n(s, "", 0); /* an empty string is a block of its own too */
    char *data = s->failed ? NULL : s->data;
    if (s->failed) {
        lvni_core_free(s->data);
    }
    *s = (lvni_core_str){0};
    return data;
}

void lvni_core_str_clear(lvni_core_str *s)
{
    s->len = 0;
    s->failed = false;
    if (s->data != NULL) {
        s->data[0] = '\0';
    }
}

void lvni_core_str_free(lvni_core_str *s)
{
    lvni_core_free(s->data);
    *s = (lvni_core_str){0};
}

/* ---- how far two texts are apart: optimal string alignment over three rows of a table ---- */

enum { COMPARED = 63 }; /* bytes of each text */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

size_t lvni_core_edit_distance(const char *a, const char *b)
{
    const size_t n = strnlen(a, COMPARED);
    const size_t m = strnlen(b, COMPARED);
    size_t rows[3][COMPARED + 1];
    for (size_t j = 0; j <= m; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3];
        const size_t *one = rows[(i + 2) % 3];
        const size_t *two = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = least(least(one[j], now[j - 1]) + 1,
                           one[j - 1] + (same_letter(a[i - 1], b[j - 1]) ? 0 : 1));
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1])) {
                now[j] = least(now[j], two[j - 2] + 1);
            }
        }
    }
    return rows[n % 3][m];
}

size_t lvni_core_edit_limit(const char *a, const char *b)
{
    const size_t n = strnlen(a, COMPARED);
    const size_t m = strnlen(b, COMPARED);
    const size_t third = (n > m ? n : m) / 3;
    return third < 1 ? 1 : least(third, 4);
}
