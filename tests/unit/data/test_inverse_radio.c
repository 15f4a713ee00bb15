/* Radio images: skies, sampling and dirty images; the two layouts and three ways to normalise;
 * arrays of a folder. */
#include "core/alloc.h"
#include "data/array.h"
#include "data/inverse/radio.h"
#include "images_support.h"
#include "inverse_support.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lvni_data_inverse_options radio(int size, int in, lvni_data_inverse_norm norm)
{
    return (lvni_data_inverse_options){.experience = LVNI_INVERSE_RADIO,
                                       .path = "builtin:radio",
                                       .im_size = size,
                                       .in_chans = in,
                                       .out_chans = in - 1,
                                       .norm = norm,
                                       .seed = 3};
}

static const lvni_inverse_random sky_of_2 = {3, LVNI_INVERSE_TRAIN, 0, 2, LVNI_INVERSE_TRUTH},
                                 shape_of_2 = {3, LVNI_INVERSE_TRAIN, 0, 2, LVNI_INVERSE_SHAPE};

/* ---- builtin ---- */

enum { N = 32 };

TEST(the_sky_has_peak_1_and_the_sampling_is_symmetric)
{
    static double sky[N * N], sampling[N * N];
    lvni_inverse_radio_sky(&sky_of_2, N, sky);
    lvni_inverse_radio_sampling(&shape_of_2, N, sampling);
    double peak = 0.0;
    int sampled = 0;
    for (int i = 0; i < N * N; i++) {
        assert_true(sky[i] >= 0.0);
        peak = sky[i] > peak ? sky[i] : peak;
        assert_true(sampling[i] == 0.0 || sampling[i] == 1.0);
        sampled += sampling[i] == 1.0;
        const int opposite = (N - i / N) % N * N + (N - i % N) % N;
        assert_true(sampling[i] == sampling[opposite]);
    }
    assert_true(peak == 1.0);
    assert_true(sampled > N * N / 10 && sampled < N * N * 9 / 10 && sampling[0] == 0.0);
}

/* The dirty image is the sky convolved with the point spread function, and the noise of its pixels
 * has the deviation that was asked for. */
TEST(the_dirty_image_is_a_convolution)
{
    static double sampling[N * N], normals[N * N];
    static lvni_data_complex sky[N * N], noise[N * N], dirty[N * N], psf[N * N];
    lvni_data_fourier *f;
    assert_int_equal(lvni_data_fourier_create(N, N, &f), LVN_OK);
    lvni_data_complex *scratch = calloc(lvni_data_fourier_scratch(f), sizeof *scratch);
    lvni_inverse_radio_sampling(&shape_of_2, N, sampling);
    sky[5 * N + 9].re = 1.0;
    sky[20 * N + 3].re = 0.5;
    lvni_inverse_radio_observe(f, N, sampling, 0.0, sky, noise, dirty, psf, scratch);
    assert_true(fabs(psf[N / 2 * N + N / 2].re - 1.0) < 1e-12);
    for (int i = 0; i < N * N; i++) {
        const int r = i / N, c = i % N;
        const double want = psf[(r - 5 + N / 2 + N) % N * N + (c - 9 + N / 2 + N) % N].re +
                            0.5 * psf[(r - 20 + N / 2 + N) % N * N + (c - 3 + N / 2 + N) % N].re;
        assert_true(fabs(dirty[i].re - want) < 1e-10);
    }
    memset(sky, 0, sizeof sky);
    double squares = 0.0;
    for (uint32_t k = 0; k < 100; k++) {
        lvni_inverse_random random = sky_of_2;
        random.sample = k;
        lvni_inverse_normals(&random, N * N, normals);
        for (int i = 0; i < N * N; i++) {
            noise[i].re = normals[i];
        }
        lvni_inverse_radio_observe(f, N, sampling, 0.3, sky, noise, dirty, psf, scratch);
        for (int i = 0; i < N * N; i++) {
            squares += dirty[i].re * dirty[i].re;
        }
    }
    assert_true(fabs(sqrt(squares / (100.0 * N * N)) / 0.3 - 1.0) < 0.02);
    lvni_data_fourier_destroy(f);
    free(scratch);
}

