/* Maps of mass: the kernel, the noise, the two layouts, masks, folders, and what is known about the
 * truth. */
#include "core/alloc.h"
#include "data/array.h"
#include "data/inverse/mass.h"
#include "data/inverse_truth.h"
#include "images_support.h"
#include "inverse_support.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lvni_data_inverse_options two(int size)
{
    return (lvni_data_inverse_options){.experience = LVNI_INVERSE_MASS,
                                       .path = "builtin:mass",
                                       .im_size = size,
                                       .in_chans = 2,
                                       .out_chans = 2,
                                       .seed = 3};
}

static lvni_data_inverse_options four(int size)
{
    lvni_data_inverse_options o = two(size);
    o.in_chans = 4;
    o.out_chans = 1;
    return o;
}

/* ---- operators ---- */

TEST(the_kernel_has_magnitude_1_except_at_0)
{
    enum { N = 12 };
    lvni_data_complex rows[N * N], cols[N * N];
    lvni_inverse_mass_kernel(N, true, rows);
    lvni_inverse_mass_kernel(N, false, cols);
    assert_true(rows[0].re == 0.0 && rows[0].im == 0.0);
    for (int i = 1; i < N * N; i++) {
        assert_true(fabs(hypot(rows[i].re, rows[i].im) - 1.0) < 1e-14);
        assert_true(rows[i].re == -cols[i].re && rows[i].im == cols[i].im);
    }
    /* row 2, column -1: (4 - 1 + 2i * 2 * -1) / 5 */
    assert_true(fabs(rows[2 * N + N - 1].re - 0.6) < 1e-15);
    assert_true(fabs(rows[2 * N + N - 1].im + 0.8) < 1e-15);
}

TEST(inverting_noiseless_shear_gives_the_mass_without_its_mean)
{
    const lvni_data_inverse_options layouts[] = {two(24), four(24)};
    for (int l = 0; l < 2; l++) {
        lvn_dataset *d = inverse_open(&layouts[l]);
        const lvni_inverse_mass *m = lvni_inverse_mass_of(d);
        lvni_data_complex *x = lvni_inverse_mass_work(m), *scratch = x + 3 * m->n;
        double mean = 0.0;
        for (size_t i = 0; i < m->n; i++) {
            x[i] = (lvni_data_complex){sin(0.7 * (double)i) + 0.3, 0.0};
            mean += x[i].re / (double)m->n;
        }
        lvni_inverse_mass_shear(m, x, scratch);
        lvni_inverse_mass_invert(m, x, scratch);
        for (size_t i = 0; i < m->n; i++) {
            assert_true(fabs(x[i].re - (sin(0.7 * (double)i) + 0.3 - mean)) < 1e-10);
            assert_true(fabs(x[i].im) < 1e-10);
        }
        lvni_core_free(x);
        lvn_dataset_destroy(d);
    }
}

TEST(the_noise_of_a_survey_is_that_of_its_galaxies)
{
    assert_true(fabs(lvni_data_inverse_mass_sigma(300) - 0.067552) < 1e-6);
    lvni_data_inverse_options o = two(64);
    o.count = 100;
    o.sigma = lvni_data_inverse_mass_sigma(300);
    lvn_dataset *d = inverse_open(&o);
    const lvni_inverse_mass *m = lvni_inverse_mass_of(d);
    lvni_data_complex *kappa = lvni_inverse_mass_work(m), *gamma = kappa + m->n,
                      *scratch = kappa + 3 * m->n;
    double squares = 0.0;
    for (int64_t i = 0; i < 100; i++) {
        const lvn_sample_key key = {1, 0, i, true};
        assert_int_equal(lvni_inverse_mass_measure(m, &key, kappa, gamma, scratch), LVN_OK);
        lvni_inverse_mass_shear(m, kappa, scratch);
        for (size_t k = 0; k < m->n; k++) {
            squares += pow(gamma[k].re - kappa[k].re, 2) + pow(gamma[k].im - kappa[k].im, 2);
        }
    }
    const double std = sqrt(squares / (100.0 * 2.0 * (double)m->n));
    assert_true(fabs(std / 0.067552 - 1.0) < 0.01);
    lvni_core_free(kappa);
    lvn_dataset_destroy(d);
}

/* ---- samples ---- */

