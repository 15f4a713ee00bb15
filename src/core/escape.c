/* Escaping of text from outside (escape.h). Errors, notices, the log and what commands print format
 * their lines here, so that no caller has to think of it. */
#include "core/escape.h"

#include "core/alloc.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* What is written of a text that may be longer than its buffer. */
typedef struct sink {
    char *out;
    size_t room, written, length;
    bool full; /* nothing follows a character that did not fit */
} sink;

static void put(sink *s, const char *bytes, size_t n)
{
    s->full = s->full || s->room - s->written <= n;
    if (!s->full) {
        memcpy(s->out + s->written, bytes, n);
        s->written += n;
    }
    s->length += n;
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* `\xHH` at p, of which n bytes are there */
static bool is_escape(const char *p, size_t n)
{
    return n >= 4 && p[0] == '\\' && p[1] == 'x' && is_hex(p[2]) && is_hex(p[3]);
}

/* Does the character at p stay? Its bytes in *length: 1 for a byte that is not a character. */
static bool plain(const char *p, size_t n, lvni_core_escape_kind kind, size_t *length)
{
    uint32_t code;
    const size_t k = lvni_core_utf8_char(p, n, &code);
    *length = k == 0 ? 1 : k;
    if (k == 1) {
        const bool line = kind == LVNI_ESCAPE_LINES && (code == '\n' || code == '\t');
        return line ||
               (code >= 0x20 && code != 0x7F && !(kind == LVNI_ESCAPE_NAME && is_escape(p, n)));
    }
    return k > 1 && !lvni_core_utf8_hidden(code);
}

size_t lvni_core_escape_plain(const char *bytes, size_t n)
{
    size_t length;
    return n > 0 && plain(bytes, n, LVNI_ESCAPE_TEXT, &length) ? length : 0;
}

static void put_escaped(sink *s, const char *bytes, size_t n, lvni_core_escape_kind kind)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t at = 0, length; at < n; at += length) {
        if (plain(bytes + at, n - at, kind, &length)) {
            put(s, bytes + at, length);
            continue;
        }
        for (size_t i = 0; i < length; i++) {
            const unsigned char c = (unsigned char)bytes[at + i];
            put(s, (const char[]){'\\', 'x', digits[c >> 4], digits[c & 15]}, 4);
        }
    }
}

size_t lvni_core_escape(char *out, size_t room, const char *bytes, size_t n,
                        lvni_core_escape_kind kind)
{
    sink s = {.out = out, .room = room};
    put_escaped(&s, bytes, n, kind);
    out[s.written] = '\0';
    return s.length;
}

void lvni_core_str_escape(lvni_core_str *s, const char *bytes, size_t n, lvni_core_escape_kind kind)
{
    char none[1];
    const size_t length = lvni_core_escape(none, 1, bytes, n, kind);
    char *at = lvni_core_str_room(s, length);
    if (at != NULL) {
        lvni_core_escape(at, length + 1, bytes, n, kind);
    }
}

size_t lvni_core_unescape_name(char *text)
{
    const size_t n = strlen(text);
    size_t to = 0;
    for (size_t at = 0; at < n; to++) {
        if (is_escape(text + at, n - at)) {
            const char pair[3] = {text[at + 2], text[at + 3], '\0'};
            const char byte = (char)strtoul(pair, NULL, 16);
            text[to] = byte != '\0' ? byte : '\\';
            at += byte != '\0' ? 4 : 1; /* \x00 stands for itself: no name holds a zero */
        } else {
            text[to] = text[at++];
        }
    }
    text[to] = '\0';
    return to;
}

/* ---- formats ---- */

enum { SPEC = 48, PIECE = 512 };

/* One conversion; precision -1: none. */
typedef struct conversion {
    const char *flags;
    size_t n_flags;
    bool left; /* '-' among the flags, or a negative width */
    bool has_width;
    int width, precision;
    const char *length; /* "", "hh", "h", "l", "ll", "z", "j", "t", "L" */
    size_t n_length;
    char kind;
} conversion;

/* The rest of the arguments: a va_list that is passed on by its address. */
typedef struct rest {
    va_list args;
} rest;

