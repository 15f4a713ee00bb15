/* What happens to the frames of clips: which numbers are drawn, where pixels and points go, and how
 * much noise there is. */
#include "autograd/tape.h"
#include "core/math.h"
#include "recipes/pose/pose_clip_augment.h"
#include "recipes/pose/pose_unsupervised.h"
#include "support/test.h"

#include <levin/tensor.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEIGHT = 96, WIDTH = 128, CHANNELS = 3, PIXELS = HEIGHT * WIDTH };
enum { DRAWS = 4000 };

static const double pi = 3.14159265358979323846;
static lvni_pose_poisson *poisson;
static float image[PIXELS * CHANNELS], out[PIXELS * CHANNELS];

BEFORE_ALL()
{
    return lvni_pose_poisson_create(&poisson) == LVN_OK ? 0 : 1;
}

AFTER_ALL()
{
    lvni_pose_poisson_destroy(poisson);
    return 0;
}

/* ---- draws ---- */

TEST(two_presets_change_clips)
{
    assert_true(lvni_pose_clip_augments("dlc"));
    assert_true(lvni_pose_clip_augments("dlc-top-down"));
    static const char *const others[] = {"dlc-lr", "dlc-mv", "default", "none",
                                         "{\"Affine\": {\"p\": 0.4}}"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_false(lvni_pose_clip_augments(others[i]));
    }
}

typedef struct range {
    double least, most, sum;
} range;

static void add(range *r, double value)
{
    r->least = value < r->least ? value : r->least;
    r->most = value > r->most ? value : r->most;
    r->sum += value;
}

/* All of it is used, evenly. */
static void check_range(const range *r, double lo, double hi)
{
    const double near = 0.005 * (hi - lo);
    assert_true(r->least >= lo - 1e-9 && r->least < lo + near);
    assert_true(r->most <= hi + 1e-9 && r->most > hi - near);
    assert_true(fabs(r->sum / DRAWS - 0.5 * (lo + hi)) < 0.02 * (hi - lo));
}

TEST(ranges_of_what_is_drawn)
{
    range angle = {1e9, -1e9, 0}, sx = angle, sy = angle, brightness = angle, contrast = angle,
          noise = angle;
    for (uint64_t i = 0; i < DRAWS; i++) {
        lvni_pose_clip_draw d;
        lvni_pose_clip_draw_make(7, i, HEIGHT, WIDTH, &d);
        const double x = hypot(d.to[0][0], d.to[0][1]), y = hypot(d.to[1][0], d.to[1][1]);
        add(&angle, atan2(d.to[1][0] / y, d.to[0][0] / x) * 180.0 / pi);
        add(&sx, x);
        add(&sy, y);
        add(&brightness, d.brightness);
        add(&contrast, d.contrast);
        add(&noise, d.noise);
        assert_true(fabs(d.to[0][0] / x - d.to[1][1] / y) < 1e-12);
        assert_true(fabs(d.to[0][0] * 64 + d.to[0][1] * 48 + d.to[0][2] - 64) < 1e-9);
        assert_true(fabs(d.to[1][0] * 64 + d.to[1][1] * 48 + d.to[1][2] - 48) < 1e-9);
    }
    check_range(&angle, -10.0, 10.0);
    check_range(&sx, 0.8, 1.2);
    check_range(&sy, 0.8, 1.2);
    check_range(&brightness, 0.75, 1.25);
    check_range(&contrast, 0.75, 1.25);
    check_range(&noise, 0.0, 10.0);
}

TEST(draws_depend_on_seed_and_clip)
{
    lvni_pose_clip_draw a, b;
    lvni_pose_clip_draw_make(7, 3, HEIGHT, WIDTH, &a);
    lvni_pose_clip_draw_make(7, 3, HEIGHT, WIDTH, &b);
    assert_memory_equal(a.to, b.to, sizeof a.to);
    assert_true(a.noise == b.noise);
    lvni_pose_clip_draw_make(7, 4, HEIGHT, WIDTH, &b);
    assert_true(a.to[0][0] != b.to[0][0] && a.brightness != b.brightness && a.noise != b.noise);
    lvni_pose_clip_draw_make(8, 3, HEIGHT, WIDTH, &b);
    assert_true(a.to[0][0] != b.to[0][0] && a.brightness != b.brightness && a.noise != b.noise);
}

/* ---- geometry ---- */

static lvni_pose_clip_draw draw_of_geometry(uint64_t clip)
{
    lvni_pose_clip_draw d;
    lvni_pose_clip_draw_make(7, clip, HEIGHT, WIDTH, &d);
    d.brightness = d.contrast = 1.0;
    d.noise = 0.0;
    return d;
}

