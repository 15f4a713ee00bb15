/* What leaves the process of text that came from outside: no control characters, whatever the
 * name. */

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "support/test.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* NOLINTBEGIN(misc-misleading-bidirectional,bugprone-suspicious-missing-comma): that is what it is
 * about */
static const struct sample {
    const char *bytes, *text, *name; /* name: NULL, as text */
} samples[] = {
    {"cat 1.jpg", "cat 1.jpg", NULL},
    {"Z\xc3\xbcrich \xe2\x82\xac \xf0\x9f\x90\xb1", "Z\xc3\xbcrich \xe2\x82\xac \xf0\x9f\x90\xb1",
     NULL},
    {"\xd9\x86\xe2\x80\x8c\xd9\x87", "\xd9\x86\xe2\x80\x8c\xd9\x87",
     NULL}, /* U+200C is part of words */
    {"a\x1b[31mb", "a\\x1b[31mb", NULL},
    {"\x1b]0;title\x07", "\\x1b]0;title\\x07", NULL},
    {"a\nerror: b\r\tc\x7f", "a\\x0aerror: b\\x0d\\x09c\\x7f", NULL},
    {"\xc2\x9b"
     "31m \xc2\x85",
     "\\xc2\\x9b31m \\xc2\\x85", NULL}, /* C1: CSI, NEL */
    {"\xe2\x80\xae"
     "gpj.exe",
     "\\xe2\\x80\\xaegpj.exe", NULL}, /* bidi override */
    {"\xe2\x80\xa8\xe2\x81\xa6\xef\xbb\xbf", "\\xe2\\x80\\xa8\\xe2\\x81\\xa6\\xef\\xbb\\xbf", NULL},
    {"caf\xe9", "caf\\xe9", NULL}, /* Latin-1 */
    {"\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80", "\\xc0\\xaf\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80", NULL},
    {"cut \xe2\x82", "cut \\xe2\\x82", NULL},
    {"a\\b", "a\\b", NULL},
    {"a\\xe9", "a\\xe9", "a\\x5cxe9"},
    {"\\\\x41\\x5c", "\\\\x41\\x5c", "\\\\x5cx41\\x5cx5c"},
    {"\\\xff\\x4", "\\\\xff\\x4", NULL},
    {"", "", NULL},
};
enum { SAMPLES = sizeof samples / sizeof *samples };

TEST(control_characters_and_broken_bytes_become_hexadecimal)
{
    for (int i = 0; i < SAMPLES; i++) {
        char out[128], again[128];
        const size_t n = lvni_core_escape(out, sizeof out, samples[i].bytes,
                                          strlen(samples[i].bytes), LVNI_ESCAPE_TEXT);
        assert_string_equal(out, samples[i].text);
        assert_int_equal(n, strlen(out));
        lvni_core_escape(again, sizeof again, out, n, LVNI_ESCAPE_TEXT);
        assert_string_equal(again, out);
    }
}

TEST(names_come_back)
{
    for (int i = 0; i < SAMPLES; i++) {
        lvni_core_str s = {0};
        lvni_core_str_escape(&s, samples[i].bytes, strlen(samples[i].bytes), LVNI_ESCAPE_NAME);
        assert_string_equal(lvni_core_str_text(&s),
                            samples[i].name != NULL ? samples[i].name : samples[i].text);
        char *text = lvni_core_str_take(&s);
        assert_int_equal(lvni_core_unescape_name(text), strlen(samples[i].bytes));
        assert_string_equal(text, samples[i].bytes);
        lvni_core_free(text);
    }
}

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Bytes that are near each other: escapes, backslashes, hexadecimal digits, parts of characters. */
TEST(any_name_comes_back_and_is_printable)
{
    static const char letters[] = "\\\\\\xx5cC1bB09\x1b\n\xc2\x85\xe2\x80\xae\xff"
                                  "a";
    uint32_t seed = 7;
    for (int i = 0; i < 200000; i++) {
        char name[16], text[64];
        const size_t n = next(&seed) % 12;
        for (size_t k = 0; k < n; k++) {
            name[k] = letters[next(&seed) % (sizeof letters - 1)];
        }
        name[n] = '\0';
        const size_t length = lvni_core_escape(text, sizeof text, name, n, LVNI_ESCAPE_NAME);
        assert_true(lvni_core_utf8_valid(text));
        for (size_t k = 0; k < length; k++) {
            assert_true((unsigned char)text[k] >= 0x20 && text[k] != 0x7f);
        }
        assert_int_equal(lvni_core_unescape_name(text), n);
        assert_string_equal(text, name);
    }
}

TEST(what_is_cut_ends_with_a_whole_character)
{
    static const char text[] = "a\xe2\x82\xac\x1b"
                               "b";
    static const char *const cut[] = {"",
                                      "a",
                                      "a",
                                      "a",
                                      "a\xe2\x82\xac",
                                      "a\xe2\x82\xac",
                                      "a\xe2\x82\xac",
                                      "a\xe2\x82\xac",
                                      "a\xe2\x82\xac\\x1b",
                                      "a\xe2\x82\xac\\x1b"
                                      "b"};
    for (size_t room = 1; room <= 10; room++) {
        char out[16];
        memset(out, '!', sizeof out);
        assert_int_equal(lvni_core_escape(out, room, text, sizeof text - 1, LVNI_ESCAPE_TEXT), 9);
        assert_string_equal(out, cut[room - 1]);
        assert_int_equal(out[room], '!');
    }
}