static void mean_and_deviation(const inverse_sample *s, int field, int channel, int channels,
                               double *mean, double *std)
{
    double sum = 0.0, squares = 0.0;
    const size_t n = s->size[field] / (size_t)channels;
    for (size_t i = 0; i < n; i++) {
        const double v = inverse_at(s, field, i * (size_t)channels + (size_t)channel);
        sum += v;
        squares += v * v;
    }
    *mean = sum / (double)n;
    *std = sqrt((squares - sum * sum / (double)n) / (double)(n - 1));
}

TEST(layouts_and_norms)
{
    static double sky[N * N];
    lvni_inverse_radio_sky(&sky_of_2, N, sky);
    static const lvni_data_inverse_norm norms[] = {LVNI_INVERSE_NORM_MICRO, LVNI_INVERSE_NORM_MACRO,
                                                   LVNI_INVERSE_NORM_NONE};
    for (int k = 0; k < 4; k++) {
        const int in = k == 3 ? 3 : 2;
        const lvni_data_inverse_options o =
            radio(N, in, k == 3 ? LVNI_INVERSE_NORM_MICRO : norms[k]);
        lvn_dataset *d = inverse_open(&o);
        inverse_sample s = inverse_sample_make(d);
        inverse_get(d, 2, 1, 0, true, &s);
        const double mean = inverse_at(&s, 2, 0), std = inverse_at(&s, 3, 0);
        for (size_t i = 0; i < N * N; i++) {
            assert_true(fabs(inverse_at(&s, 1, i * (size_t)(in - 1)) * std + mean - sky[i]) < 1e-5);
        }
        double of_y, spread_of_y, of_uv, spread_of_uv;
        mean_and_deviation(&s, 0, 0, in, &of_y, &spread_of_y);
        mean_and_deviation(&s, 0, in - 1, in, &of_uv, &spread_of_uv);
        if (k == 0) {
            assert_true(fabs(of_y) < 1e-5 && fabs(spread_of_y - 1.0) < 1e-5);
            assert_true(fabs(of_uv) < 1e-5 && fabs(spread_of_uv - 1.0) < 1e-5);
        } else if (k == 1) {
            assert_true(std > 0.01 && std < 0.5 && mean > 0.0); /* of skies */
            assert_true(fabs(of_y) < 1.0 && spread_of_y > 0.2 && spread_of_y < 5.0);
            assert_true(fabs(spread_of_y - 1.0) > 1e-3);
        } else if (k == 2) {
            assert_true(mean == 0.0 && std == 1.0);
            assert_true(inverse_at(&s, 0, 2 * (N / 2 * N + N / 2) + 1) == 1.0); /* psf */
        } else {
            /* the sampling, 0 or 1, by the statistics of y */
            const double v = inverse_at(&s, 0, 3 * 77 + 2) * std + mean;
            assert_true(fabs(v) < 1e-5 || fabs(v - 1.0) < 1e-5);
            assert_true(fabs(inverse_at(&s, 0, 3 * (N / 2 * N + N / 2) + 2) * std + mean) < 1e-5);
        }
        inverse_sample_free(&s);
        lvn_dataset_destroy(d);
    }
}

TEST(samples_depend_on_their_key_alone)
{
    const lvni_data_inverse_options all[] = {radio(16, 3, LVNI_INVERSE_NORM_MICRO),
                                             radio(16, 2, LVNI_INVERSE_NORM_MICRO),
                                             radio(16, 2, LVNI_INVERSE_NORM_MACRO)};
    for (int i = 0; i < 3; i++) {
        inverse_check_keys(&all[i]);
        inverse_check_memory(&all[i]);
    }
}

TEST(samples_have_the_same_bits_everywhere)
{
    lvni_data_inverse_options o = radio(20, 3, LVNI_INVERSE_NORM_MICRO);
    inverse_check_bits(&o, 0xaae26b9ec247c378);
    o = radio(20, 2, LVNI_INVERSE_NORM_MACRO);
    inverse_check_bits(&o, 0xfb5c9376d33199b2);
}