TEST(two_channels_are_normalised_by_the_shear)
{
    const lvni_data_inverse_options o = two(32);
    lvn_dataset *d = inverse_open(&o);
    const lvni_inverse_mass *m = lvni_inverse_mass_of(d);
    inverse_sample s = inverse_sample_make(d);
    inverse_get(d, 7, 1, 0, true, &s);
    assert_int_equal(d->cls->length(d), 256);
    assert_null(d->cls->sample_name);
    double sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < s.size[0]; i++) {
        sum += inverse_at(&s, 0, i);
        squares += pow(inverse_at(&s, 0, i), 2);
    }
    const double n = (double)s.size[0];
    assert_true(fabs(sum / n) < 1e-5);
    assert_true(fabs(sqrt((squares - sum * sum / n) / (n - 1.0)) - 1.0) < 1e-5);
    lvni_data_complex *kappa = lvni_inverse_mass_work(m);
    const lvn_sample_key key = {1, 0, 7, true};
    assert_int_equal(lvni_inverse_mass_measure(m, &key, kappa, kappa + m->n, kappa + 3 * m->n),
                     LVN_OK);
    const double mean = inverse_at(&s, 2, 0), std = inverse_at(&s, 3, 0);
    double pixels = 0.0;
    for (size_t i = 0; i < m->n; i++) {
        assert_true(fabs(inverse_at(&s, 1, 2 * i) * std + mean - kappa[i].re) < 1e-5 * std);
        assert_true(fabs(inverse_at(&s, 1, 2 * i + 1) * std + mean) < 1e-5 * std);
        assert_true(fabs(inverse_at(&s, 0, 2 * i) * std + mean - kappa[m->n + i].re) < 1e-5 * std);
        pixels += kappa[i].re * kappa[i].re / (double)m->n;
    }
    assert_true(sqrt(pixels) > 0.015 && sqrt(pixels) < 0.06);
    lvni_core_free(kappa);
    inverse_sample_free(&s);
    lvn_dataset_destroy(d);
}

TEST(four_channels_hold_shear_and_its_inversion)
{
    lvni_data_inverse_options o = four(32);
    o.kappa_mean = 0.001;
    o.kappa_std = 0.02;
    lvn_dataset *d = inverse_open(&o);
    const lvni_inverse_mass *m = lvni_inverse_mass_of(d);
    inverse_sample s = inverse_sample_make(d);
    inverse_get(d, 2, 1, 4, true, &s);
    lvni_data_complex *kappa = lvni_inverse_mass_work(m), *gamma = kappa + m->n,
                      *scratch = kappa + 3 * m->n;
    const lvn_sample_key key = {1, 4, 2, true};
    assert_int_equal(lvni_inverse_mass_measure(m, &key, kappa, gamma, scratch), LVN_OK);
    assert_true(s.field[2][0] == 0.001F && s.field[3][0] == 0.02F);
    double sum = 0.0;
    for (size_t i = 0; i < m->n; i++) {
        const double y[4] = {inverse_at(&s, 0, 4 * i), inverse_at(&s, 0, 4 * i + 1),
                             inverse_at(&s, 0, 4 * i + 2), inverse_at(&s, 0, 4 * i + 3)};
        const double size = hypot(gamma[i].re, gamma[i].im),
                     scaled = (size - 0.14049194898307577) / 0.11606233247891737;
        assert_true(fabs(y[0] - gamma[i].re / size * scaled) < 1e-5);
        assert_true(fabs(y[1] - gamma[i].im / size * scaled) < 1e-5);
        assert_true(fabs(inverse_at(&s, 1, i) * 0.02 + 0.001 - kappa[i].re) < 1e-6);
        sum += y[2] + y[3];
    }
    assert_true(fabs(sum / (2.0 * (double)m->n)) < 1e-5);
    /* another sign of the kernel would turn the inversion into noise */
    lvni_inverse_mass_invert(m, gamma, scratch);
    const double scale = (gamma[5].re - gamma[9].re) / (double)(s.field[0][22] - s.field[0][38]);
    for (size_t i = 0; i < m->n; i++) {
        assert_true(fabs(gamma[i].re - gamma[5].re -
                         scale * (double)(s.field[0][4 * i + 2] - s.field[0][22])) < 1e-5);
    }
    lvni_core_free(kappa);
    inverse_sample_free(&s);
    lvn_dataset_destroy(d);
}