static void both(const char *fmt, ...) LVN_PRINTF(1, 2);
static void both(const char *fmt, ...)
{
    char want[512], is[512];
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const int n = vsnprintf(want, sizeof want, fmt, args);
    assert_int_equal(lvni_core_escape_format(is, sizeof is, fmt, again), n);
    assert_string_equal(is, want);
    va_end(again);
    va_end(args);
}

TEST(formats_are_those_of_printf)
{
    both("nothing");
    both("%d%% %i %5d|%-5d|%05d|%+d", 50, -7, 42, 42, 42, 42);
    both("%u %x %X %#x %o", UINT_MAX, 255u, 255u, 255u, 8u);
    both("%ld %lu %lld %llu", LONG_MIN, ULONG_MAX, LLONG_MIN, ULLONG_MAX);
    both("%zu %zd %jd %td", SIZE_MAX, (ssize_t)-1, INTMAX_MIN, (ptrdiff_t)-3);
    both("%hhx %hu %hd", 0xAB, 65535, -2);
    both("%" PRId64 " %" PRIu64 " %016" PRIx64, INT64_MIN, UINT64_MAX, UINT64_C(0xABC));
    both("%g %.3f %e %10.2f|%-10.2f| %a", 0.1, 2.0 / 3.0, 1e300, 3.14159, 3.14159, 1.0);
    both("%f", 1e300);
    both("%*d|%-*d|%*d|%.*f", 6, 1, 6, 2, -6, 3, 2, 1.23456);
    both("%s|%8s|%-8s|%.2s|%.*s|%*s", "abc", "abc", "abc", "abc", 1, "abc", 5, "xy");
    both("%.*s %c %p", -1, "all of it", 'x', (void *)0x1234);
    both("%.9g %.17g %i", 0.1, 0.1, INT_MIN);
}

TEST(only_arguments_are_escaped)
{
    lvni_core_str s = {0};
    lvni_core_str_message(&s, "E1: %s\n  found: %.3s %c %4s|%-4s|", "a\nb",
                          "\xe2\x82\xac\xe2\x82\xac", '\x1b', "\x01", "\x02");
    assert_string_equal(lvni_core_str_text(&s),
                        "E1: a\\x0ab\n  found: \xe2\x82\xac \\x1b \\x01|\\x02|");
    lvni_core_str_clear(&s);
    lvni_core_str_message(&s, "%.4s %-s", "\xe2\x82\xac\xe2\x82\xac", "one\n\ttwo\x1b[0m");
    assert_string_equal(lvni_core_str_text(&s), "\xe2\x82\xac one\n\ttwo\\x1b[0m");
    lvni_core_str_free(&s);
}

/* Errors, frames and notices: everything that is formatted there. */
TEST(errors_and_notices_are_clean)
{
    static const char name[] = "x\x1b[2J\n[INFO] \xe9\xe2\x80\xae";
    static const char clean[] = "x\\x1b[2J\\x0a[INFO] \\xe9\\xe2\\x80\\xae";
    lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__, "%s", name);
    assert_string_equal(lvn_last_error()->message, clean);
    lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__, "again: %s", lvn_last_error()->message);
    lvn_error_append("; %s", name);
    lvn_error_frame("in %s", name);
    char want[256];
    snprintf(want, sizeof want, "again: %s; %s", clean, clean);
    assert_string_equal(lvn_last_error()->message, want);
    snprintf(want, sizeof want, "in %s", clean);
    assert_string_equal(lvn_last_error()->frames[0], want);
    lvni_core_notices notices = {0};
    lvni_core_notice_error(&notices, 101, "%s", name);
    lvni_core_notice_found(&notices, "%s", name);
    lvni_core_notice_warn(&notices, 201, "%s", name);
    snprintf(want, sizeof want, "levin: error E101: %s\n  found: %s\n", clean, clean);
    assert_string_equal(lvni_core_str_text(&notices.text), want);
    snprintf(want, sizeof want, "levin: warning W201: %s\n", clean);
    assert_string_equal(lvni_core_str_text(&notices.warnings), want);
    lvni_core_notices_free(&notices);
}

/* A message as long as the record is cut between characters. */
TEST(long_errors_end_with_a_whole_character)
{
    char euros[1800];
    for (size_t i = 0; i + 3 < sizeof euros; i += 3) {
        memcpy(euros + i, "\xe2\x82\xac", 4);
    }
    for (int pad = 0; pad < 3; pad++) {
        lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__, "%.*s%s", pad, "aaa", euros);
        assert_true(lvni_core_utf8_valid(lvn_last_error()->message));
        assert_true(strlen(lvn_last_error()->message) >= sizeof lvn_last_error()->message - 4);
    }
}

TEST(json_strings_hold_any_bytes)
{
    lvni_core_str s = {0};
    lvni_core_str_json(
        &s, "a\x1b\n\"\\ \xc2\x9b \xe2\x80\xae \xe9 \xe2\x82\xac \xf0\x9f\x90\xb1 \xe2\x82");
    assert_string_equal(lvni_core_str_text(&s), "\"a\\u001b\\n\\\"\\\\ \\u009b \\u202e \\\\xe9 "
                                                "\xe2\x82\xac \xf0\x9f\x90\xb1 \\\\xe2\\\\x82\"");
    lvni_core_str_free(&s);
}

/* NOLINTEND(misc-misleading-bidirectional,bugprone-suspicious-missing-comma) */