/* A round spot around (x, y), a pixel's centre at .5. */
static void draw_spot(double x, double y)
{
    for (int i = 0; i < PIXELS; i++) {
        const double dx = i % WIDTH + 0.5 - x, dy = floor((double)i / WIDTH) + 0.5 - y;
        for (int c = 0; c < CHANNELS; c++) {
            image[i * CHANNELS + c] = (float)(255.0 * exp(-(dx * dx + dy * dy) / 8.0));
        }
    }
}

static void find_spot(double at[2])
{
    double sum = 0.0;
    at[0] = at[1] = 0.0;
    for (int i = 0; i < PIXELS; i++) {
        const double v = (double)out[i * CHANNELS];
        sum += v;
        at[0] += v * (i % WIDTH + 0.5);
        at[1] += v * (floor((double)i / WIDTH) + 0.5);
    }
    at[0] /= sum;
    at[1] /= sum;
}

static lvn_tensor *tensor_of(const float *values, int ndim, const int64_t *shape)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F32, ndim, shape);
    assert_non_null(t);
    memcpy(lvn_data(t), values, (size_t)lvn_numel(t) * sizeof(float));
    return lvni_autograd_adopt(t);
}

TEST(a_spot_follows_the_matrix_and_undo_brings_it_back)
{
    static const double spots[][2] = {{64.0, 48.0}, {40.25, 30.5}, {90.5, 60.75}};
    for (uint64_t clip = 0; clip < 12; clip++) {
        const lvni_pose_clip_draw d = draw_of_geometry(clip);
        for (size_t i = 0; i < sizeof spots / sizeof *spots; i++) {
            const double *p = spots[i];
            double have[2];
            draw_spot(p[0], p[1]);
            lvni_pose_clip_render(&d, poisson, 0, image, out);
            find_spot(have);
            float want[2], matrix[6];
            for (int r = 0; r < 2; r++) {
                want[r] = (float)(d.to[r][0] * p[0] + d.to[r][1] * p[1] + d.to[r][2]);
                assert_true(fabs(have[r] - (double)want[r]) < 0.02);
                for (int c = 0; c < 3; c++) {
                    matrix[3 * r + c] = (float)d.to[r][c];
                }
            }
            assert_int_equal(lvn_scope_open(), LVN_OK);
            lvn_tensor *undone = lvni_pose_undo(tensor_of(want, 3, (const int64_t[]){1, 1, 2}),
                                                tensor_of(matrix, 2, (const int64_t[]){2, 3}));
            assert_non_null(undone);
            const float *back = lvn_data(undone);
            assert_true(fabs((double)back[0] - p[0]) < 1e-3 && fabs((double)back[1] - p[1]) < 1e-3);
            assert_int_equal(lvn_scope_close(), LVN_OK);
        }
    }
}

TEST(outside_of_the_image_is_black)
{
    lvni_pose_clip_draw d = draw_of_geometry(0);
    for (int i = 0; i < PIXELS * CHANNELS; i++) {
        image[i] = 200.0f;
    }
    for (uint64_t clip = 0; d.to[0][0] > 0.9 || d.to[1][1] > 0.9; clip++) {
        d = draw_of_geometry(clip);
    }
    lvni_pose_clip_render(&d, poisson, 0, image, out);
    assert_true(out[0] == 0.0f && out[PIXELS * CHANNELS - 1] == 0.0f);
    assert_true(out[(HEIGHT / 2 * WIDTH + WIDTH / 2) * CHANNELS] == 200.0f);
}

/* ---- values ---- */

static void moments(double *mean, double *variance)
{
    const int n = PIXELS * CHANNELS;
    *mean = *variance = 0.0;
    for (int i = 0; i < n; i++) {
        *mean += (double)out[i] / n;
    }
    for (int i = 0; i < n; i++) {
        *variance += ((double)out[i] - *mean) * ((double)out[i] - *mean) / n;
    }
}

static void stay(lvni_pose_clip_draw *d)
{
    static const double same[2][3] = {{1, 0, 0}, {0, 1, 0}};
    memcpy(d->to, same, sizeof same);
    memcpy(d->from, same, sizeof same);
}

TEST(brightness_and_contrast)
{
    lvni_pose_clip_draw d;
    lvni_pose_clip_draw_make(7, 0, HEIGHT, WIDTH, &d);
    stay(&d);
    d.brightness = 1.2;
    d.contrast = 0.8;
    d.noise = 0.0;
    for (int i = 0; i < PIXELS * CHANNELS; i++) {
        image[i] = (float)(i % 256);
    }
    lvni_pose_clip_render(&d, poisson, 0, image, out);
    for (int i = 0; i < PIXELS * CHANNELS; i++) {
        const double want = 1.2 * (0.5 + 0.8 * (i % 256 - 0.5));
        assert_true(fabs((double)out[i] - want) < 1e-4);
    }
}

