/* The small parts: strings, clock, thread names, exit codes. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/sha256.h"
#include "core/str.h"
#include "core/thread.h"
#include "core/vfs.h"
#include "support/test.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TEST(strings_grow)
{
    lvni_core_str s = {0};
    assert_string_equal(lvni_core_str_text(&s), "");
    for (int i = 0; i < 1000; i++) {
        lvni_core_str_printf(&s, "%d,", i);
    }
    lvni_core_str_char(&s, '!');
    assert_int_equal(lvni_core_str_status(&s), LVN_OK);
    assert_int_equal(s.len, 10 * 2 + 90 * 3 + 900 * 4 + 1);
    assert_memory_equal(s.data, "0,1,2,", 6);
    assert_string_equal(s.data + s.len - 5, "999,!");
    lvni_core_str_clear(&s);
    assert_string_equal(lvni_core_str_text(&s), "");
    lvni_core_str_append(&s, "x");
    char *taken = lvni_core_str_take(&s);
    assert_string_equal(taken, "x");
    lvni_core_free(taken);
    taken = lvni_core_str_take(&s);
    assert_string_equal(taken, "");
    lvni_core_free(taken);
}

TEST(a_failed_append_is_remembered)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    lvni_core_str s = {0};
    lvni_core_str_append(&s, "kept");
    lvni_core_alloc_fail_at(1);
    lvni_core_str_printf(&s, "%0100d", 7);
    lvni_core_alloc_fail_at(0);
    lvni_core_str_append(&s, "no");
    assert_int_equal(lvni_core_str_status(&s), LVN_ERR_MEMORY);
    assert_string_equal(lvni_core_str_text(&s), "kept");
    assert_null(lvni_core_str_take(&s));
    assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
    lvni_core_alloc_fail_at(1);
    lvni_core_str_append(&s, "x");
    lvni_core_alloc_fail_at(0);
    assert_string_equal(lvni_core_str_text(&s), "");
    lvni_core_str_free(&s);
}

TEST(json_strings_escape)
{
    lvni_core_str s = {0};
    lvni_core_str_json(
        &s, "a\"b\\c\n\t\x01 \xc3\xa4 \xff \xed\xa0\x80 \xe2\x82\xac \xf0\x9f\x98\x80 \xc0\xaf");
    assert_string_equal(
        lvni_core_str_text(&s),
        "\"a\\\"b\\\\c\\n\\t\\u0001 \xc3\xa4 \\\\xff \\\\xed\\\\xa0\\\\x80 \xe2\x82\xac "
        "\xf0\x9f\x98\x80 \\\\xc0\\\\xaf\"");
    lvni_core_str_clear(&s);
    lvni_core_str_json(&s, "\xe2\x82"); /* cut off: must not read past the end */
    assert_string_equal(lvni_core_str_text(&s), "\"\\\\xe2\\\\x82\"");
    lvni_core_str_free(&s);
}

TEST(texts_are_cut_between_characters)
{
    static const char text[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z";
    static const size_t kept[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
    for (size_t most = 0; most < sizeof kept / sizeof *kept; most++) {
        assert_int_equal(lvni_core_utf8_cut(text, most), kept[most]);
    }
    /* bytes without a character have no boundaries; nothing is read behind the end */
    assert_int_equal(lvni_core_utf8_cut("\x80\x80\x80\x80\x80", 4), 4);
    assert_int_equal(lvni_core_utf8_cut("ab\xc3", 9), 3);
    assert_int_equal(lvni_core_utf8_cut((const char[]){'\xe2', '\x82'}, 2), 0);
}

TEST(doubles_are_short_and_exact)
{
    static const struct {
        double value;
        const char *text;
    } rows[] = {{0.1, "0.1"},        {20, "20"},
                {1e-5, "1e-05"},     {0.30000000000000004, "0.30000000000000004"},
                {-2.5, "-2.5"},      {INFINITY, "inf"},
                {-INFINITY, "-inf"}, {1.0 / 3.0, "0.3333333333333333"}};
    lvni_core_str s = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lvni_core_str_clear(&s);
        lvni_core_str_double(&s, rows[i].value);
        assert_string_equal(lvni_core_str_text(&s), rows[i].text);
        assert_true(strtod(lvni_core_str_text(&s), NULL) == rows[i].value);
    }
    lvni_core_str_free(&s);
}

TEST(amounts_of_memory_have_no_exponent)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {{0, "0 KiB"},
                {65536, "64 KiB"},
                {2500 * 1024, "2.44 MiB"},
                {(uint64_t)5 << 20, "5 MiB"},
                {38587597, "36.8 MiB"},
                {(uint64_t)1000 << 20, "1000 MiB"},
                {(uint64_t)1023 << 20, "1023 MiB"},
                {((uint64_t)1024 << 20) - 1, "1.00 GiB"},
                {(uint64_t)1280 << 20, "1.25 GiB"},
                {(uint64_t)16384 << 20, "16.00 GiB"},
                {UINT64_MAX, "17179869184.00 GiB"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[LVNI_BYTES_TEXT];
        assert_string_equal(lvni_core_bytes_text(rows[i].bytes, text), rows[i].text);
    }
}

TEST(the_clock_runs_forward)
{
    const uint64_t a = lvni_core_now_ns();
    uint64_t b = a;
    for (int i = 0; i < 1000; i++) {
        const uint64_t c = lvni_core_now_ns();
        assert_true(c >= b);
        b = c;
    }
    assert_true(b > a);
    assert_true(lvni_core_seconds_since(a) >= 0.0 && lvni_core_seconds_since(a) < 10.0);
}

static void *name_me(void *out)
{
    lvni_core_thread_name("a-very-long-role", 12);
    pthread_getname_np(pthread_self(), (char *)out, 16);
    lvni_core_thread_name("writer", -1);
    pthread_getname_np(pthread_self(), (char *)out + 16, 16);
    return NULL;
}

TEST(threads_have_names)
{
    char names[32] = "";
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, name_me, names), 0);
    pthread_join(thread, NULL);
    assert_string_equal(names, "lvn-a-very-lo12");
    assert_string_equal(names + 16, "lvn-writer");
}

