/* Augmentation: points move with the image, operations fire as often as their probability, and what
 * a pipeline's text is refused for. */
#include "recipes/pose/pose_augment.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 198, HEIGHT = 203, SIDE = 128, DOT = 2, DRAWS = 10000 };

static uint8_t black[WIDTH * HEIGHT * 3];

static lvni_pose_pipeline *make(const char *text, bool hflip)
{
    lvni_pose_pipeline *p;
    if (lvni_pose_pipeline_make(text, SIDE, SIDE, hflip, &p) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    return p;
}

static lvn_sample_key key_of(int64_t sample)
{
    return (lvn_sample_key){.seed = 5, .epoch = 1, .sample = sample, .training = true};
}

/* A bright square around the point, into `out` of WIDTH x HEIGHT. */
static void draw_dot(int x, int y, uint8_t *out)
{
    memset(out, 0, sizeof black);
    for (int i = -DOT; i <= DOT; i++) {
        memset(out + ((y + i) * WIDTH + x - DOT) * 3, 255, (2 * DOT + 1) * 3);
    }
}

/* Where the brightness lies; its sum. */
static double centre_of(const lvni_pose_frame *f, double at[2])
{
    double sum = 0.0;
    at[0] = at[1] = 0.0;
    for (int i = 0; i < f->width * f->height; i++) {
        const double v = f->rgb[3 * i];
        const int x = i % f->width, y = i / f->width;
        sum += v;
        at[0] += v * (x + 0.5);
        at[1] += v * (y + 0.5);
    }
    at[0] /= sum;
    at[1] /= sum;
    return sum;
}

/* 40 dots at most: their brightness and the point are less than a pixel apart. */
static void follow_dots(const char *text, bool hflip, int least)
{
    static uint8_t rgb[WIDTH * HEIGHT * 3];
    lvni_pose_work work = {.field.data = NULL};
    lvni_pose_pipeline *p = make(text, hflip);
    int seen = 0;
    for (int64_t i = 0; i < 40; i++) {
        const lvn_sample_key key = key_of(i);
        const int x = 20 + (int)(i * 37 % (WIDTH - 40)), y = 20 + (int)(i * 53 % (HEIGHT - 40));
        double xy[4] = {x + 0.5, y + 0.5, NAN, NAN}, at[2];
        lvni_pose_frame f = {.rgb = rgb, .width = WIDTH, .height = HEIGHT, .xy = xy, .k = 2};
        lvni_pose_draw draw;
        draw_dot(x, y, rgb);
        lvni_pose_pipeline_draw(p, &key, &draw);
        assert_int_equal(lvni_pose_pipeline_render(p, &draw, &work, &f), LVN_OK);
        assert_true(f.width == SIDE && f.height == SIDE && isnan(xy[2]) && isnan(xy[3]));
        if (xy[0] < 4 || xy[0] > SIDE - 4 || xy[1] < 4 || xy[1] > SIDE - 4) {
            continue; /* cut off at the border */
        }
        assert_true(centre_of(&f, at) > 0.0);
        if (!(fabs(at[0] - xy[0]) < 1.0 && fabs(at[1] - xy[1]) < 1.0)) {
            fail_msg("%s, %d: the dot is at (%.2f, %.2f), its point at (%.2f, %.2f)", text, (int)i,
                     at[0], at[1], xy[0], xy[1]);
        }
        seen++;
    }
    assert_true(seen >= least);
    lvni_pose_work_free(&work);
    lvni_pose_pipeline_free(p);
}

#define TURN "\"Rot90\": {\"p\": 1, \"kwargs\": {\"k\": [[0, 1, 2, 3]]}}"
#define AFFINE "\"Affine\": {\"p\": 1, \"kwargs\": {\"rotate\": [-25, 25]}}"
#define SCALE "\"Affine\": {\"p\": 1, \"kwargs\": {\"rotate\": [-180, 180], \"scale\": [0.8, 1.2]}}"
#define ELASTIC                                                                                    \
    "\"ElasticTransformation\": {\"p\": 1, \"kwargs\": {\"alpha\": [0, 10], \"sigma\": 5}}"
#define CROP                                                                                       \
    "\"CropAndPad\": {\"p\": 1, \"kwargs\": {\"percent\": [-0.15, 0.15], \"keep_size\": false}}"
#define KEPT "\"CropAndPad\": {\"p\": 1, \"kwargs\": {\"percent\": [-0.15, 0.15]}}"

TEST(points_move_with_the_image)
{
    follow_dots("none", false, 40);
    follow_dots("default", true, 40);
    follow_dots("{" TURN "}", false, 40);
    follow_dots("{" AFFINE "}", false, 35);
    follow_dots("{" SCALE "}", false, 30);
    follow_dots("{" ELASTIC "}", false, 40);
    follow_dots("{" CROP "}", false, 35);
    follow_dots("{" KEPT "}", false, 35);
    follow_dots("{\"Fliplr\": {\"p\": 0.5}}", false, 40);
    follow_dots("{" TURN ", " AFFINE ", " ELASTIC ", " CROP "}", true, 30);
}

/* ---- what is drawn ---- */

TEST(operations_fire_as_often_as_their_probability)
{
    static const double p[] = {1.0, 0.4, 0.5, 0.5, 0.5, 0.5, 0.5, 0.1, 0.1, 0.1, 0.4};
    enum { N = sizeof p / sizeof *p };
    int fired[N] = {0}, flipped = 0, turns[4] = {0};
    lvni_pose_pipeline *pipeline = make("dlc-top-down", true);
    for (int64_t i = 0; i < DRAWS; i++) {
        const lvn_sample_key key = key_of(i);
        lvni_pose_draw d;
        lvni_pose_pipeline_draw(pipeline, &key, &d);
        assert_int_equal(d.n, N);
        for (int o = 0; o < N; o++) {
            fired[o] += d.step[o].fires;
        }
        flipped += d.hflip;
        turns[(int)d.step[0].value[0]]++;
    }
    for (int o = 0; o < N; o++) {
        assert_true(fabs((double)fired[o] / DRAWS - p[o]) < 0.02);
    }
    assert_true(fabs((double)flipped / DRAWS - 0.5) < 0.02);
    for (int k = 0; k < 4; k++) {
        assert_true(fabs((double)turns[k] / DRAWS - 0.25) < 0.02);
    }
    lvni_pose_pipeline_free(pipeline);
}

/* Of value `v` of the operations of a kind. */
typedef struct range {
    lvni_pose_kind kind;
    int v;
    double lo, hi;
} range;

TEST(arguments_fill_their_ranges)
{
    static const range ranges[] = {
        {LVNI_POSE_AFFINE, 0, -25, 25},         {LVNI_POSE_MOTION_BLUR, 0, 5, 5},
        {LVNI_POSE_MOTION_BLUR, 1, -90, 90},    {LVNI_POSE_MOTION_BLUR, 2, -1, 1},
        {LVNI_POSE_DROPOUT, 0, 0.02, 0.02},     {LVNI_POSE_DROPOUT, 1, 0.3, 0.3},
        {LVNI_POSE_DROPOUT, 5, 0, 1},           {LVNI_POSE_SALT, 1, 0.05, 0.1},
        {LVNI_POSE_SALT, 2, 0.05, 0.1},         {LVNI_POSE_PEPPER, 0, 0.01, 0.01},
        {LVNI_POSE_ELASTIC, 0, 0, 10},          {LVNI_POSE_ELASTIC, 1, 5, 5},
        {LVNI_POSE_CLAHE, 0, 0.1, 8},           {LVNI_POSE_CLAHE, 1, 3, 12},
        {LVNI_POSE_EMBOSS, 0, 0, 0.5},          {LVNI_POSE_EMBOSS, 1, 0.5, 1.5},
        {LVNI_POSE_CROP_AND_PAD, 0, -.15, .15}, {LVNI_POSE_CROP_AND_PAD, 3, -.15, .15},
        {LVNI_POSE_CROP_AND_PAD, 4, 0, 0},
    };
    enum { N = sizeof ranges / sizeof *ranges };
    double least[N], most[N];
    lvni_pose_pipeline *pipeline = make("dlc", false);
    for (int64_t i = 0; i < DRAWS; i++) {
        const lvn_sample_key key = key_of(i);
        lvni_pose_draw d;
        lvni_pose_pipeline_draw(pipeline, &key, &d);
        for (int r = 0; r < N; r++) {
            int o = 0;
            while (d.step[o].kind != ranges[r].kind) {
                o++;
            }
            const double v = d.step[o].value[ranges[r].v];
            least[r] = i == 0 ? v : fmin(least[r], v);
            most[r] = i == 0 ? v : fmax(most[r], v);
        }
    }
    for (int r = 0; r < N; r++) {
        const double slack = 0.01 * (ranges[r].hi - ranges[r].lo);
        assert_true(least[r] >= ranges[r].lo && least[r] <= ranges[r].lo + slack);
        assert_true(most[r] <= ranges[r].hi && most[r] >= ranges[r].hi - slack);
    }
    lvni_pose_pipeline_free(pipeline);
}

/* ---- pixels ---- */

/* Grey noise in all three channels. */
static void make_noise(uint8_t *out)
{
    const lvni_core_rng rng = {lvni_core_rng_make_key(1, 2), 0, 0, 0};
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        memset(out + 3 * i, (int)(lvni_core_rng_u32(&rng, (uint64_t)i / 4) >> 24), 3);
    }
}