/* The shear of both is that of the same kernel and noise. */
TEST(constants_do_the_same_for_any_channels)
{
    lvni_data_inverse_options o[3] = {four(32), four(32), two(32)};
    inverse_sample s[3];
    lvn_dataset *d[3];
    o[1].out_chans = 2;
    o[2].by_constants = true;
    for (int l = 0; l < 3; l++) {
        o[l].kappa_mean = 0.001;
        o[l].kappa_std = 0.02;
        d[l] = inverse_open(&o[l]);
        s[l] = inverse_sample_make(d[l]);
        inverse_get(d[l], 2, 1, 4, true, &s[l]);
        assert_true(s[l].field[2][0] == 0.001F && s[l].field[3][0] == 0.02F);
    }
    assert_memory_equal(s[0].field[0], s[1].field[0], s[0].size[0] * sizeof(float));
    for (size_t i = 0; i < 32 * 32; i++) {
        const float *const y[2] = {s[0].field[0] + 4 * i, s[2].field[0] + 2 * i};
        assert_true(y[0][0] == y[1][0] && y[0][1] == y[1][1]);
        for (int l = 1; l < 3; l++) {
            assert_true(s[l].field[1][2 * i] == s[0].field[1][i]);
            assert_true(s[l].field[1][2 * i + 1] == (float)(-0.001 / 0.02));
        }
    }
    for (int l = 0; l < 3; l++) {
        inverse_sample_free(&s[l]);
        lvn_dataset_destroy(d[l]);
    }
    inverse_check_memory(&o[2]);
}

TEST(masked_pixels_are_0_in_the_measurement)
{
    for (int l = 0; l < 2; l++) {
        lvni_data_inverse_options o = l == 0 ? two(64) : four(64);
        o.random_mask = true;
        lvn_dataset *d = inverse_open(&o);
        const lvni_inverse_mass *m = lvni_inverse_mass_of(d);
        inverse_sample s = inverse_sample_make(d);
        inverse_get(d, 0, 1, 0, true, &s);
        size_t hidden = 0;
        for (size_t i = 0; i < m->n; i++) {
            hidden += m->mask[i] == 0.0;
            for (int c = 0; c < o.in_chans; c++) {
                assert_true((s.field[0][i * (size_t)o.in_chans + (size_t)c] == 0.0F) ==
                            (m->mask[i] == 0.0));
            }
        }
        assert_true(hidden >= m->n / 5 && hidden < m->n / 3);
        inverse_sample_free(&s);
        lvn_dataset_destroy(d);
    }
}

TEST(samples_depend_on_their_key_alone)
{
    lvni_data_inverse_options o = two(16);
    inverse_check_keys(&o);
    o = four(16);
    o.random_mask = true;
    inverse_check_keys(&o);
    inverse_check_memory(&o);
}

TEST(samples_have_the_same_bits_everywhere)
{
    lvni_data_inverse_options o = two(20);
    inverse_check_bits(&o, 0x9a7b0476b2ace805);
    o = four(20);
    o.random_mask = true;
    inverse_check_bits(&o, 0xdf0803f19df3089f);
}

/* ---- truth ---- */

TEST(the_wiener_mean_has_the_stated_variance)
{
    enum { N = 16, MAPS = 500 };
    lvni_data_inverse_options o = two(N);
    o.count = MAPS;
    lvn_dataset *d = inverse_open(&o);
    const lvni_inverse_mass *m = lvni_inverse_mass_of(d);
    lvni_data_complex *kappa = lvni_inverse_mass_work(m);
    double mean[N * N], sample[N * N], ks[N * N], smooth[N * N], v;
    double error = 0.0, of_sample = 0.0, of_ks = 0.0, of_smooth = 0.0;
    assert_int_equal(lvni_data_inverse_posterior_variance(d, &v), LVN_OK);
    for (int64_t i = 0; i < MAPS; i++) {
        const lvn_sample_key key = {1, 0, i, true};
        assert_int_equal(lvni_inverse_mass_measure(m, &key, kappa, kappa + m->n, kappa + 3 * m->n),
                         LVN_OK);
        assert_int_equal(lvni_data_inverse_posterior_mean(d, &key, mean), LVN_OK);
        assert_int_equal(lvni_data_inverse_posterior_sample(d, &key, 0, sample), LVN_OK);
        assert_int_equal(lvni_data_inverse_kaiser_squires(d, &key, 0.0, ks), LVN_OK);
        assert_int_equal(lvni_data_inverse_kaiser_squires(d, &key, LVNI_INVERSE_SMOOTHING, smooth),
                         LVN_OK);
        for (int k = 0; k < N * N; k++) {
            error += pow(mean[k] - kappa[k].re, 2);
            of_sample += pow(sample[k] - kappa[k].re, 2);
            of_ks += pow(ks[k] - kappa[k].re, 2);
            of_smooth += pow(smooth[k] - kappa[k].re, 2);
        }
    }
    const double all = (double)MAPS * N * N;
    assert_true(fabs(error / all / v - 1.0) < 0.02);
    /* an exact sample is as far from the truth as two draws of the posterior are */
    assert_true(fabs(of_sample / all / (2.0 * v) - 1.0) < 0.02);
    assert_true(fabs(of_ks / all / (m->sigma * m->sigma) - 1.0) < 0.02);
    assert_true(of_smooth < 0.2 * of_ks && of_smooth > error);
    lvni_core_free(kappa);
    lvn_dataset_destroy(d);
}

