/* Metrics of images and samples against scikit-image, SciPy and NumPy (golden_gan.py), coverage of
 * normal samples, and the calibration of intervals. */
#include "core/alloc.h"
#include "core/rng.h"
#include "golden_gan.h"
#include "recipes/gan/gan_coverage.h"
#include "recipes/gan/gan_metrics.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>

enum { N = HEIGHT * WIDTH };

/* Sets of golden_gan.py. */
static float truth[N], image[N], samples[SAMPLES * N];
static uint8_t mask[N];

BEFORE_ALL()
{
    for (int e = 0; e < N; e++) {
        truth[e] = (float)((37 * e + 11) % 101 - 30) / 64.0F;
        image[e] = truth[e] + (float)((53 * e + 7) % 29 - 14) / 128.0F;
        mask[e] = e % 3 != 1;
        for (int k = 0; k < SAMPLES; k++) {
            samples[k * N + e] = image[e] + (float)((31 * e + 17 * k) % 23 - 11) / 64.0F;
        }
    }
    return 0;
}

static void near(const char *what, double have, double want, double tolerance)
{
    if (!(fabs(have - want) <= tolerance)) {
        fail_msg("%s: %.17g, expected %.17g", what, have, want);
    }
}
#define NEAR(have, want) near(#have, have, want, 1e-9)

TEST(one_image)
{
    NEAR(lvni_gan_psnr(image, truth, N), want_psnr);
    NEAR(lvni_gan_ssim(image, truth, HEIGHT, WIDTH), want_ssim);
    NEAR(lvni_gan_ssim(truth, truth, HEIGHT, WIDTH), 1.0);
    assert_true(isnan(lvni_gan_ssim(image, truth, 6, WIDTH)));
    assert_true(isinf(lvni_gan_psnr(truth, truth, N)));
    const lvni_gan_masked m = lvni_gan_masked_of(image, truth, mask, N);
    NEAR(m.rmse, want_rmse);
    NEAR(m.pearson, want_pearson);
    NEAR(m.snr, want_snr);
    NEAR(m.psnr, want_masked_psnr);
    NEAR(m.psnr_legacy, want_psnr_legacy);
    NEAR(lvni_gan_masked_of(image, truth, NULL, N).psnr, want_psnr);
}

/* By hand: truth 0 1 2 4, image 0 1 2 2; MSE 1. */
TEST(by_hand)
{
    static const float a[] = {0.0F, 1.0F, 2.0F, 4.0F}, b[] = {0.0F, 1.0F, 2.0F, 2.0F};
    static const float shifted[] = {10.0F, 11.0F, 12.0F, 14.0F},
                       other[] = {10.0F, 11.0F, 12.0F, 12.0F};
    NEAR(lvni_gan_psnr(b, a, 4), 20.0 * log10(4.0));
    NEAR(lvni_gan_psnr(other, shifted, 4), 20.0 * log10(14.0));
    NEAR(lvni_gan_masked_of(b, a, NULL, 4).snr, 10.0 * log10(21.0 / 4.0));
    static const float constant[] = {1e-9F, 1e-9F, 1e-9F, 1e-9F};
    assert_true(isnan(lvni_gan_psnr(b, constant, 4)));
    const lvni_gan_masked m = lvni_gan_masked_of(b, constant, NULL, 4);
    assert_true(isnan(m.psnr) && isnan(m.psnr_legacy) && isnan(m.snr) && m.rmse > 1.0);
    NEAR(lvni_gan_masked_of(b, a, NULL, 4).psnr_legacy, 10.0 * log10(4.0));
}

TEST(of_samples)
{
    float mean[N], std[N];
    lvni_gan_mean_std(samples, SAMPLES, N, mean, std);
    NEAR(lvni_gan_apsd(samples, SAMPLES, N), want_apsd);
    const lvni_gan_uncertainty u = lvni_gan_uncertainty_of(mean, std, truth, mask, N);
    near("r_std_error", u.r_std_error, want_uncertainty[0], 1e-6);
    near("r_error_truth", u.r_error_truth, want_uncertainty[1], 1e-6);
    near("r_std_truth", u.r_std_truth, want_uncertainty[2], 1e-6);
    near("ratio_mean", u.ratio_mean, want_uncertainty[3], 1e-6);
    near("ratio_std", u.ratio_std, want_uncertainty[4], 1e-6);
    NEAR(u.within, want_uncertainty[5]);
}

