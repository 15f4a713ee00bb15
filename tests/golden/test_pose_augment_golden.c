/* test_pose_augment_golden FILE: operations of augmentation against imgaug's, on one image
 * (make_pose_augment_golden.py). */
#include "golden_support.h"
#include "recipes/pose/pose_augment.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>

enum { HEIGHT = 20, WIDTH = 24 };

static lvni_ckpt_st_file *file;

/* What is computed is equal, up to the rounding of one pixel in 20 by a level of 255; what is only
 * moved is the same. */
typedef struct test_of {
    const char *name, *text;
    int height, width;
    bool exact;
} test_of;
static const double MEAN = 0.05;

static const test_of tests[] = {
    {"smaller", "none", 13, 16, false},
    {"larger", "none", 31, 29, false},
    {"turned", "{\"Rot90\": {\"p\": 1, \"kwargs\": {\"k\": 2}}}", HEIGHT, WIDTH, true},
    {"rotated", "{\"Affine\": {\"p\": 1, \"kwargs\": {\"rotate\": 17}}}", HEIGHT, WIDTH, false},
    {"padded", "{\"CropAndPad\": {\"p\": 1, \"kwargs\": {\"percent\": 0.1, \"keep_size\": false}}}",
     24, 28, true},
    {"cropped",
     "{\"CropAndPad\": {\"p\": 1, \"kwargs\": {\"percent\": -0.1, \"keep_size\": false}}}", 16, 20,
     true},
    {"blurred",
     "{\"MotionBlur\": {\"p\": 1, \"kwargs\": {\"k\": 5, \"angle\": 35, \"direction\": 0.4}}}",
     HEIGHT, WIDTH, false},
    {"blurred_upright",
     "{\"MotionBlur\": {\"p\": 1, \"kwargs\": {\"k\": 7, \"angle\": 0, \"direction\": -1}}}",
     HEIGHT, WIDTH, false},
    {"equalized", "{\"AllChannelsHistogramEqualization\": {\"p\": 1}}", HEIGHT, WIDTH, true},
    {"clahe",
     "{\"AllChannelsCLAHE\": {\"p\": 1, \"kwargs\": {\"clip_limit\": 2.5, \"tile_grid_size_px\": "
     "3}}}",
     HEIGHT, WIDTH, false},
    {"clahe_even",
     "{\"AllChannelsCLAHE\": {\"p\": 1, \"kwargs\": {\"clip_limit\": 8, \"tile_grid_size_px\": "
     "4}}}",
     HEIGHT, WIDTH, false},
    {"embossed", "{\"Emboss\": {\"p\": 1, \"kwargs\": {\"alpha\": 0.3, \"strength\": 1.2}}}",
     HEIGHT, WIDTH, false},
};

static void compare(const test_of *t, const uint8_t *have)
{
    int64_t n;
    const double *want = golden_values(file, "", t->name, &n);
    double most = 0.0, sum = 0.0;
    assert_int_equal(n, (int64_t)t->height * t->width * 3);
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs(have[i] - want[i]);
        most = d > most ? d : most;
        sum += d;
    }
    if (most > (t->exact ? 0.0 : 1.0) || sum > MEAN * (double)n) {
        fail_msg("%s: %g levels at most, %.4f in the mean", t->name, most, sum / (double)n);
    }
}

TEST(operations_do_what_those_of_imgaug_do)
{
    uint8_t rgb[HEIGHT * WIDTH * 3];
    lvni_pose_work work = {.field.data = NULL};
    int64_t n;
    const double *image = golden_values(file, "", "image", &n);
    assert_int_equal(n, sizeof rgb);
    for (int64_t i = 0; i < n; i++) {
        rgb[i] = (uint8_t)image[i];
    }
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        const test_of *t = &tests[i];
        const lvn_sample_key key = {.seed = 1, .training = true};
        lvni_pose_frame f = {.rgb = rgb, .width = WIDTH, .height = HEIGHT};
        lvni_pose_draw draw;
        lvni_pose_pipeline *p;
        assert_int_equal(lvni_pose_pipeline_make(t->text, t->height, t->width, false, &p), LVN_OK);
        lvni_pose_pipeline_draw(p, &key, &draw);
        assert_int_equal(lvni_pose_pipeline_render(p, &draw, &work, &f), LVN_OK);
        compare(t, f.rgb);
        lvni_pose_pipeline_free(p);
    }
    lvni_pose_work_free(&work);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_pose_augment_golden FILE\n");
        return 2;
    }
    if (lvni_ckpt_st_open(argv[1], LVNI_ST_VERIFY, &file) != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        return 1;
    }
    const int failed = test_main(1, argv);
    lvni_ckpt_st_close(file);
    return failed;
}
