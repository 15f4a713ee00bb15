/* metrics.jsonl: the exact lines, what resuming drops, what a full disk leaves. */
#include "log_support.h"

#include "log/metrics.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>

TEST_EACH(make_dir, drop_dir);

TEST(lines_are_exactly_these)
{
    lvni_log_metrics *m = NULL;
    const lvni_log_metric a[] = {
        {"train/loss", 0.1}, {"lr", 1e-5}, {"memory/peak_bytes", 3221225472.0}};
    const lvni_log_metric b[] = {
        {"train/loss", NAN}, {"x", -INFINITY}, {"a\"b\n", -0.5}, {"third", 1.0 / 3}};
    assert_int_equal(lvni_log_metrics_open(file, false, &m), LVN_OK);
    assert_int_equal(lvni_log_metrics_write(m, 20, 1, 3.25, a, 3), LVN_OK);
    assert_int_equal(lvni_log_metrics_write(m, 30, 1, 4, b, 4), LVN_OK);
    assert_int_equal(lvni_log_metrics_write(m, 40, 2, 5, NULL, 0), LVN_OK);
    lvni_log_metrics_close(m);
    assert_string_equal(
        text_of(file),
        "{\"step\":20,\"epoch\":1,\"time_s\":3.25,\"train/loss\":0.1,\"lr\":1e-05,\"memory/"
        "peak_bytes\":3221225472}\n"
        "{\"step\":30,\"epoch\":1,\"time_s\":4,\"train/loss\":null,\"x\":null,\"a\\\"b\\n\":-0.5,"
        "\"third\":0.3333333333333333,\"nonfinite\":true}\n"
        "{\"step\":40,\"epoch\":2,\"time_s\":5}\n");
}

TEST(every_number_reads_back_to_the_bit)
{
    uint64_t bits = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < 2000; i++) {
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        double value;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) {
            continue;
        }
        lvni_core_str line = {0};
        const lvni_log_metric metric = {"v", value};
        lvni_log_metrics_format(&line, i, 0, 0, &metric, 1);
        json_t *object = json_loads(lvni_core_str_text(&line), 0, NULL);
        assert_non_null(object);
        const double back = json_number_value(json_object_get(object, "v"));
        assert_memory_equal(&back, &value, sizeof value);
        json_decref(object);
        lvni_core_str_free(&line);
    }
}

TEST(appending_goes_on)
{
    lvni_log_metrics *m = NULL;
    put_text(file,
             "{\"step\":1,\"epoch\":0,\"time_s\":1}\n{\"step\":2,\"ep"); /* cut off by a crash */
    assert_int_equal(lvni_log_metrics_open(file, true, &m), LVN_OK);
    assert_int_equal(lvni_log_metrics_write(m, 3, 0, 3, NULL, 0), LVN_OK);
    assert_int_equal(lvni_log_metrics_write(m, 4, 0, 4, NULL, 0), LVN_OK);
    lvni_log_metrics_close(m);
    assert_string_equal(
        text_of(file),
        "{\"step\":1,\"epoch\":0,\"time_s\":1}\n{\"step\":2,\"ep\n"
        "{\"step\":3,\"epoch\":0,\"time_s\":3}\n{\"step\":4,\"epoch\":0,\"time_s\":4}\n");
    assert_int_equal(lvni_log_metrics_open(file, false, &m), LVN_OK); /* without append: empty */
    lvni_log_metrics_close(m);
    assert_string_equal(text_of(file), "");
}