/* Shot noise keeps the mean, and its variance is its strength times the value. */
TEST(noise_has_mean_and_variance)
{
    static const struct {
        double value, strength;
    } cases[] = {{100, 5}, {10, 9.5}, {250, 0.02}, {200, 2.9}, {1, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lvni_pose_clip_draw d;
        double mean, variance;
        const double v = cases[i].value, f = cases[i].strength, n = PIXELS * CHANNELS;
        lvni_pose_clip_draw_make(7, i, HEIGHT, WIDTH, &d);
        stay(&d);
        d.brightness = d.contrast = 1.0;
        d.noise = f;
        for (int k = 0; k < PIXELS * CHANNELS; k++) {
            image[k] = (float)v;
        }
        lvni_pose_clip_render(&d, poisson, 3, image, out);
        moments(&mean, &variance);
        assert_true(fabs(mean - v) < 5.0 * sqrt(f * v / n));
        assert_true(fabs(variance / (f * v) - 1.0) < 5.0 * sqrt((2.0 + f / v) / n));
        const double first = (double)out[0];
        lvni_pose_clip_render(&d, poisson, 4, image, out);
        double other = 0.0;
        for (int k = 0; k < 64; k++) {
            other += fabs((double)out[k] - v);
        }
        assert_true(other > 0.0 && isfinite(first));
    }
}

/* The same of each pixel; of another frame of the clip other ones. */
TEST(noise_is_of_frame_and_pixel)
{
    static float again[PIXELS * CHANNELS];
    lvni_pose_clip_draw d;
    lvni_pose_clip_draw_make(7, 5, HEIGHT, WIDTH, &d);
    for (int k = 0; k < PIXELS * CHANNELS; k++) {
        image[k] = 120.0f;
    }
    lvni_pose_clip_render(&d, poisson, 1, image, out);
    lvni_pose_clip_render(&d, poisson, 1, image, again);
    assert_memory_equal(out, again, sizeof out);
    lvni_pose_clip_render(&d, poisson, 2, image, again);
    int same = 0;
    for (int k = 0; k < PIXELS * CHANNELS; k++) {
        same += out[k] == again[k] && out[k] > 0.0f;
    }
    assert_true(same < PIXELS * CHANNELS / 4);
}

/* ---- Poisson's distribution ---- */

TEST(quantiles_of_the_normal_distribution)
{
    static const double p[] = {1e-10, 1e-6, 0.001, 0.05, 0.074,   0.076,
                               0.3,   0.5,  0.7,   0.95, 1 - 1e-6};
    for (size_t i = 0; i < sizeof p / sizeof *p; i++) {
        const double z = lvni_pose_normal_quantile(p[i]),
                     below = 0.5 * lvni_core_erfc(-z / sqrt(2.0));
        assert_true(fabs(below / p[i] - 1.0) < 1e-5);
    }
}

/* Every number comes as often as it should, within five deviations. */
TEST(numbers_are_as_often_as_poissons)
{
    static const double means[] = {0.01, 0.75, 1.0, 5.5, 30.25, 63.99, 64.01, 150.0, 3000.0};
    enum { N = 200000, MOST = 256 };
    const lvni_core_rng rng = {lvni_core_rng_make_key(3, lvni_core_rng_purpose("test")), 0, 0, 0};
    for (size_t m = 0; m < sizeof means / sizeof *means; m++) {
        const double mean = means[m];
        static int count[MOST];
        double sum = 0.0, square = 0.0;
        memset(count, 0, sizeof count);
        for (uint64_t i = 0; i < N; i++) {
            const uint32_t u[2] = {lvni_core_rng_u32(&rng, 2 * i),
                                   lvni_core_rng_u32(&rng, 2 * i + 1)};
            const double k = lvni_pose_poisson_draw(poisson, mean, u);
            assert_true(k >= 0.0 && k == floor(k));
            sum += k / N;
            square += (k - mean) * (k - mean) / N;
            count[(int)k < MOST ? (int)k : MOST - 1]++;
        }
        assert_true(fabs(sum - mean) < 5.0 * sqrt(mean / N));
        assert_true(fabs(square / mean - 1.0) < 5.0 * sqrt((2.0 + 1.0 / mean) / N));
        double p = exp(-mean);
        for (int k = 0; k < MOST - 1 && mean < MOST / 2.0; p *= mean / ++k) {
            /* rounded normal numbers are off by less than 1 in 200 of the peak */
            const double slack = mean < LVNI_POSE_POISSON_EXACT ? 0.0 : 0.002 * N / sqrt(mean);
            assert_true(fabs(count[k] - p * N) < 5.0 * sqrt(p * N) + 1.0 + slack);
        }
    }
    assert_true(lvni_pose_poisson_draw(poisson, 0.0, (const uint32_t[]){1U << 31, 5}) == 0.0);
    assert_true(lvni_pose_poisson_draw(poisson, -1.0, (const uint32_t[]){1U << 31, 5}) == 0.0);
}
