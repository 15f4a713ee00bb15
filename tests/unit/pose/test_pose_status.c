/* train_status.json: what it holds, what of it stays, and what a failure leaves. */
#include "core/alloc.h"
#include "core/json_read.h"
#include "core/vfs.h"
#include "recipes/pose/pose_status.h"
#include "support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char dir[64], path[96];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/levin-pose-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/train_status.json", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    lvni_core_vfs_fail_at("write", 0, 0);
    unlink(path);
    return rmdir(dir); /* fails where a temporary file is left */
}
TEST_EACH(make_dir, remove_dir);

static json_t *read_status(void)
{
    char *text;
    size_t n;
    assert_int_equal(lvni_core_file_read(path, 1 << 20, &text, &n), LVN_OK);
    json_t *object = lvni_core_json_try(text, LVNI_JSON_INNER);
    lvni_core_free(text);
    assert_true(json_is_object(object));
    return object;
}

static void check(const json_t *object, const char *status, int64_t completed, int64_t total)
{
    const json_t *progress = json_object_get(object, "progress");
    const double seconds = json_number_value(json_object_get(progress, "timestamp"));
    assert_string_equal(json_string_value(json_object_get(object, "status")), status);
    assert_int_equal(json_integer_value(json_object_get(progress, "completed")), completed);
    assert_int_equal(json_integer_value(json_object_get(progress, "total")), total);
    assert_true(seconds > 1.7e9 && seconds <= (double)time(NULL) + 1.0);
}

static void write_text(const char *text)
{
    assert_int_equal(lvni_core_file_write(path, text, strlen(text)), LVN_OK);
}

TEST(a_new_file)
{
    assert_int_equal(lvni_pose_status_write(dir, "TRAINING", 0, 300), LVN_OK);
    json_t *object = read_status();
    check(object, "TRAINING", 0, 300);
    json_decref(object);
}

TEST(keys_of_others_stay)
{
    write_text("{\"pid\": 17, \"status\": \"PENDING\", \"a\": {\"b\": [1, null]}}");
    assert_int_equal(lvni_pose_status_write(dir, "EVALUATING", 299, 300), LVN_OK);
    assert_int_equal(lvni_pose_status_write(dir, "COMPLETED", 300, 300), LVN_OK);
    json_t *object = read_status();
    check(object, "COMPLETED", 300, 300);
    assert_int_equal(json_object_size(object), 4);
    assert_int_equal(json_integer_value(json_object_get(object, "pid")), 17);
    assert_int_equal(json_array_size(json_object_get(json_object_get(object, "a"), "b")), 2);
    json_decref(object);
}

TEST(what_is_no_object_is_replaced)
{
    static const char *const texts[] = {"", "{\"status\": \"TRAIN", "[1, 2]", "null"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_text(texts[i]);
        assert_int_equal(lvni_pose_status_write(dir, "TRAINING", 1, 2), LVN_OK);
        json_t *object = read_status();
        check(object, "TRAINING", 1, 2);
        json_decref(object);
    }
}

TEST(a_failure_leaves_the_old_file)
{
    assert_int_equal(lvni_pose_status_write(dir, "TRAINING", 1, 2), LVN_OK);
    lvni_core_vfs_fail_at("write", 1, ENOSPC);
    assert_int_equal(lvni_pose_status_write(dir, "COMPLETED", 2, 2), LVN_ERR_IO);
    json_t *object = read_status();
    check(object, "TRAINING", 1, 2);
    json_decref(object);
    assert_int_equal(lvni_pose_status_write("/none/such", "TRAINING", 1, 2), LVN_ERR_NOT_FOUND);
    lvn_status s;
    int64_t k = 1;
    do {
        lvni_core_alloc_fail_at(k++);
        s = lvni_pose_status_write(dir, "EVALUATING", 2, 2);
        lvni_core_alloc_fail_at(0);
        assert_true(s == LVN_OK || s == LVN_ERR_MEMORY);
    } while (s != LVN_OK);
    assert_true(k > 3);
}