/* ---- folders ---- */

enum { SIDE = 8, SAMPLES = 3 };

static double value(int array, int sample, int i)
{
    return sin(0.1 * i * (array + 1)) * (sample + 1) + array;
}

static void write_split(const char *folder, const char *split, bool of_complex)
{
    static const char *const names[] = {"x", "y", "uv"};
    static float values[SAMPLES * SIDE * SIDE * 2];
    for (int k = 0; k < 3; k++) {
        char name[64];
        const int step = of_complex && k < 2 ? 2 : 1;
        for (int i = 0; i < SAMPLES * SIDE * SIDE; i++) {
            values[step * i] = (float)value(k, i / (SIDE * SIDE), i % (SIDE * SIDE));
            if (step == 2) {
                values[2 * i + 1] = 0.25F * values[2 * i];
            }
        }
        snprintf(name, sizeof name, "%s/%s.npy", split, names[k]);
        images_write_file(images_path(folder, name), "", 0); /* makes the folder */
        assert_int_equal(lvni_data_npy_write(images_path(folder, name),
                                             step == 2 ? LVNI_ARRAY_C64 : LVNI_ARRAY_F32, 3,
                                             (const int64_t[]){SAMPLES, SIDE, SIDE}, values),
                         LVN_OK);
    }
}

TEST(real_arrays_of_a_folder)
{
    const char *folder = images_temp_folder();
    write_split(folder, "train", false);
    write_split(folder, "val", false);
    lvni_data_inverse_options o = radio(SIDE, 2, LVNI_INVERSE_NORM_MACRO);
    o.path = folder;
    o.split = LVNI_INVERSE_VAL;
    lvn_dataset *d = inverse_open(&o);
    assert_int_equal(d->cls->length(d), SAMPLES);
    inverse_sample s = inverse_sample_make(d);
    inverse_get(d, 1, 1, 0, true, &s);
    double mean[3] = {0.0}, std[3] = {0.0};
    for (int k = 0; k < 3; k++) {
        for (int j = 0; j < SAMPLES; j++) {
            double sum = 0.0, squares = 0.0;
            for (int i = 0; i < SIDE * SIDE; i++) {
                sum += value(k, j, i) / (SIDE * SIDE);
                squares += pow(value(k, j, i), 2) / (SIDE * SIDE);
            }
            mean[k] += sum / SAMPLES;
            std[k] += sqrt(squares - sum * sum) / SAMPLES;
        }
    }
    for (int i = 0; i < SIDE * SIDE; i++) {
        const size_t at = (size_t)i;
        assert_true(fabs(inverse_at(&s, 1, at) - (value(0, 1, i) - mean[0]) / std[0]) < 1e-4);
        assert_true(fabs(inverse_at(&s, 0, 2 * at) - (value(1, 1, i) - mean[1]) / std[1]) < 1e-4);
        assert_true(fabs(inverse_at(&s, 0, 2 * at + 1) - (value(2, 1, i) - mean[2]) / std[2]) <
                    1e-4);
    }
    assert_true(fabs(inverse_at(&s, 2, 0) - mean[0]) < 1e-5);
    lvn_dataset_destroy(d);
    /* those that lie there count */
    static const char *const names[] = {"mean_x", "std_x", "mean_y", "std_y", "mean_uv", "std_uv"};
    for (int i = 0; i < 6; i++) {
        const double v = 1.0 + i;
        char name[64];
        snprintf(name, sizeof name, "train/%s.npy", names[i]);
        assert_int_equal(
            lvni_data_npy_write(images_path(folder, name), LVNI_ARRAY_F64, 0, NULL, &v), LVN_OK);
    }
    d = inverse_open(&o);
    inverse_get(d, 1, 1, 0, true, &s);
    assert_true(inverse_at(&s, 2, 0) == 1.0 && inverse_at(&s, 3, 0) == 2.0);
    assert_true(fabs(inverse_at(&s, 0, 2 * 7 + 1) - (value(2, 1, 7) - 5.0) / 6.0) < 1e-5);
    lvn_dataset_destroy(d);
    inverse_sample_free(&s);
    inverse_check_memory(&o);
    images_remove_folder(folder);
}

