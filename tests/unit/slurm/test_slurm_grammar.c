/* What Slurm's options take: times, memory, arrays, signals, GPUs, by the tables of its manual and
 * of docs/slurm.md. */
#include "slurm/slurm_grammar.h"
#include "support/test.h"

#include <string.h>

TEST(times)
{
    static const char *const rows[][2] = {{"10", "0-00:10:00"},
                                          {"1:30", "0-00:01:30"},
                                          {"90:00", "0-01:30:00"},
                                          {"1:10:00", "0-01:10:00"},
                                          {"1-1", "1-01:00:00"},
                                          {"1-1:10", "1-01:10:00"},
                                          {"1-1:10:00", "1-01:10:00"},
                                          {"0", "UNLIMITED"},
                                          {"unlimited", "UNLIMITED"},
                                          {"INFINITE", "UNLIMITED"},
                                          {"90s", "0-00:01:30"},
                                          {"30m", "0-00:30:00"},
                                          {"2h", "0-02:00:00"},
                                          {"1d", "1-00:00:00"},
                                          {"0-02:00:00", "0-02:00:00"},
                                          {"36:00:00", "1-12:00:00"},
                                          {"999-23:59:59", "999-23:59:59"}};
    static const char *const bad[] = {"",    "bad",         "1:",        ":1", "1-",
                                      "-1",  "1:2:3:4",     "1-2:3:4:5", "1x", "1.5",
                                      "2 h", "99999999999", "1--1",      "d"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[LVNI_SLURM_TIME_TEXT];
        int64_t seconds;
        if (!lvni_slurm_time_read(rows[i][0], &seconds)) {
            fail_msg("%s is refused", rows[i][0]);
        }
        lvni_slurm_time_write(seconds, text);
        if (strcmp(text, rows[i][1]) != 0) {
            fail_msg("%s: got %s, want %s", rows[i][0], text, rows[i][1]);
        }
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t seconds;
        if (lvni_slurm_time_read(bad[i], &seconds)) {
            fail_msg("`%s` is a time", bad[i]);
        }
    }
}

TEST(sizes)
{
    static const char *const good[] = {"0", "2000", "64G", "64g", "1T", "512K", "7M"};
    static const char *const bad[] = {"", "G", "64GB", "1.5G", "-1", "64 G", "all"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (!lvni_slurm_size_read(good[i])) {
            fail_msg("%s is refused", good[i]);
        }
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (lvni_slurm_size_read(bad[i])) {
            fail_msg("`%s` is a size", bad[i]);
        }
    }
}

TEST(arrays)
{
    static const struct {
        const char *text;
        int64_t n, last;
    } rows[] = {{"0", 1, 0},         {"0-8", 9, 8},       {"1,3,7", 3, 7},       {"0-30:10", 4, 30},
                {"0-99%4", 100, 99}, {"5,0-2,9%1", 5, 9}, {"0-1001", 1002, 1001}};
    static const char *const bad[] = {"",      "-1",    "3-1", "1,",    "1-",     "0-8%",
                                      "0-8%0", "0-8:0", "a",   "1-2-3", "0-8%4,9"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lvni_slurm_array a;
        if (!lvni_slurm_array_read(rows[i].text, &a) || a.n != rows[i].n ||
            a.last != rows[i].last) {
            fail_msg("%s: %lld elements up to %lld", rows[i].text, (long long)a.n,
                     (long long)a.last);
        }
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lvni_slurm_array a;
        if (lvni_slurm_array_read(bad[i], &a)) {
            fail_msg("`%s` is an array", bad[i]);
        }
    }
}

TEST(signals)
{
    static const struct {
        const char *text, *name;
        bool batch;
        int64_t lead;
    } rows[] = {{"USR1@90", "USR1", false, 90},      {"B:USR1@90", "USR1", true, 90},
                {"SIGUSR2@120", "USR2", false, 120}, {"R:usr1@5", "USR1", false, 5},
                {"BR:TERM", "TERM", true, 60},       {"10@65535", "10", false, 65535},
                {"INT@0", "INT", false, 0}};
    static const char *const bad[] = {"",      "FOO@1", "USR1@70000", "USR1@",   "@90", "X:USR1",
                                      "SIG@9", "0@9",   "65@9",       "USR1@-1", "B:",  "SIG10"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lvni_slurm_signal s;
        if (!lvni_slurm_signal_read(rows[i].text, &s) || strcmp(s.name, rows[i].name) != 0 ||
            s.batch != rows[i].batch || s.lead != rows[i].lead) {
            fail_msg("%s: %s, %d, %lld", rows[i].text, s.name, s.batch, (long long)s.lead);
        }
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lvni_slurm_signal s;
        if (lvni_slurm_signal_read(bad[i], &s)) {
            fail_msg("`%s` is a signal", bad[i]);
        }
    }
}

TEST(gpus)
{
    static const struct {
        const char *text, *type;
        int64_t n;
    } rows[] = {
        {"8", "", 8}, {"a100:2", "a100", 2}, {"2:a100", "a100", 2}, {"1g.20gb:1", "1g.20gb", 1}};
    static const char *const bad[] = {
        "", "0", "a100", "a100:", ":2", "a b:2", "0:a100", "gpu:a100:2"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t n;
        size_t bytes;
        const char *type;
        if (!lvni_slurm_gpus_read(rows[i].text, &n, &type, &bytes) || n != rows[i].n ||
            bytes != strlen(rows[i].type) || strncmp(type, rows[i].type, bytes) != 0) {
            fail_msg("%s: %lld", rows[i].text, (long long)n);
        }
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t n;
        size_t bytes;
        const char *type;
        if (lvni_slurm_gpus_read(bad[i], &n, &type, &bytes)) {
            fail_msg("`%s` is a number of GPUs", bad[i]);
        }
    }
}