static const uint8_t *render(const lvni_pose_pipeline *p, lvni_pose_work *work, int64_t sample,
                             const uint8_t *rgb)
{
    const lvn_sample_key key = key_of(sample);
    lvni_pose_frame f = {.rgb = rgb, .width = WIDTH, .height = HEIGHT};
    lvni_pose_draw draw;
    lvni_pose_pipeline_draw(p, &key, &draw);
    assert_int_equal(lvni_pose_pipeline_render(p, &draw, work, &f), LVN_OK);
    return f.rgb;
}

TEST(a_frame_does_not_depend_on_those_before_it_in_the_same_memory)
{
    static uint8_t rgb[WIDTH * HEIGHT * 3];
    lvni_pose_work used = {.field.data = NULL};
    lvni_pose_pipeline *p = make("dlc-top-down", true);
    bool differ = false;
    make_noise(rgb);
    for (int64_t i = 0; i < 8; i++) {
        lvni_pose_work fresh = {.field.data = NULL};
        const uint8_t *a = render(p, &used, i, rgb), *b = render(p, &fresh, i, rgb);
        assert_memory_equal(a, b, (size_t)SIDE * SIDE * 3);
        static uint8_t first[SIDE * SIDE * 3];
        differ = differ || (i > 0 && memcmp(first, a, sizeof first) != 0);
        memcpy(first, a, sizeof first);
        lvni_pose_work_free(&fresh);
    }
    assert_true(differ);
    lvni_pose_work_free(&used);
    lvni_pose_pipeline_free(p);
}

