/* metrics.jsonl as curves: numbers, buckets, and rows that are damaged. */
#include "core/str.h"
#include "report/chart.h"
#include "report/series.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lvni_report_metrics metrics;

static void add(const char *line)
{
    assert_int_equal(lvni_report_metrics_add(&metrics, line, strlen(line)), LVN_OK);
}

static int end(void **state)
{
    (void)state;
    lvni_report_metrics_free(&metrics);
    return 0;
}

TEST_EACH(NULL, end);

/* As close to what strtod reads as a curve can show. */
TEST(numbers_are_read)
{
    static const char *const texts[] = {"0",      "-0",
                                        "1",      "0.3333333333333333",
                                        "1e-05",  "-1.5e3",
                                        "1e300",  "2.2250738585072014e-308",
                                        "5e-324", "123456789012345678901234567890",
                                        "1E+2"};
    uint64_t bits = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < 2000; i++) {
        char text[64], line[128];
        double value;
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        memcpy(&value, &bits, sizeof value);
        if (i < (int)(sizeof texts / sizeof *texts)) {
            snprintf(text, sizeof text, "%s", texts[i]);
        } else if (isfinite(value)) {
            lvni_core_format(text, sizeof text, "%.17g", value);
        } else {
            continue;
        }
        snprintf(line, sizeof line, "{\"step\":%d,\"x\":%s}", i, text);
        add(line);
        const double expected = strtod(text, NULL), got = metrics.series[0]->last.value;
        assert_int_equal(metrics.damaged, 0);
        assert_true(fabs(got - expected) <= 1e-13 * fabs(expected) + 5e-323);
    }
}

/* A name that is too long ends with a whole character, and its rows are of one series. */
TEST(long_names_are_cut_between_characters)
{
    char name[2 * LVNI_REPORT_NAME + 1] = "", line[sizeof name + 64];
    for (int i = 0; i < LVNI_REPORT_NAME; i++) {
        memcpy(name + 2 * i, "\xc3\xa4", 3);
    }
    for (int odd = 0; odd < 2; odd++) {
        for (int step = 0; step < 2; step++) {
            snprintf(line, sizeof line, "{\"step\":%d,\"%s%s\":1}", step, odd ? "a" : "", name);
            add(line);
        }
        assert_int_equal(metrics.n, odd + 1);
        assert_int_equal(metrics.series[odd]->n, 2);
        assert_int_equal(strlen(metrics.series[odd]->name), odd ? 127 : 126);
        assert_true(lvni_core_utf8_valid(metrics.series[odd]->name));
    }
}

/* However many rows: each bucket has its values' count, sum, least and greatest. */
TEST(buckets_join)
{
    enum { ROWS = 3000 };
    for (int i = 0; i < ROWS; i++) {
        char line[128];
        snprintf(line, sizeof line, "{\"step\":%d,\"epoch\":1,\"y\":%d,\"z\":null}", i, i % 7);
        add(line);
    }
    const lvni_report_series *y = lvni_report_metrics_find(&metrics, "y");
    assert_int_equal(y->width, 8);
    assert_int_equal(y->n, ROWS);
    assert_int_equal(metrics.last_step, ROWS - 1);
    for (int k = 0; k < LVNI_REPORT_BUCKETS; k++) {
        double sum = 0.0, least = 7.0, most = -1.0, steps = 0.0;
        uint32_t n = 0;
        for (int i = 8 * k; i < 8 * k + 8 && i < ROWS; i++, n++) {
            sum += i % 7;
            steps += i;
            least = fmin(least, i % 7);
            most = fmax(most, i % 7);
        }
        const lvni_report_bucket *b = &y->bucket[k];
        assert_int_equal(b->n, n);
        assert_true(n == 0 ||
                    (b->value == sum && b->step == steps && b->least == least && b->most == most));
    }
    const lvni_report_series *z = lvni_report_metrics_find(&metrics, "z");
    assert_int_equal(z->n, 0);
    assert_int_equal(z->n_null, ROWS);
    assert_null(lvni_report_metrics_find(&metrics, "step"));
}

TEST(damaged_rows_are_counted)
{
    static const char *const rows[] = {"",
                                       "{}",
                                       "{\"step\":1",
                                       "{\"step\":1,}",
                                       "{\"step\":1} x",
                                       "{\"step\":-1,\"x\":1}",
                                       "{\"step\":1e400,\"x\":1}",
                                       "{\"step\":null,\"x\":1}",
                                       "{\"x\":1}",
                                       "{\"step\":1,\"x\":}",
                                       "{\"step\":1,\"x\":1.}",
                                       "{\"step\":1,\"x",
                                       "{\"step\":1 \"x\":2}",
                                       "\xff\xfe"};
    const int n = (int)(sizeof rows / sizeof *rows);
    for (int i = 0; i < n; i++) {
        add(rows[i]);
        assert_int_equal(metrics.damaged, i + 1);
    }
    assert_int_equal(metrics.rows, 0);
    add(" { \"step\" : 9007199254740991 , \"x\\\"\" : -2.5 , \"t\" : \"text\" , \"nonfinite\" : "
        "true }");
    assert_int_equal(metrics.rows, 1);
    assert_int_equal(metrics.n, 1);
    assert_string_equal(metrics.series[0]->name, "x\\\"");
}

/* Every chart of a series has numbers alone in its coordinates, whatever the range. */
TEST(charts_have_coordinates)
{
    static const char *const values[][2] = {{"1", "1"},
                                            {"0", "0"},
                                            {"-1e300", "1e300"},
                                            {"1e-300", "2e-300"},
                                            {"1.7e308", "-1.7e308"},
                                            {"1e9", "1000000001"},
                                            {"1e-5", "1"},
                                            {"5e-324", "5e-324"}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        for (int mode = 0; mode < 3; mode++) {
            lvni_core_str out = {0};
            char line[128];
            for (int k = 0; k < 2; k++) {
                snprintf(line, sizeof line, "{\"step\":%d,\"x\":%s}", 10 * k, values[i][k]);
                add(line);
            }
            const lvni_report_chart c = {.title = "<x>",
                                         .log = mode == 1,
                                         .unit = mode == 2 ? LVNI_REPORT_BYTES : LVNI_REPORT_PLAIN,
                                         .line = {metrics.series[0]},
                                         .n = 1};
            lvni_report_chart_write(&c, &out);
            const char *text = lvni_core_str_text(&out);
            assert_non_null(strstr(text, "&lt;x&gt;"));
            assert_null(strstr(text, "nan"));
            assert_null(strstr(text, "inf"));
            lvni_core_str_free(&out);
            lvni_report_metrics_free(&metrics);
        }
    }
}