static int number(const char **at, rest *r)
{
    int value = 0;
    if (**at == '*') {
        ++*at;
        return va_arg(r->args, int);
    }
    for (; isdigit((unsigned char)**at); ++*at) {
        value = value < 100000 ? value * 10 + (**at - '0') : value;
    }
    return value;
}

/* Behind the percent sign; the byte behind the conversion. */
static const char *parse(const char *at, rest *r, conversion *c)
{
    *c = (conversion){.flags = at, .precision = -1};
    c->n_flags = strspn(at, "-+ #0");
    c->left = memchr(at, '-', c->n_flags) != NULL;
    at += c->n_flags;
    c->has_width = *at == '*' || isdigit((unsigned char)*at);
    c->width = number(&at, r);
    c->left = c->left || c->width < 0;
    c->width = abs(c->width);
    if (*at == '.') {
        at++;
        c->precision = number(&at, r);
    }
    c->length = at;
    c->n_length = strspn(at, "hlzjtL");
    at += c->n_length;
    c->kind = *at;
    return *at != '\0' ? at + 1 : at;
}

static bool has_length(const conversion *c, const char *name)
{
    return strlen(name) == c->n_length && strncmp(c->length, name, c->n_length) == 0;
}

/* All integers in their widest form: the promise of printf is that the value is the same. */
static long long integer(const conversion *c, rest *r)
{
    const bool is_signed = c->kind == 'd' || c->kind == 'i';
    if (has_length(c, "ll") || has_length(c, "j")) {
        return va_arg(r->args, long long);
    }
    if (has_length(c, "l")) {
        return is_signed ? va_arg(r->args, long) : (long long)va_arg(r->args, unsigned long);
    }
    if (has_length(c, "z") || has_length(c, "t")) {
        return (long long)va_arg(r->args, size_t);
    }
    if (is_signed) {
        return va_arg(r->args, int);
    }
    const unsigned mask = has_length(c, "hh") ? 0xFF : has_length(c, "h") ? 0xFFFF : ~0u;
    return (long long)(va_arg(r->args, unsigned) & mask);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored                                                                     \
    "-Wformat-nonliteral" /* made of a format that the compiler has checked */

static void put_number(sink *s, const conversion *c, rest *r)
{
    char spec[SPEC], piece[PIECE];
    const int flags = (int)(c->n_flags < 8 ? c->n_flags : 8);
    const bool real = strchr("aAeEfFgG", c->kind) != NULL;
    int n = snprintf(spec, sizeof spec, "%%%.*s", flags, c->flags);
    if (c->has_width) {
        n += snprintf(spec + n, sizeof spec - (size_t)n, "%s%d", c->left ? "-" : "", c->width);
    }
    if (c->precision >= 0) {
        n += snprintf(spec + n, sizeof spec - (size_t)n, ".%d", c->precision);
    }
    snprintf(spec + n, sizeof spec - (size_t)n, "%s%c", real || c->kind == 'p' ? "" : "ll",
             c->kind);
    if (c->kind == 'p') {
        n = snprintf(piece, sizeof piece, spec, va_arg(r->args, void *));
    } else if (real) {
        const bool longer = has_length(c, "L");
        const double value =
            longer ? (double)va_arg(r->args, long double) : va_arg(r->args, double);
        n = lvni_core_format(piece, sizeof piece, spec, value);
    } else {
        n = snprintf(piece, sizeof piece, spec, integer(c, r));
    }
    put(s, piece, n < 0 ? 0 : (size_t)n < sizeof piece ? (size_t)n : sizeof piece - 1);
}

#pragma GCC diagnostic pop

static void put_text(sink *s, const conversion *c, const char *text, size_t n)
{
    const bool lines = c->left && !c->has_width;
    const lvni_core_escape_kind kind = lines ? LVNI_ESCAPE_LINES : LVNI_ESCAPE_TEXT;
    char none[1];
    const size_t length = lvni_core_escape(none, 1, text, n, kind);
    for (size_t i = length; !c->left && i < (size_t)c->width; i++) {
        put(s, " ", 1);
    }
    put_escaped(s, text, n, kind);
    for (size_t i = length; c->left && i < (size_t)c->width; i++) {
        put(s, " ", 1);
    }
}

static void put_conversion(sink *s, const conversion *c, rest *r)
{
    if (c->kind == 's') {
        const char *text = va_arg(r->args, const char *);
        text = text != NULL ? text : "(null)";
        put_text(s, c, text,
                 c->precision < 0 ? strlen(text) : lvni_core_utf8_cut(text, (size_t)c->precision));
    } else if (c->kind == 'c') {
        const char one = (char)va_arg(r->args, int);
        put_text(s, c, &one, 1);
    } else if (c->kind == '%') {
        put(s, "%", 1);
    } else if (c->kind != '\0') {
        put_number(s, c, r);
    }
}

size_t lvni_core_escape_format(char *out, size_t room, const char *fmt, va_list args)
{
    sink s = {.out = out, .room = room};
    rest r;
    va_copy(r.args, args);
    while (*fmt != '\0') {
        const size_t n = strcspn(fmt, "%");
        for (size_t at = 0, k; at < n;
             at += k) { /* by characters, so that no part of one is left at the end */
            uint32_t code;
            k = lvni_core_utf8_char(fmt + at, n - at, &code);
            k = k == 0 ? 1 : k;
            put(&s, fmt + at, k);
        }
        fmt += n;
        if (*fmt == '%') {
            conversion c;
            fmt = parse(fmt + 1, &r, &c);
            put_conversion(&s, &c, &r);
        }
    }
    va_end(r.args);
    out[s.written] = '\0';
    return s.length;
}

void lvni_core_str_message(lvni_core_str *s, const char *fmt, ...)
{
    char none[1];
    va_list args;
    va_start(args, fmt);
    const size_t n = lvni_core_escape_format(none, 1, fmt, args);
    va_end(args);
    char *at = lvni_core_str_room(s, n);
    if (at != NULL) {
        va_start(args, fmt);
        lvni_core_escape_format(at, n + 1, fmt, args);
        va_end(args);
    }
}

void lvni_core_print(FILE *file, const char *fmt, ...)
{
    char line[1024];
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const size_t n = lvni_core_escape_format(line, sizeof line, fmt, args);
    char *all = n < sizeof line ? NULL : lvni_core_alloc(LVNI_TAG_CORE, n + 1);
    if (all != NULL) {
        lvni_core_escape_format(all, n + 1, fmt, again);
    }
    fputs(all != NULL ? all : line, file); /* better cut than lost */
    va_end(again);
    va_end(args);
    lvni_core_free(all);
}

/* ---- quoting for a shell ---- */

/* $'...' of bash and zsh, for what must not reach a terminal raw. */
static void quote_bytes(lvni_core_str *out, const char *arg)
{
    lvni_core_str_append(out, "$'");
    for (size_t left = strlen(arg); left > 0;) {
        const size_t n = lvni_core_escape_plain(arg, left);
        if (n == 0) {
            lvni_core_str_printf(out, "\\x%02x", (unsigned char)*arg);
        } else {
            lvni_core_str_append(out, *arg == '\'' || *arg == '\\' ? "\\" : "");
            lvni_core_str_append_n(out, arg, n);
        }
        arg += n > 0 ? n : 1;
        left -= n > 0 ? n : 1;
    }
    lvni_core_str_char(out, '\'');
}

static bool is_plain(const char *arg)
{
    for (size_t n, left = strlen(arg); left > 0; arg += n, left -= n) {
        n = lvni_core_escape_plain(arg, left);
        if (n == 0) {
            return false;
        }
    }
    return true;
}

void lvni_core_shell_quote(lvni_core_str *out, const char *arg)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789_@%+=:,./-";
    if (arg[0] != '\0' && arg[strspn(arg, safe)] == '\0') {
        lvni_core_str_append(out, arg);
        return;
    }
    if (!is_plain(arg)) {
        quote_bytes(out, arg);
        return;
    }
    lvni_core_str_char(out, '\'');
    for (; *arg != '\0'; arg++) {
        if (*arg == '\'') {
            lvni_core_str_append(out, "'\\''");
        } else {
            lvni_core_str_char(out, *arg);
        }
    }
    lvni_core_str_char(out, '\'');
}