/* Pixels of black, or of grey, that a mask changes. */
static double part_changed(const char *text, uint8_t from, int *low, int *high)
{
    static uint8_t rgb[WIDTH * HEIGHT * 3];
    lvni_pose_work work = {.field.data = NULL};
    lvni_pose_pipeline *p;
    assert_int_equal(lvni_pose_pipeline_make(text, HEIGHT, WIDTH, false, &p), LVN_OK);
    int64_t changed = 0;
    *low = 255;
    *high = 0;
    memset(rgb, from, sizeof rgb);
    for (int64_t i = 0; i < 50; i++) {
        const uint8_t *out = render(p, &work, i, rgb);
        for (int j = 0; j < WIDTH * HEIGHT; j++) {
            const int v = out[3 * j];
            changed += v != from;
            *low = v != from && v < *low ? v : *low;
            *high = v != from && v > *high ? v : *high;
        }
    }
    lvni_pose_work_free(&work);
    lvni_pose_pipeline_free(p);
    return (double)changed / (50.0 * WIDTH * HEIGHT);
}

TEST(masks_hit_their_part_of_the_image)
{
    int low, high;
    const double dropped = part_changed("{\"CoarseDropout\": {\"p\": 1, \"kwargs\": {\"p\": 0.02, "
                                        "\"size_percent\": 0.3, \"per_channel\": 0.5}}}",
                                        200, &low, &high);
    assert_true(fabs(dropped - 0.02) < 0.002 && low == 0 && high == 0);
    const double salt = part_changed("{\"CoarseSalt\": {\"p\": 1, \"kwargs\": {\"p\": 0.01, "
                                     "\"size_percent\": [0.05, 0.1]}}}",
                                     7, &low, &high);
    assert_true(fabs(salt - 0.01) < 0.004 && low >= 127 && high == 255);
    const double pepper = part_changed("{\"CoarsePepper\": {\"p\": 1, \"kwargs\": {\"p\": 0.01, "
                                       "\"size_percent\": [0.05, 0.1]}}}",
                                       255, &low, &high);
    assert_true(fabs(pepper - 0.01) < 0.004 && low == 0 && high <= 128);
    /* more cells than an int counts, were they not at most the pixels */
    const double fine = part_changed("{\"CoarseDropout\": {\"p\": 1, \"kwargs\": {\"p\": 0.5, "
                                     "\"size_px\": 65500}}}",
                                     200, &low, &high);
    assert_true(fabs(fine - 0.5) < 0.02 && low == 0 && high == 0);
}