TEST(resuming_drops_later_and_broken_lines)
{
    int64_t dropped = -1;
    /* no file: nothing to do */
    assert_int_equal(lvni_log_metrics_truncate(file, 5, false, &dropped, NULL), LVN_OK);
    assert_int_equal(dropped, 0);
    put_text(file, "{\"step\":4,\"a\":1}\n{\"epoch\":0,\"step\":5}\n{\"step\":6}\nno "
                   "json\n{\"a\":1}\n{\"step\":3,\"val\":2}\n{\"step\":5,\"x\"");
    assert_int_equal(lvni_log_metrics_truncate(file, 5, false, &dropped, NULL), LVN_OK);
    assert_int_equal(dropped, 4);
    assert_string_equal(text_of(file),
                        "{\"step\":4,\"a\":1}\n{\"epoch\":0,\"step\":5}\n{\"step\":3,\"val\":2}\n");
    lvni_core_vfs_fail_at("open", 0, 0); /* counters to zero */
    assert_int_equal(lvni_log_metrics_truncate(file, 5, false, &dropped, NULL), LVN_OK);
    assert_int_equal(dropped, 0);
    assert_int_equal(lvni_core_vfs_calls("rename"), 0); /* nothing dropped: not rewritten */
    double time_s = -1.0;
    assert_int_equal(lvni_log_metrics_truncate(file, -1, false, NULL, &time_s), LVN_OK);
    assert_string_equal(text_of(file), "");
    assert_true(time_s == 0.0);
    put_text(file,
             "{\"step\":4,\"time_s\":1}\n{\"step\":5,\"time_s\":2.5}\n{\"step\":6,\"time_s\":9}\n");
    assert_int_equal(lvni_log_metrics_truncate(file, 5, false, NULL, &time_s), LVN_OK);
    assert_true(time_s == 2.5);
    /* what follows the step is to come again */
    put_text(file,
             "{\"step\":4,\"val/loss\":1}\n{\"step\":5,\"lr\":1}\n{\"step\":5,\"val/loss\":1}\n");
    assert_int_equal(lvni_log_metrics_truncate(file, 5, true, &dropped, NULL), LVN_OK);
    assert_int_equal(dropped, 1);
    assert_string_equal(text_of(file), "{\"step\":4,\"val/loss\":1}\n{\"step\":5,\"lr\":1}\n");
}

TEST(a_failing_rewrite_keeps_the_old_lines)
{
    static const char *const kinds[] = {"write", "fsync", "close", "rename"};
    for (int i = 0; i < 4; i++) {
        int64_t dropped = -1;
        put_text(file, "{\"step\":4}\n{\"step\":6}\n");
        lvni_core_vfs_fail_at("open", 0, 0);
        /* the first close is of the file being read, whose failure does not matter */
        lvni_core_vfs_fail_at(kinds[i], i == 2 ? 2 : 1, ENOSPC);
        assert_int_equal(lvni_log_metrics_truncate(file, 5, false, &dropped, NULL), LVN_ERR_IO);
        lvni_core_vfs_fail_at("open", 0, 0);
        assert_int_equal(dropped, 0);
        assert_string_equal(text_of(file), "{\"step\":4}\n{\"step\":6}\n");
    }
}

TEST(a_full_disk_is_reported_and_later_lines_are_whole)
{
    lvni_log_metrics *m = NULL;
    assert_int_equal(lvni_log_metrics_open(file, false, &m), LVN_OK);
    lvni_core_vfs_fail_at("write", 1, ENOSPC);
    assert_int_equal(lvni_log_metrics_write(m, 1, 0, 1, NULL, 0), LVN_ERR_IO);
    assert_non_null(strstr(lvn_last_error()->message, file));
    lvni_core_vfs_fail_at("write", 0, 0);
    assert_int_equal(lvni_log_metrics_write(m, 2, 0, 2, NULL, 0), LVN_OK);
    lvni_log_metrics_close(m);
    assert_string_equal(text_of(file), "\n{\"step\":2,\"epoch\":0,\"time_s\":2}\n");
    /* the empty line goes on resume */
    assert_int_equal(lvni_log_metrics_truncate(file, 9, false, NULL, NULL), LVN_OK);
    assert_string_equal(text_of(file), "{\"step\":2,\"epoch\":0,\"time_s\":2}\n");
}

TEST(memory_may_run_out_and_steady_state_allocates_nothing)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    const lvni_log_metric a[] = {{"train/loss", 1.0 / 3}, {"val/acc", 1.0 / 7}};
    lvn_status status = LVN_ERR_MEMORY;
    int64_t k = 1;
    for (; status != LVN_OK; k++) {
        lvni_log_metrics *m = NULL;
        lvni_core_alloc_fail_at(k);
        status = lvni_log_metrics_open(file, false, &m);
        if (status == LVN_OK) {
            status = lvni_log_metrics_write(m, 1, 0, 1, a, 2);
        }
        lvni_core_alloc_fail_at(0);
        assert_true(status == LVN_OK || status == LVN_ERR_MEMORY);
        lvni_log_metrics_close(m);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
    }
    assert_true(k > 3);
    lvni_log_metrics *m = NULL;
    assert_int_equal(lvni_log_metrics_open(file, false, &m), LVN_OK);
    assert_int_equal(lvni_log_metrics_write(m, 1, 0, 1.0 / 3, a, 2), LVN_OK);
    const uint64_t calls = lvni_core_alloc_get_total().calls;
    for (int i = 2; i < 10; i++) {
        assert_int_equal(lvni_log_metrics_write(m, i, 0, 1.0 / i, a, 2), LVN_OK);
    }
    assert_int_equal(lvni_core_alloc_get_total().calls, calls);
    lvni_log_metrics_close(m);
}