/* The mask leaves the posterior no closed form: samples must spread as far from the mean as the
 * truth does, and a mask that hides nothing changes nothing. */
TEST(the_posterior_behind_a_mask_is_solved_for)
{
    enum { N = 16, MAPS = 200 };
    lvni_data_inverse_options o = two(N);
    o.count = MAPS;
    o.random_mask = true;
    lvn_dataset *d = inverse_open(&o);
    lvni_inverse_mass *m = (lvni_inverse_mass *)d;
    lvni_data_complex *kappa = lvni_inverse_mass_work(m);
    double mean[N * N], sample[N * N], v, error = 0.0, spread = 0.0;
    assert_int_equal(lvni_data_inverse_posterior_variance(d, &v), LVN_ERR_UNSUPPORTED);
    for (int64_t i = 0; i < MAPS; i++) {
        const lvn_sample_key key = {1, 0, i, true};
        assert_int_equal(lvni_inverse_mass_measure(m, &key, kappa, kappa + m->n, kappa + 3 * m->n),
                         LVN_OK);
        assert_int_equal(lvni_data_inverse_posterior_mean(d, &key, mean), LVN_OK);
        assert_int_equal(lvni_data_inverse_posterior_sample(d, &key, 1, sample), LVN_OK);
        for (int k = 0; k < N * N; k++) {
            error += pow(mean[k] - kappa[k].re, 2);
            spread += pow(mean[k] - sample[k], 2);
        }
    }
    assert_true(fabs(error / spread - 1.0) < 0.03);
    for (size_t i = 0; i < m->n; i++) {
        m->mask[i] = 1.0;
    }
    o.random_mask = false;
    lvn_dataset *open_sky = inverse_open(&o);
    const lvn_sample_key key = {1, 0, 3, true};
    assert_int_equal(lvni_data_inverse_posterior_mean(d, &key, mean), LVN_OK);
    assert_int_equal(lvni_data_inverse_posterior_mean(open_sky, &key, sample), LVN_OK);
    for (int k = 0; k < N * N; k++) {
        assert_true(fabs(mean[k] - sample[k]) < 1e-8);
    }
    lvni_core_free(kappa);
    lvn_dataset_destroy(open_sky);
    lvn_dataset_destroy(d);
}

/* ---- folders ---- */

enum { SIDE = 8 };

/* A map as NumPy saves it: float64, in column order when asked. */
static void write_map(const char *path, bool fortran, double (*value)(int r, int c))
{
    char header[128 + SIDE * SIDE * 8];
    const int n =
        snprintf(header + 10, 119, "{'descr': '<f8', 'fortran_order': %s, 'shape': (%d, %d), }",
                 fortran ? "True" : "False", SIDE, SIDE);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(header + 10 + n, ' ', (size_t)(117 - n));
    header[127] = '\n';
    for (int r = 0; r < SIDE; r++) {
        for (int c = 0; c < SIDE; c++) {
            const double v = value(r, c);
            memcpy(header + 128 + 8 * (fortran ? c * SIDE + r : r * SIDE + c), &v, sizeof v);
        }
    }
    images_write_file(path, header, sizeof header);
}

static double slope(int r, int c)
{
    return 0.01 * r - 0.02 * c + (r == c ? 0.1 : 0.0);
}

static double slope_of_b(int r, int c)
{
    return 0.5 * slope(c, r);
}

