/* The dataset of labelled frames: pixels, points, targets. */
#include "data/image.h"
#include "recipes/pose/pose_frames.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 40, HEIGHT = 20, SIDE = 16, K = 4 };

static char folder[] = "/tmp/levin_pose_XXXXXX";
static char *image[2] = {(char *)"a.png", (char *)"missing.png"};
static char *name[K] = {(char *)"a", (char *)"b", (char *)"c", (char *)"d"};
static double xy[2 * K * 2];
static int8_t visible[2 * K];

static void write_image(const char *file)
{
    uint8_t rgb[WIDTH * HEIGHT * 3];
    char path[64];
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        memset(rgb + 3 * i, 100, 3);
    }
    snprintf(path, sizeof path, "%s/%s", folder, file);
    assert_int_equal(lvni_data_png_write(path, rgb, WIDTH, HEIGHT), LVN_OK);
}

static lvni_pose_labels make_labels(bool has_visible)
{
    const double points[K * 2] = {10, 5, NAN, NAN, 39.5, 19.5, 41, 3};
    static const int8_t seen[K] = {0, 1, 2, 2};
    memcpy(xy, points, sizeof points);
    memcpy(visible, seen, sizeof seen);
    return (lvni_pose_labels){.n = 2,
                              .k = K,
                              .keypoint = name,
                              .image = image,
                              .xy = xy,
                              .visible = has_visible ? visible : NULL};
}

/* ---- one sample ---- */

typedef struct sample {
    float image[SIDE * SIDE * 3], points[K][4], frame[2];
    int64_t place;
} sample;

static lvn_status read_one(const lvni_pose_frames_options *o, int64_t at, sample *out)
{
    lvn_dataset *d;
    void *state;
    assert_int_equal(lvni_pose_frames_open(o, &d), LVN_OK);
    assert_int_equal(d->cls->worker_open(d, &state), LVN_OK);
    void *const field[] = {out->image, out->points, out->frame, &out->place};
    const lvn_sample_key key = {.seed = 1, .sample = at, .training = false};
    const lvn_status s = d->cls->worker_get(d, state, &key, field);
    d->cls->worker_close(d, state);
    lvn_dataset_destroy(d);
    return s;
}

static void assert_near(float value, double wanted)
{
    assert_true(fabs((double)value - wanted) < 1e-5);
}

static void assert_point(const float p[4], double x, double y, int has, lvni_pose_target target)
{
    assert_near(p[0], x);
    assert_near(p[1], y);
    assert_int_equal((int)p[2], has);
    assert_int_equal((int)p[3], (int)target);
}

BEFORE_ALL()
{
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    write_image("a.png");
    return 0;
}

AFTER_ALL()
{
    char path[64];
    snprintf(path, sizeof path, "%s/a.png", folder);
    unlink(path);
    return rmdir(folder);
}

TEST(a_frame_is_resized_normalised_and_its_points_with_it)
{
    const lvni_pose_labels labels = make_labels(false);
    const lvni_pose_frames_options o = {
        .labels = &labels, .data_dir = folder, .height = SIDE, .width = SIDE};
    sample s;
    assert_int_equal(read_one(&o, 0, &s), LVN_OK);
    assert_near(s.image[0], (100 / 255.0 - 0.485) / 0.229);
    assert_near(s.image[1], (100 / 255.0 - 0.456) / 0.224);
    assert_near(s.image[SIDE * SIDE * 3 - 1], (100 / 255.0 - 0.406) / 0.225);
    assert_true(s.frame[0] == WIDTH && s.frame[1] == HEIGHT && s.place == 0);
    assert_point(s.points[0], 4.0, 4.0, 1, LVNI_POSE_BUMP);
    assert_point(s.points[1], 0, 0, 0, LVNI_POSE_IGNORED);
    assert_point(s.points[2], 15.8, 15.6, 1, LVNI_POSE_BUMP);
    assert_point(s.points[3], 0, 0, 0, LVNI_POSE_IGNORED);
}

TEST(a_missing_label_may_be_uniform_and_visible_overrides)
{
    const lvni_pose_labels plain = make_labels(false), labels = make_labels(true);
    lvni_pose_frames_options o = {.labels = &plain,
                                  .data_dir = folder,
                                  .height = SIDE,
                                  .width = SIDE,
                                  .uniform_for_nan = true};
    sample s;
    assert_int_equal(read_one(&o, 0, &s), LVN_OK);
    assert_point(s.points[1], 0, 0, 0, LVNI_POSE_UNIFORM);
    assert_point(s.points[3], 0, 0, 0, LVNI_POSE_IGNORED); /* outside is not hidden */
    o.labels = &labels;
    o.uniform_for_nan = false;
    assert_int_equal(read_one(&o, 0, &s), LVN_OK);
    assert_point(s.points[0], 4.0, 4.0, 1, LVNI_POSE_IGNORED);
    assert_point(s.points[1], 0, 0, 0, LVNI_POSE_UNIFORM);
    assert_point(s.points[2], 15.8, 15.6, 1, LVNI_POSE_BUMP);
}

TEST(an_image_that_is_not_there_is_named)
{
    const lvni_pose_labels labels = make_labels(false);
    const lvni_pose_frames_options o = {
        .labels = &labels, .data_dir = folder, .height = SIDE, .width = SIDE};
    sample s;
    assert_int_equal(read_one(&o, 1, &s), LVN_ERR_NOT_FOUND);
    assert_non_null(strstr(lvn_last_error()->message, "missing.png"));
}

TEST(chosen_frames_keep_their_index)
{
    const lvni_pose_labels labels = make_labels(false);
    const int64_t at[] = {1};
    const lvni_pose_frames_options o = {
        .labels = &labels, .data_dir = folder, .at = at, .n = 1, .height = SIDE, .width = SIDE};
    lvn_dataset *d;
    assert_int_equal(lvni_pose_frames_open(&o, &d), LVN_OK);
    assert_int_equal(d->cls->length(d), 1);
    assert_int_equal(d->cls->index(d, 0), 1);
    assert_string_equal(d->cls->sample_name(d, 1), "missing.png");
    lvn_dataset_destroy(d);
}