TEST(averages_have_a_standard_error)
{
    static const double values[] = {20.0, 22.0, 27.0, 23.0};
    lvni_gan_average a = {0};
    lvni_core_str text = {0};
    lvni_gan_average_print(&a, "PSNR", 2, &text);
    for (int i = 0; i < 4; i++) {
        lvni_gan_average_add(&a, values[i]);
    }
    lvni_gan_average_add(&a, (double)INFINITY);
    NEAR(a.mean, 23.0);
    NEAR(lvni_gan_average_std(&a), sqrt(26.0 / 4.0)); /* 9 + 1 + 16 + 0 */
    NEAR(lvni_gan_average_stderr(&a), sqrt(26.0) / 4.0);
    lvni_gan_average_print(&a, "PSNR", 2, &text);
    assert_string_equal(lvni_core_str_text(&text),
                        "PSNR: -\nPSNR: 23.00 ± 1.27 (without 1 value that is not finite)\n");
    lvni_core_str_clear(&text);
    const lvni_gan_average none = {.skipped = 2};
    lvni_gan_average_json(&none, &text);
    assert_string_equal(
        lvni_core_str_text(&text),
        "{\"mean\": null, \"stderr\": null, \"std\": null, \"n\": 0, \"skipped\": 2}");
    lvni_core_str_clear(&text);
    lvni_gan_average b = {0};
    lvni_gan_average_add(&b, 1.5);
    lvni_gan_average_json(&b, &text);
    assert_string_equal(lvni_core_str_text(&text),
                        "{\"mean\": 1.5, \"stderr\": 0, \"std\": 0, \"n\": 1, \"skipped\": 0}");
    lvni_core_str_free(&text);
}

/* ---- coverage ---- */

TEST(quantiles_are_those_of_numpy)
{
    static const double levels[] = {0.137, 0.5, 0.66};
    double share[3];
    assert_int_equal(lvni_gan_coverage(samples, SAMPLES, truth, mask, N, levels, 3, share), LVN_OK);
    for (int l = 0; l < 3; l++) {
        NEAR(share[l], want_coverage[l]);
    }
}

/* n_samples and a truth of the same normal distribution for each element, whose mean and deviation
 * differ. */
static float *draw(int n_samples, int n, float *of_truth, float *mean, float *std, uint32_t item)
{
    const lvni_core_rng rng = {lvni_core_rng_make_key(1, 2), item, 0, 0};
    float *s = malloc((size_t)n_samples * (size_t)n * sizeof *s);
    assert_non_null(s);
    for (int i = 0; i < n; i++) {
        const double centre = 0.01 * i, deviation = 0.2 + 0.001 * i;
        for (int k = 0; k <= n_samples; k++) {
            const double x =
                centre +
                deviation * lvni_core_rng_normal(&rng, (uint64_t)k * (uint64_t)n + (uint64_t)i);
            *(k < n_samples ? &s[k * n + i] : &of_truth[i]) = (float)x;
        }
    }
    lvni_gan_mean_std(s, n_samples, n, mean, std);
    return s;
}