/* ---- texts ---- */

static void assert_refused(const char *text, const char *message)
{
    lvni_pose_pipeline *p;
    assert_int_not_equal(lvni_pose_pipeline_make(text, SIDE, SIDE, false, &p), LVN_OK);
    assert_null(p);
    if (strstr(lvn_last_error()->message, message) == NULL) {
        fail_msg("`%s` is not in `%s`", message, lvn_last_error()->message);
    }
}

TEST(texts_that_are_no_pipeline_are_refused)
{
    assert_refused("dlc2", "use default, none, dlc");
    assert_refused("{\"Cutout\": {}}", "there is no operation Cutout; use Rot90");
    assert_refused("{\"Emboss\": {\"kwargs\": {\"beta\": 1}}}",
                   "Emboss has no argument beta; it has alpha, strength");
    assert_refused("{\"Emboss\": {\"p\": 1.5}}", "its probability p, from 0 to 1");
    assert_refused("{\"Emboss\": {\"q\": 1}}", "Emboss.q");
    assert_refused("{\"Emboss\": {\"kwargs\": {\"alpha\": 2}}}", "Emboss.alpha is 2");
    assert_refused("{\"Rot90\": {\"kwargs\": {\"k\": 0.5}}}", "a whole number from -4 to 4");
    assert_refused("{\"Emboss\": {\"args\": [0, 1, 2]}}", "takes 2");
    assert_refused("{\"CoarseSalt\": {\"kwargs\": {\"per_channel\": [0, 1]}}}",
                   "CoarseSalt.per_channel must be true, false or one probability");
    assert_refused("{\"CropAndPad\": {\"kwargs\": {\"keep_size\": [true, false]}}}",
                   "CropAndPad.keep_size must be true, false");
    assert_refused("{\"Emboss\": ", "");
}

TEST(a_map_has_its_order_and_its_arguments)
{
    lvni_pose_draw d;
    const lvn_sample_key key = key_of(3);
    lvni_pose_pipeline *p = make("{\"Emboss\": {\"p\": 1, \"args\": [0.25, 0.75]}, \"Rotate\": "
                                 "{\"p\": 0}, \"Affine\": {\"kwargs\": {\"rotate\": 90}}, "
                                 "\"Rot90\": {\"p\": 1, \"kwargs\": {\"k\": [[3]]}}}",
                                 false);
    lvni_pose_pipeline_draw(p, &key, &d);
    assert_int_equal(d.n, 3); /* Rotate never fires */
    assert_int_equal(d.step[0].kind, LVNI_POSE_EMBOSS);
    assert_true(d.step[0].fires && d.step[0].value[0] == 0.25 && d.step[0].value[1] == 0.75);
    assert_true(d.step[1].kind == LVNI_POSE_AFFINE && d.step[1].value[0] == 90);
    assert_true(d.step[2].kind == LVNI_POSE_ROT90 && d.step[2].value[0] == 3);
    lvni_pose_pipeline_free(p);
}