TEST(complex_arrays_of_a_folder)
{
    const char *folder = images_temp_folder();
    write_split(folder, "train", true);
    lvni_data_inverse_options o = radio(SIDE, 3, LVNI_INVERSE_NORM_MICRO);
    o.path = folder;
    lvn_dataset *d = inverse_open(&o);
    inverse_sample s = inverse_sample_make(d);
    inverse_get(d, 2, 1, 0, true, &s);
    const double mean = inverse_at(&s, 2, 0), std = inverse_at(&s, 3, 0);
    double least = 1e9, most = -1e9;
    for (int i = 0; i < SAMPLES * SIDE * SIDE; i++) {
        const double v = value(2, i / (SIDE * SIDE), i % (SIDE * SIDE));
        least = v < least ? v : least;
        most = v > most ? v : most;
    }
    for (int i = 0; i < SIDE * SIDE; i++) {
        const size_t at = (size_t)i;
        assert_true(fabs(inverse_at(&s, 1, 2 * at) * std + mean - value(0, 2, i)) < 1e-5);
        assert_true(fabs(inverse_at(&s, 1, 2 * at + 1) * std + mean - 0.25 * value(0, 2, i)) <
                    1e-5);
        assert_true(fabs(inverse_at(&s, 0, 3 * at + 1) * std + mean - 0.25 * value(1, 2, i)) <
                    1e-5);
        assert_true(fabs(inverse_at(&s, 0, 3 * at + 2) * std + mean -
                         (value(2, 2, i) - least) / (most - least)) < 1e-5);
    }
    inverse_sample_free(&s);
    lvn_dataset_destroy(d);
    inverse_check_memory(&o);
    o = radio(SIDE, 2, LVNI_INVERSE_NORM_MICRO);
    o.path = folder;
    assert_int_equal(inverse_refuses(&o, "x.npy holds complex64; in_chans=2"), LVN_ERR_USAGE);
    images_remove_folder(folder);
}

TEST(what_does_not_fit_is_refused_before_any_work)
{
    const char *folder = images_temp_folder();
    write_split(folder, "train", false);
    lvni_data_inverse_options o = radio(16, 2, LVNI_INVERSE_NORM_MICRO);
    o.path = folder;
    assert_int_equal(inverse_refuses(&o, "x.npy holds an array of (3, 8, 8); im_size=16"),
                     LVN_ERR_USAGE);
    o = radio(SIDE, 2, LVNI_INVERSE_NORM_MICRO);
    o.path = folder;
    o.split = LVNI_INVERSE_TEST;
    assert_int_equal(inverse_refuses(&o, "test/x.npy"), LVN_ERR_NOT_FOUND);
    o.split = LVNI_INVERSE_TRAIN;
    static const float few[2 * SIDE * SIDE] = {1.0F};
    assert_int_equal(lvni_data_npy_write_f32(images_path(folder, "train/uv.npy"), 3,
                                             (const int64_t[]){2, SIDE, SIDE}, few),
                     LVN_OK);
    assert_int_equal(inverse_refuses(&o, "uv.npy has 2 samples, but"), LVN_ERR_USAGE);
    o = radio(16, 3, LVNI_INVERSE_NORM_MACRO);
    assert_int_equal(inverse_refuses(&o, "norm=micro"), LVN_ERR_USAGE);
    o = radio(16, 4, LVNI_INVERSE_NORM_MICRO);
    assert_int_equal(inverse_refuses(&o, "in_chans=4 out_chans=3"), LVN_ERR_USAGE);
    o = radio(17, 2, LVNI_INVERSE_NORM_MICRO);
    assert_int_equal(inverse_refuses(&o, "im_size=17"), LVN_ERR_USAGE);
    images_remove_folder(folder);
}