/* 20000 truths: the share of 0.5 has a standard deviation of 0.0035. */
TEST(an_exact_sampler_covers_its_level)
{
    enum { DRAWN = 20000, OF_EACH = 32 };
    float *of_truth = malloc(3 * DRAWN * sizeof *of_truth);
    assert_non_null(of_truth);
    float *s = draw(OF_EACH, DRAWN, of_truth, of_truth + DRAWN, of_truth + 2 * DRAWN, 0);
    double levels[LVNI_GAN_LEVELS], share[LVNI_GAN_LEVELS];
    for (int l = 0; l < LVNI_GAN_LEVELS; l++) {
        levels[l] = lvni_gan_level(l);
    }
    NEAR(levels[0], 0.01);
    NEAR(levels[LVNI_GAN_LEVELS - 1], 0.99);
    assert_int_equal(
        lvni_gan_coverage(s, OF_EACH, of_truth, NULL, DRAWN, levels, LVNI_GAN_LEVELS, share),
        LVN_OK);
    for (int l = 0; l < LVNI_GAN_LEVELS; l++) {
        near("share", share[l], fmin(levels[l], 31.0 / 33.0), 0.012);
    }
    free(s);
    free(of_truth);
}

/* Of an item the share of elements within mean +- (std + lambda scale). */
static double covered(const float *of_truth, const float *mean, const float *std, int n,
                      double lambda, double scale)
{
    int inside = 0;
    for (int i = 0; i < n; i++) {
        inside += fabs((double)of_truth[i] - (double)mean[i]) <= (double)std[i] + lambda * scale;
    }
    return (double)inside / n;
}

/* Items miss 1 - level at most, less Hoeffding's bound; one step further they would not. */
TEST(intervals_are_calibrated)
{
    enum { ITEMS = 40, DRAWN = 400, OF_EACH = 8 };
    const double bound = sqrt(log(10.0) / (2.0 * ITEMS)), scale = 0.5; /* 0.170 */
    float *memory = malloc(3 * ITEMS * DRAWN * sizeof *memory);
    lvni_gan_intervals *v = calloc(1, sizeof *v);
    assert_true(memory != NULL && v != NULL);
    for (int i = 0; i < ITEMS; i++) {
        float *at = memory + 3 * i * DRAWN;
        free(draw(OF_EACH, DRAWN, at, at + DRAWN, at + 2 * DRAWN, (uint32_t)i));
        lvni_gan_intervals_add(v, at + DRAWN, at + 2 * DRAWN, at, NULL, DRAWN, scale);
    }
    double share = 0.0;
    for (int l = 0; l < LVNI_GAN_LEVELS - 2; l++) {
        const double level = lvni_gan_level(l), lambda = lvni_gan_calibrate(v, level, &share);
        double here = 0.0, further = 0.0;
        for (int i = 0; i < ITEMS; i++) {
            const float *at = memory + 3 * i * DRAWN;
            here += covered(at, at + DRAWN, at + 2 * DRAWN, DRAWN, lambda, scale) / ITEMS;
            further += covered(at, at + DRAWN, at + 2 * DRAWN, DRAWN, lambda - 0.01, scale) / ITEMS;
        }
        near("steps", (3.0 - lambda) / 0.01, round((3.0 - lambda) / 0.01), 1e-6);
        near("share", share, here, 1e-9);
        assert_true(1.0 - here + bound <= 1.0 - level + 1e-12);
        assert_true(1.0 - further + bound > 1.0 - level);
    }
    assert_true(isnan(lvni_gan_calibrate(v, 0.9, &share)));
    free(memory);
    free(v);
}

/* What the mask hides counts for nothing, however far it is from the truth. */
TEST(calibration_within_a_mask)
{
    static const float of_truth[] = {0.0F, 1.0F, 9.0F, 0.5F}, mean[] = {0.0F, 0.0F, 0.0F, 0.0F},
                       std[] = {0.25F, 0.25F, 0.25F, 0.25F};
    static const uint8_t shown[] = {1, 1, 0, 1};
    static lvni_gan_intervals v;
    for (int i = 0; i < 200; i++) {
        lvni_gan_intervals_add(&v, mean, std, of_truth, shown, 4, 0.5);
    }
    double share;
    near("lambda", lvni_gan_calibrate(&v, 0.9, &share), 1.5, 0.011);
    NEAR(share, 1.0);
    near("lambda", lvni_gan_calibrate(&v, 0.5, &share), 0.5, 0.011);
    NEAR(share, 2.0 / 3.0);
}