static void *report_mask(void *out)
{
    pthread_sigmask(SIG_SETMASK, NULL, out);
    return NULL;
}

TEST(threads_take_the_signals_of_their_own_instructions_alone)
{
    sigset_t mask;
    pthread_t thread;
    sigemptyset(&mask);
    assert_int_equal(lvni_core_thread_start(&thread, report_mask, &mask), 0);
    pthread_join(thread, NULL);
    assert_int_equal(sigismember(&mask, SIGTERM), 1);
    assert_int_equal(sigismember(&mask, SIGPIPE), 1);
    assert_int_equal(sigismember(&mask, SIGSEGV), 0);
    assert_int_equal(sigismember(&mask, SIGBUS), 0);
    lvni_core_alloc_fail_at(1);
    const int error = lvni_core_thread_start(&thread, report_mask, &mask);
    lvni_core_alloc_fail_at(0);
    assert_int_equal(error, ENOMEM);
}

TEST(the_host_has_a_name_that_fits)
{
    char whole[256], cut[2] = {'x', 'y'};
    lvni_core_host_name(whole, sizeof whole);
    lvni_core_host_name(cut, sizeof cut);
    assert_true(whole[0] != '\0');
    assert_int_equal(cut[0], whole[0]);
    assert_int_equal(cut[1], '\0');
}

TEST(exit_codes_follow_the_table)
{
    assert_int_equal(lvni_core_exit_of_status(LVN_OK), 0);
    assert_int_equal(lvni_core_exit_of_status(LVN_ERR_USAGE), 64);
    assert_int_equal(lvni_core_exit_of_status(LVN_ERR_MEMORY), 69);
    assert_int_equal(lvni_core_exit_of_status(LVN_ERR_DEVICE_MEMORY), 69);
    assert_int_equal(lvni_core_exit_of_status(LVN_ERR_TIMEOUT), 75);
    assert_int_equal(lvni_core_exit_of_status(LVN_ERR_PEER), 76);
    assert_int_equal(lvni_core_exit_of_status(LVN_ERR_NON_FINITE), 1);
    assert_int_equal(lvni_core_exit_of_status(LVN_ERR_IO), 1);
    assert_int_equal(lvni_core_exit_of_status(LVN_ERR_CORRUPT), 1);
    assert_int_equal(lvni_core_exit_of_signal(2), LVNI_EXIT_SIGINT);
    assert_int_equal(lvni_core_exit_of_signal(15), LVNI_EXIT_SIGTERM);
    assert_int_equal(lvni_core_exit_of_signal(9), 137);
}

/* Nothing but the sentence grows, and never past its end. */
TEST(more_is_reported_of_an_error)
{
    lvn_error_set(LVN_ERR_NON_FINITE, "loss.c", 7, "the loss is %s", "nan");
    lvn_error_frame("step %d", 3);
    const lvn_error before = *lvn_last_error();
    lvn_error_append("; step %d is kept", 2);
    const lvn_error *e = lvn_last_error();
    assert_string_equal(e->message, "the loss is nan; step 2 is kept");
    assert_int_equal(e->code, LVN_ERR_NON_FINITE);
    assert_string_equal(e->file, "loss.c");
    assert_int_equal(e->line, 7);
    assert_true(e->serial == before.serial);
    assert_int_equal(e->n_frames, 1);
    assert_string_equal(e->frames[0], "step 3");
    for (int i = 0; i < 100; i++) {
        lvn_error_append("%s", "a sentence with some words");
    }
    assert_int_equal(strlen(e->message), sizeof e->message - 1);
    assert_string_equal(e->frames[0], "step 3");
    lvn_clear_error();
}

static void put(const char *root, const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, folder);
    assert_int_equal(lvni_core_mkdirs(path), LVN_OK);
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
    assert_int_equal(lvni_core_file_write(path, text, strlen(text)), LVN_OK);
}

