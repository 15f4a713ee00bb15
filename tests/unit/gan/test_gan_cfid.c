/* CFID against the formula with SciPy (golden_gan.py), of equal and of shifted sets, with singular
 * covariances, and the embedding without a file. */
#include "core/alloc.h"
#include "core/rng.h"
#include "golden_gan.h"
#include "recipes/gan/gan_cfid.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void near(const char *what, double have, double want, double tolerance)
{
    if (!(fabs(have - want) <= tolerance)) {
        fail_msg("%s: %.17g, expected %.17g", what, have, want);
    }
}

static double element(int64_t e, int64_t matrix)
{
    return (double)((7919 * e + 104729 * matrix) % 1009) / 1009.0;
}

TEST(the_formula)
{
    double x[CFID_N * CFID_D], s[CFID_N * CFID_D], y[CFID_N * CFID_K];
    for (int e = 0; e < CFID_N * CFID_K; e++) {
        y[e] = element(e, 2);
    }
    for (int e = 0; e < CFID_N * CFID_D; e++) {
        const int row = e / CFID_D, column = e % CFID_D;
        x[e] = element(e, 0);
        s[e] = 0.7 * element(e, 1) + (column < CFID_K ? 0.3 * y[row * CFID_K + column] : 0.0);
    }
    lvni_gan_cfid c;
    assert_int_equal(lvni_gan_cfid_of(CFID_N, CFID_D, CFID_K, x, s, y, &c), LVN_OK);
    near("cfid", c.cfid, want_cfid[0], 1e-8);
    near("mean", c.mean, want_cfid[1], 1e-12);
    near("covariance", c.covariance, want_cfid[2], 1e-8);
}

/* With fewer rows than columns all covariances are singular. */
TEST(a_shift_counts_its_square)
{
    enum { D = 24, K = 16 };
    static const int rows[] = {1, 10, 24, 200};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const int n = rows[r];
        const lvni_core_rng rng = {lvni_core_rng_make_key(7, 0), 0, 0, 0};
        double *x = calloc((size_t)n * (2 * D + K), sizeof *x), shift = 0.0;
        assert_non_null(x);
        double *s = x + n * D, *y = s + n * D;
        for (int i = 0; i < n * (2 * D + K); i++) {
            x[i] = lvni_core_rng_normal(&rng, (uint64_t)i);
        }
        lvni_gan_cfid c;
        memcpy(s, x, (size_t)(n * D) * sizeof *s);
        assert_int_equal(lvni_gan_cfid_of(n, D, K, x, s, y, &c), LVN_OK);
        near("equal", c.cfid, 0.0, 1e-8);
        for (int j = 0; j < D; j++) {
            const double by = 0.1 * j - 0.7;
            shift += by * by;
            for (int i = 0; i < n; i++) {
                s[i * D + j] += by;
            }
        }
        assert_int_equal(lvni_gan_cfid_of(n, D, K, x, s, y, &c), LVN_OK);
        near("shifted", c.cfid, shift, 1e-8);
        near("mean part", c.mean, shift, 1e-8);
        free(x);
    }
}

TEST(what_is_not_finite_is_refused)
{
    const double x[] = {1.0, 2.0, (double)NAN}, y[] = {1.0, 2.0, 3.0};
    lvni_gan_cfid c;
    assert_int_equal(lvni_gan_cfid_of(3, 1, 1, y, x, y, &c), LVN_ERR_INVALID);
    assert_true(isnan(c.cfid));
    assert_int_equal(lvni_gan_cfid_of(0, 1, 1, y, y, y, &c), LVN_ERR_INVALID);
}

TEST(without_memory)
{
    static const double x[] = {1.0, 2.0, 4.0, 3.0, 3.0, 7.0}, y[] = {1.0, 2.0, 5.0};
    lvni_gan_cfid c;
    lvn_status s = LVN_ERR_MEMORY;
    for (int64_t k = 1; s != LVN_OK; k++) {
        lvni_core_alloc_fail_at(k);
        s = lvni_gan_cfid_of(3, 2, 1, x, x, y, &c);
        lvni_core_alloc_fail_at(0);
        assert_true(s == LVN_OK || s == LVN_ERR_MEMORY);
    }
    s = LVN_ERR_MEMORY;
    for (int64_t k = 1; s != LVN_OK; k++) {
        lvni_gan_embedding *e;
        lvni_core_alloc_fail_at(k);
        s = lvni_gan_embedding_create(1, &e);
        lvni_core_alloc_fail_at(0);
        assert_true((s == LVN_OK && e != NULL) || (s == LVN_ERR_MEMORY && e == NULL));
        lvni_gan_embedding_destroy(e);
    }
}

/* ---- the embedding ---- */

enum { SIDE = 21 };

static void make_image(int item, float *image, int channels)
{
    const lvni_core_rng rng = {lvni_core_rng_make_key(3, 0), (uint32_t)item, 0, 0};
    for (int i = 0; i < channels * SIDE * SIDE; i++) {
        image[i] = lvni_core_rng_uniform(&rng, (uint64_t)i);
    }
}

TEST(embeddings_are_fixed_and_see_the_image)
{
    float image[3 * SIDE * SIDE];
    for (int channels = 1; channels <= 3; channels += 2) {
        double a[LVNI_GAN_EMBEDDING], b[LVNI_GAN_EMBEDDING];
        lvni_gan_embedding *one, *two;
        assert_int_equal(lvni_gan_embedding_create(channels, &one), LVN_OK);
        assert_int_equal(lvni_gan_embedding_create(channels, &two), LVN_OK);
        make_image(0, image, channels);
        assert_int_equal(lvni_gan_embed(one, image, SIDE, SIDE, a), LVN_OK);
        assert_int_equal(lvni_gan_embed(two, image, SIDE, SIDE, b), LVN_OK);
        assert_memory_equal(a, b, sizeof a);
        for (int i = 0; i < channels * SIDE * SIDE; i++) {
            image[i] = 4.0F * image[i] + 2.0F; /* the same after scaling */
        }
        assert_int_equal(lvni_gan_embed(one, image, SIDE, SIDE, b), LVN_OK);
        for (int j = 0; j < LVNI_GAN_EMBEDDING; j++) {
            near("scaled", b[j], a[j], 1e-5);
        }
        make_image(1, image, channels);
        assert_int_equal(lvni_gan_embed(one, image, SIDE, SIDE, b), LVN_OK);
        double distance = 0.0;
        for (int j = 0; j < LVNI_GAN_EMBEDDING; j++) {
            distance += fabs(b[j] - a[j]);
        }
        assert_true(distance > 1e-3);
        lvni_gan_embedding_destroy(one);
        lvni_gan_embedding_destroy(two);
    }
}

/* A single pixel and a constant image have embeddings: those of the biases and of zeros. */
TEST(small_images)
{
    const float pixel = 3.0F, same[4] = {5.0F, 5.0F, 5.0F, 5.0F};
    double a[LVNI_GAN_EMBEDDING];
    lvni_gan_embedding *e;
    assert_int_equal(lvni_gan_embedding_create(1, &e), LVN_OK);
    assert_int_equal(lvni_gan_embed(e, &pixel, 1, 1, a), LVN_OK);
    assert_int_equal(lvni_gan_embed(e, same, 2, 2, a), LVN_OK);
    for (int j = 0; j < LVNI_GAN_EMBEDDING; j++) {
        assert_true(isfinite(a[j]));
    }
    assert_int_equal(lvni_gan_embed(e, same, 0, 2, a), LVN_ERR_INVALID);
    lvni_gan_embedding_destroy(e);
    lvni_gan_embedding_destroy(NULL);
}
