/* Tables of results, compared to the byte with what pandas 3.1 writes of the same floats, and the
 * errors in them. */
#include "core/alloc.h"
#include "core/vfs.h"
#include "recipes/pose/pose_results.h"
#include "recipes/pose/pose_split.h"
#include "support/test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/levin-pose-XXXXXX");
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    lvni_core_vfs_fail_at("write", 0, 0);
    lvni_core_alloc_fail_at(0);
    return unlink(path);
}
TEST_EACH(make_path, remove_path);

static void assert_file(const char *want)
{
    char *text;
    size_t n;
    assert_int_equal(lvni_core_file_read(path, 1 << 20, &text, &n), LVN_OK);
    assert_string_equal(text, want);
    lvni_core_free(text);
}

static const char *const keypoints[] = {"paw", "tail, \"end\""};
static const char *const images[] = {"labeled-data/a, b/img01.png", "labeled-data/img02.png",
                                     "labeled-data/img03.png", "labeled-data/img04.png"};
static const int8_t sets[] = {LVNI_POSE_TRAIN, LVNI_POSE_VALIDATION, LVNI_POSE_TEST,
                              LVNI_POSE_UNUSED};
/* four frames */
static const float values[] = {
    78.1f,       35.9f,       0.98f,        396.0f, 0.0f,          1.0f,     -0.0f,     16777216.0f,
    1e-4f,       1e16f,       1e10f,        1e-5f,  0.1f + 0.2f,   NAN,      1.5e-7f,   -1.25f,
    1.0f / 3.0f, 2.0f / 3.0f, 123456789.0f, 1e-45f, 3.4028235e38f, INFINITY, -INFINITY, 1e-3f,
};

static const lvni_pose_predictions labelled = {
    .n = 4,
    .k = 2,
    .keypoint = keypoints,
    .scorer = "heatmap_tracker",
    .name = images,
    .value = values,
    .set = sets,
};

TEST(predictions_of_labelled_frames)
{
    assert_int_equal(lvni_pose_write_predictions(path, &labelled), LVN_OK);
    assert_file(
        "scorer,heatmap_tracker,heatmap_tracker,heatmap_tracker,heatmap_tracker,heatmap_tracker,"
        "heatmap_tracker,set\n"
        "bodyparts,paw,paw,paw,\"tail, \"\"end\"\"\",\"tail, \"\"end\"\"\",\"tail, \"\"end\"\"\",\n"
        "coords,x,y,likelihood,x,y,likelihood,\n"
        "\"labeled-data/a, b/img01.png\",78.1,35.9,0.98,396.0,0.0,1.0,train\n"
        "labeled-data/img02.png,-0.0,16777216.0,1e-04,1e+16,10000000000.0,1e-05,validation\n"
        "labeled-data/img03.png,0.3,,1.5e-07,-1.25,0.33333334,0.6666667,test\n"
        "labeled-data/img04.png,123456790.0,1e-45,3.4028235e+38,inf,-inf,0.001,unused\n");
}

/* A file of predictions is one of labels and of a split. */
TEST(predictions_are_read_back)
{
    float finite[24];
    lvni_pose_predictions p = labelled;
    lvni_pose_labels back;
    for (int i = 0; i < 24; i++) {
        finite[i] = i % 6 < 2 ? NAN : 1e3f / (float)(i + 1);
    }
    p.value = finite;
    assert_int_equal(lvni_pose_write_predictions(path, &p), LVN_OK);
    assert_int_equal(lvni_pose_labels_read(path, &back), LVN_OK);
    assert_true(back.n == 4 && back.k == 2 && back.set != NULL && back.visible == NULL);
    assert_memory_equal(back.set, sets, sizeof sets);
    for (int i = 0; i < 8; i++) {
        const bool labelled_point = i % 2 == 1;
        for (int c = 0; c < 2; c++) {
            const double xy = back.xy[2 * i + c];
            assert_true(labelled_point ? (float)xy == finite[3 * i + c] : isnan(xy));
        }
    }
    for (int i = 0; i < 4; i++) {
        assert_string_equal(back.image[i], images[i]);
        assert_string_equal(back.keypoint[i % 2], keypoints[i % 2]);
    }
    lvni_pose_labels_free(&back);
}

/* Of a video: rows are frame numbers, and there is no column of sets. The first frame has no
 * earlier one. */