/* The least of what is free and of the limits on the way out of the process's control group. */
TEST(memory_is_what_machine_and_groups_leave)
{
    char root[] = "/tmp/levin-core-XXXXXX", command[64];
    assert_non_null(mkdtemp(root));
    assert_true(lvni_core_machine_memory(root) == UINT64_MAX);
    put(root, "proc", "meminfo", "MemTotal: 9000 kB\nMemFree:  10 kB\nMemAvailable:   8000 kB\n");
    assert_int_equal(lvni_core_machine_memory(root), 8000 * 1024);
    put(root, "proc/self", "cgroup", "4:memory:/other\n0::/jobs/17\n");
    put(root, "sys/fs/cgroup/jobs/17", "memory.max", "max\n");
    assert_int_equal(lvni_core_machine_memory(root), 8000 * 1024);
    put(root, "sys/fs/cgroup/jobs", "memory.max", "5000000\n");
    assert_int_equal(lvni_core_machine_memory(root), 5000000);
    put(root, "sys/fs/cgroup/jobs/17", "memory.max", "4000000\n");
    assert_int_equal(lvni_core_machine_memory(root), 4000000);
    put(root, "sys/fs/cgroup", "memory.max", "3000000\n"); /* a container's own */
    put(root, "proc/self", "cgroup", "0::/\n");
    assert_int_equal(lvni_core_machine_memory(root), 3000000);
    put(root, "sys/fs/cgroup", "memory.max", "9000000000\n");
    assert_int_equal(lvni_core_machine_memory(root), 8000 * 1024);
    assert_true(lvni_core_machine_memory("") > 0);
    assert_true(lvni_core_machine_memory_limit(root) == 9000000000u);
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

TEST(the_time_of_processors_is_the_least_of_the_groups)
{
    char root[] = "/tmp/levin-core-XXXXXX", command[64];
    assert_non_null(mkdtemp(root));
    assert_true(lvni_core_machine_cpu_quota(root) == UINT64_MAX);
    put(root, "proc/self", "cgroup", "0::/jobs/17\n");
    put(root, "sys/fs/cgroup/jobs/17", "cpu.max", "max 100000\n");
    assert_true(lvni_core_machine_cpu_quota(root) == UINT64_MAX);
    put(root, "sys/fs/cgroup/jobs", "cpu.max", "250000 100000\n");
    assert_int_equal(lvni_core_machine_cpu_quota(root), 2500);
    put(root, "sys/fs/cgroup/jobs/17", "cpu.max", "50000 100000\n");
    assert_int_equal(lvni_core_machine_cpu_quota(root), 500);
    put(root, "sys/fs/cgroup/jobs/17", "cpu.max", "50000 0\n");
    assert_int_equal(lvni_core_machine_cpu_quota(root), 2500);
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

/* Examples of FIPS 180-4, a million letters in pieces of every length, and ends around a block. */
TEST(sha256_is_that_of_the_standard)
{
    static const struct {
        const char *text, *hex;
    } row[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"0123456789012345678901234567890123456789012345678901234",
         "f34d5a0f80c0cbf84c8c0b90218c22637abd199965249da736a20143c8c9c9d9"},
    };
    char hex[LVNI_SHA256_HEX];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        lvni_core_sha256 s;
        lvni_core_sha256_begin(&s);
        lvni_core_sha256_add(&s, row[i].text, strlen(row[i].text));
        lvni_core_sha256_end(&s, hex);
        assert_string_equal(hex, row[i].hex);
    }
    char letters[200];
    memset(letters, 'a', sizeof letters);
    lvni_core_sha256 s;
    lvni_core_sha256_begin(&s);
    for (size_t left = 1000000, n = 0; left > 0; n = (n + 1) % sizeof letters) {
        const size_t take = n < left ? n : left;
        lvni_core_sha256_add(&s, letters, take);
        left -= take;
    }
    lvni_core_sha256_end(&s, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(a_collected_failure_is_never_a_success)
{
    const lvn_error none = {0};
    lvn_clear_error();
    assert_int_equal(lvni_core_error_collect(LVN_ERR_IO, &none, "lane 2"), LVN_ERR_IO);
    assert_int_equal(lvn_last_error()->code, LVN_ERR_IO);
    assert_memory_equal(lvn_last_error()->message, "lane 2 failed with LVN_ERR_IO", 29);
    assert_int_equal(lvni_core_error_collect(LVN_OK, &none, "lane 2"), LVN_ERR_INTERNAL);
    const lvn_error known = {.code = LVN_ERR_USAGE, .message = "so"};
    assert_int_equal(lvni_core_error_collect(LVN_ERR_USAGE, &known, "lane 2"), LVN_ERR_USAGE);
    assert_string_equal(lvn_last_error()->message, "so");
    const lvn_error before = *lvn_last_error();
    lvn_clear_error();
    lvni_core_error_restore(&before);
    assert_string_equal(lvn_last_error()->message, "so");
    assert_int_equal(lvn_last_error()->serial, before.serial);
    lvn_clear_error();
}