static double half(int r, int c)
{
    (void)r;
    return c < SIDE / 2 ? 1.0 : 0.0;
}

static double loud_left(int r, int c)
{
    return 0.3 * half(r, c);
}

TEST(maps_of_a_folder_come_sorted_and_keep_their_names)
{
    const char *folder = images_temp_folder();
    write_map(images_path(folder, "kappa_train/b.npy"), false, slope_of_b);
    write_map(images_path(folder, "kappa_train/a.npy"), true, slope);
    images_write_file(images_path(folder, "kappa_train/.hidden"), "x", 1);
    lvni_data_inverse_options o = two(SIDE);
    o.path = folder;
    lvn_dataset *d = inverse_open(&o);
    assert_int_equal(d->cls->length(d), 2);
    assert_string_equal(d->cls->sample_name(d, 0), "a.npy");
    assert_string_equal(d->cls->sample_name(d, 1), "b.npy");
    inverse_sample s = inverse_sample_make(d);
    inverse_get(d, 0, 1, 0, true, &s);
    for (int i = 0; i < SIDE * SIDE; i++) {
        assert_true(fabs(inverse_at(&s, 1, 2 * (size_t)i) * inverse_at(&s, 3, 0) +
                         inverse_at(&s, 2, 0) - slope(i / SIDE, i % SIDE)) < 1e-5);
    }
    const double sigma = lvni_data_inverse_mass_sigma(SIDE);
    assert_true(lvni_inverse_mass_of(d)->sigma == sigma);
    double k[SIDE * SIDE];
    const lvn_sample_key key = {1, 0, 0, true};
    assert_int_equal(lvni_data_inverse_posterior_mean(d, &key, k), LVN_ERR_UNSUPPORTED);
    assert_int_equal(lvni_data_inverse_kaiser_squires(d, &key, 0.0, k), LVN_OK);
    inverse_sample_free(&s);
    lvn_dataset_destroy(d);
    inverse_check_memory(&o);
    /* of a galaxy both components together have the deviation where there is one channel */
    for (int out = 1; out <= 2; out++) {
        o = four(SIDE);
        o.path = folder;
        o.kappa_std = 0.03;
        o.out_chans = out;
        d = inverse_open(&o);
        assert_true(fabs(lvni_inverse_mass_of(d)->sigma - sigma / sqrt(3 - out)) < 1e-15);
        lvn_dataset_destroy(d);
    }
    assert_true(fabs(lvni_data_inverse_mass_sigma(300) / sqrt(2.0) - 0.047767) < 1e-6);
    images_remove_folder(folder);
}

TEST(noise_maps_replace_sigma)
{
    const char *folder = images_temp_folder();
    write_map(images_path(folder, "cosmo/cosmos_mask.npy"), false, half);
    write_map(images_path(folder, "cosmo/cosmos_std1.npy"), true, loud_left);
    write_map(images_path(folder, "cosmo/cosmos_std2.npy"), false, half);
    lvni_data_inverse_options o = two(SIDE);
    char cosmo[512];
    snprintf(cosmo, sizeof cosmo, "%s", images_path(folder, "cosmo"));
    o.cosmo_dir = cosmo;
    lvn_dataset *d = inverse_open(&o);
    const lvni_inverse_mass *m = lvni_inverse_mass_of(d);
    lvni_data_complex *kappa = lvni_inverse_mass_work(m), *gamma = kappa + m->n,
                      *scratch = kappa + 3 * m->n;
    double one = 0.0, both = 0.0;
    for (int64_t i = 0; i < 200; i++) {
        const lvn_sample_key key = {1, 0, i, true};
        assert_int_equal(lvni_inverse_mass_measure(m, &key, kappa, gamma, scratch), LVN_OK);
        lvni_inverse_mass_shear(m, kappa, scratch);
        for (int k = 0; k < SIDE * SIDE; k++) {
            const double a = gamma[k].re - kappa[k].re, b = gamma[k].im - kappa[k].im;
            one += a * a;
            both += b * b;
            assert_true(k % SIDE < SIDE / 2 || (a == 0.0 && b == 0.0));
        }
    }
    assert_true(fabs(sqrt(one / (200.0 * SIDE * SIDE / 2)) - 0.3) < 0.01);
    assert_true(fabs(sqrt(both / (200.0 * SIDE * SIDE / 2)) - 1.0) < 0.03);
    lvni_core_free(kappa);
    lvn_dataset_destroy(d);
    inverse_check_memory(&o);
    o.im_size = 2 * SIDE;
    assert_int_equal(inverse_refuses(&o, "cosmos_mask.npy holds an array of (8, 8); im_size=16"),
                     LVN_ERR_USAGE);
    remove(images_path(folder, "cosmo/cosmos_std2.npy"));
    o.im_size = SIDE;
    assert_int_equal(inverse_refuses(&o, "cosmos_std2.npy"), LVN_ERR_NOT_FOUND);
    images_remove_folder(folder);
}