TEST(tables_of_a_video)
{
    enum { FRAMES = 3 };
    const float track[FRAMES * 6] = {1, 2, 1, 10, 20, 1, 4, 6, 1, 10, 20, 1, 4, 6, 1, 9, 20, 1};
    const lvni_pose_predictions video = {.n = FRAMES,
                                         .k = 2,
                                         .keypoint = keypoints,
                                         .scorer = "heatmap_mhcrnn_tracker",
                                         .value = track};
    double error[FRAMES * 2];
    assert_int_equal(lvni_pose_write_predictions(path, &video), LVN_OK);
    assert_file("scorer,heatmap_mhcrnn_tracker,heatmap_mhcrnn_tracker,heatmap_mhcrnn_tracker,"
                "heatmap_mhcrnn_tracker,heatmap_mhcrnn_tracker,heatmap_mhcrnn_tracker\n"
                "bodyparts,paw,paw,paw,\"tail, \"\"end\"\"\",\"tail, \"\"end\"\"\",\"tail, "
                "\"\"end\"\"\"\n"
                "coords,x,y,likelihood,x,y,likelihood\n"
                "0,1.0,2.0,1.0,10.0,20.0,1.0\n"
                "1,4.0,6.0,1.0,10.0,20.0,1.0\n"
                "2,4.0,6.0,1.0,9.0,20.0,1.0\n");
    lvni_pose_temporal_norm(&video, error);
    assert_int_equal(lvni_pose_write_errors(path, &video, error), LVN_OK);
    assert_file(",paw,\"tail, \"\"end\"\"\"\n0,,\n1,5.0,0.0\n2,0.0,1.0\n");
}

/* Row 29 of the checklist: (3, 4) away is 5. */
TEST(pixel_error)
{
    const double xy[] = {75.1f, 31.9f, 396.0, 0.1,  NAN, NAN, 1e16f, 0.0,
                         0.0,   0.0,   -1.25, 1e-3, NAN, NAN, 0.0,   NAN};
    double error[8];
    lvni_pose_predictions p = labelled;
    lvni_pose_pixel_error(&p, xy, error);
    assert_true(fabs(error[0] - 5.0) < 1e-5);
    assert_true(error[1] == 0.1 && isnan(error[2]) && error[3] == 1e10);
    assert_true(isnan(error[4]) && isnan(error[6]) && isnan(error[7])); /* y of image 3 is NaN */
    error[0] = 5.0;
    error[5] = 1.0 / 3.0;
    p.n = 3;
    assert_int_equal(lvni_pose_write_errors(path, &p, error), LVN_OK);
    assert_file(",paw,\"tail, \"\"end\"\"\",set\n"
                "\"labeled-data/a, b/img01.png\",5.0,0.1,train\n"
                "labeled-data/img02.png,,10000000000.0,validation\n"
                "labeled-data/img03.png,,0.3333333333333333,test\n");
}

/* Longer than a piece; whatever fails, the old file stays. */
TEST(a_failure_leaves_the_old_file)
{
    enum { FRAMES = 1500 };
    static float track[FRAMES * 6];
    for (int i = 0; i < FRAMES * 6; i++) {
        track[i] = (float)i / 7.0f;
    }
    const lvni_pose_predictions video = {
        .n = FRAMES, .k = 2, .keypoint = keypoints, .scorer = "s", .value = track};
    assert_int_equal(lvni_core_file_write(path, "old\n", 4), LVN_OK);
    for (int k = 1; k <= 2; k++) {
        lvni_core_vfs_fail_at("write", k, ENOSPC);
        assert_int_equal(lvni_pose_write_predictions(path, &video), LVN_ERR_IO);
        lvni_core_vfs_fail_at("write", 0, 0);
        assert_file("old\n");
    }
    lvn_status s;
    int64_t k = 1;
    do {
        lvni_core_alloc_fail_at(k++);
        s = lvni_pose_write_predictions(path, &video);
        lvni_core_alloc_fail_at(0);
        assert_true(s == LVN_OK || s == LVN_ERR_MEMORY);
        if (s != LVN_OK) {
            assert_file("old\n");
        }
    } while (s != LVN_OK);
    assert_true(k > 2);
    char *text, *last;
    size_t n;
    assert_int_equal(lvni_core_file_read(path, 1 << 20, &text, &n), LVN_OK);
    last = strstr(text, "\n1499,");
    assert_non_null(last);
    assert_string_equal(last, "\n1499,1284.8572,1285.0,1285.1428,1285.2858,1285.4286,1285.5714\n");
    lvni_core_free(text);
}