TEST(what_does_not_fit_is_refused_before_any_work)
{
    const char *folder = images_temp_folder();
    write_map(images_path(folder, "kappa_train/a.npy"), false, slope);
    lvni_data_inverse_options o = two(SIDE);
    o.path = folder;
    o.im_size = 16;
    assert_int_equal(inverse_refuses(&o, "a.npy holds an array of (8, 8); im_size=16"),
                     LVN_ERR_USAGE);
    o.im_size = 15;
    assert_int_equal(inverse_refuses(&o, "im_size=15"), LVN_ERR_USAGE);
    o.im_size = 4;
    assert_int_equal(inverse_refuses(&o, "im_size=4"), LVN_ERR_USAGE);
    o = four(SIDE);
    o.path = folder;
    assert_int_equal(inverse_refuses(&o, "kappa_std=0: in_chans=4 out_chans=1"), LVN_ERR_USAGE);
    o = two(SIDE);
    o.path = folder;
    o.by_constants = true;
    assert_int_equal(inverse_refuses(&o, "kappa_std=0: mass_norm=constants"), LVN_ERR_USAGE);
    o = two(SIDE);
    o.in_chans = 3;
    assert_int_equal(inverse_refuses(&o, "in_chans=3 out_chans=2"), LVN_ERR_USAGE);
    o = two(SIDE);
    o.path = "builtin:radio";
    assert_int_equal(inverse_refuses(&o, "builtin:mass"), LVN_ERR_USAGE);
    o = two(SIDE);
    o.path = folder;
    o.split = LVNI_INVERSE_VAL;
    assert_int_equal(inverse_refuses(&o, "kappa_val"), LVN_ERR_NOT_FOUND);
    o.split = LVNI_INVERSE_TRAIN;
    o.random_mask = true;
    assert_int_equal(inverse_refuses(&o, "data.mask=random"), LVN_ERR_USAGE);
    images_remove_folder(folder);
}

TEST(files_that_are_no_maps_are_named)
{
    const char *folder = images_temp_folder();
    images_write_file(images_path(folder, "kappa_train/a.txt"), "hello", 5);
    write_map(images_path(folder, "kappa_train/b.npy"), false, slope);
    const float other[4] = {1.0F, 2.0F, 3.0F, 4.0F};
    assert_int_equal(lvni_data_npy_write_f32(images_path(folder, "kappa_train/c.npy"), 2,
                                             (const int64_t[]){2, 2}, other),
                     LVN_OK);
    const char *object = "\x93NUMPY\x01\x00\x36\x00{'descr': '|O', 'fortran_order': False, "
                         "'shape': (8, 8)}";
    images_write_file(images_path(folder, "kappa_train/d.npy"), object, 64);
    lvni_data_inverse_options o = two(SIDE);
    o.path = folder;
    lvn_dataset *d = inverse_open(&o);
    inverse_sample s = inverse_sample_make(d);
    const struct {
        const char *name;
        lvn_status status;
    } want[] = {{"a.txt", LVN_ERR_CORRUPT},
                {"b.npy", LVN_OK},
                {"c.npy holds an array of (2, 2)", LVN_ERR_CORRUPT},
                {"d.npy: elements of the type object", LVN_ERR_UNSUPPORTED}};
    for (int i = 0; i < 4; i++) {
        const lvn_sample_key key = {1, 0, i, true};
        void *const fields[4] = {s.field[0], s.field[1], s.field[2], s.field[3]};
        assert_int_equal(d->cls->get(d, &key, fields), want[i].status);
        assert_true(want[i].status == LVN_OK ||
                    strstr(lvn_last_error()->message, want[i].name) != NULL);
    }
    inverse_sample_free(&s);
    lvn_dataset_destroy(d);
    images_remove_folder(folder);
}
