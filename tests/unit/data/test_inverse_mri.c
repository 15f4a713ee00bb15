/* Magnetic resonance: columns, coils and phantoms; what a sample keeps of its measurement; volumes
 * of a folder, with more coils than are wanted. */
#include "core/alloc.h"
#include "data/array.h"
#include "data/inverse/mri.h"
#include "images_support.h"
#include "inverse_support.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lvni_data_inverse_options phantoms(int size, int coils)
{
    return (lvni_data_inverse_options){.experience = LVNI_INVERSE_MRI,
                                       .path = "builtin:mri",
                                       .im_size = size,
                                       .in_chans = 2 * coils,
                                       .out_chans = 2 * coils,
                                       .seed = 3};
}

/* ---- columns, coils, phantoms ---- */

static int count(const double *columns, int from, int to)
{
    int n = 0;
    for (int i = from; i < to; i++) {
        assert_true(columns[i] == 0.0 || columns[i] == 1.0);
        n += columns[i] == 1.0;
    }
    return n;
}

TEST(one_column_of_eight_is_measured)
{
    double columns[512];
    lvni_inverse_mri_columns(384, 8, columns);
    assert_int_equal(count(columns, 0, 384), 48);
    assert_int_equal(count(columns, 184, 201), 17);
    assert_true(columns[1] == 1.0 && columns[182] == 1.0 && columns[204] == 1.0 &&
                columns[363] == 1.0 && columns[0] == 0.0);
    static const int sizes[][2] = {{64, 8}, {64, 4}, {128, 8}, {256, 16}, {320, 4}, {384, 4},
                                   {20, 8}, {9, 3},  {64, 1},  {80, 1},   {81, 1},  {40, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int n = sizes[i][0], middle = n / 16 > 0 ? n / 16 : 1;
        lvni_inverse_mri_columns(n, sizes[i][1], columns);
        assert_int_equal(count(columns, 0, n), n / sizes[i][1]);
        assert_int_equal(count(columns, n / 2 - middle / 2, n / 2 - middle / 2 + middle), middle);
        /* rarer to the sides */
        assert_true(n < 64 || count(columns, 0, n / 4) <= count(columns, n / 4, n / 2));
    }
}

TEST(coil_maps_add_up_to_1)
{
    enum { N = 24, COILS = 5 };
    static lvni_data_complex maps[COILS * N * N];
    lvni_inverse_mri_coils(COILS, N, maps);
    for (int i = 0; i < N * N; i++) {
        double sum = 0.0;
        for (int c = 0; c < COILS; c++) {
            sum += pow(maps[c * N * N + i].re, 2) + pow(maps[c * N * N + i].im, 2);
        }
        assert_true(fabs(sum - 1.0) < 1e-12);
    }
    /* the first coil lies to the right */
    assert_true(hypot(maps[N * N / 2 + N - 1].re, maps[N * N / 2 + N - 1].im) >
                3.0 * hypot(maps[N * N / 2].re, maps[N * N / 2].im));
}

TEST(phantoms_differ_and_end_inside_the_image)
{
    enum { N = 64 };
    static double a[N * N], b[N * N];
    lvni_inverse_random random = {3, LVNI_INVERSE_TRAIN, 0, 0, LVNI_INVERSE_SHAPE};
    lvni_inverse_mri_phantom(&random, N, a);
    random.sample = 1;
    lvni_inverse_mri_phantom(&random, N, b);
    double difference = 0.0, most = 0.0;
    for (int i = 0; i < N * N; i++) {
        difference += fabs(a[i] - b[i]);
        most = a[i] > most ? a[i] : most;
    }
    assert_true(difference / (N * N) > 0.01);
    assert_true(most > 0.7 && most < 1.5); /* the skull, intensity 0.8 to 1.2 */
    assert_true(a[0] == 0.0 && a[N - 1] == 0.0 && a[N * N - 1] == 0.0);
    assert_true(a[N * N / 2 + N / 2] < 0.6); /* less than the skull */
}

/* ---- samples ---- */

/* Coil c of field f in its own units. */
static void coil(const inverse_sample *s, int f, int coils, int c, lvni_data_complex *out)
{
    const double mean = f == 5 ? 0.0 : inverse_at(s, 2, 0),
                 std = f == 5 ? 1.0 : inverse_at(s, 3, 0);
    const size_t n = s->size[f] / (size_t)(2 * coils);
    for (size_t i = 0; i < n; i++) {
        const size_t at = i * (size_t)(2 * coils) + (size_t)c;
        out[i] = (lvni_data_complex){inverse_at(s, f, at) * std + mean,
                                     inverse_at(s, f, at + (size_t)coils) * std + mean};
    }
}

TEST(the_measurement_keeps_the_measured_columns)
{
    enum { N = 64, COILS = 4 };
    const lvni_data_inverse_options o = phantoms(N, COILS);
    lvn_dataset *d = inverse_open(&o);
    assert_int_equal(d->cls->length(d), 256);
    inverse_sample s = inverse_sample_make(d);
    assert_int_equal(s.n_fields, 6);
    lvni_data_fourier *f;
    assert_int_equal(lvni_data_fourier_create(N, N, &f), LVN_OK);
    static lvni_data_complex x[N * N], y[N * N];
    lvni_data_complex *scratch = calloc(lvni_data_fourier_scratch(f), sizeof *scratch);
    double noise = 0.0, elsewhere = 0.0, missed = 0.0, values = 0.0, squares = 0.0;
    int measured = 0;
    inverse_get(d, 3, 1, 0, true, &s);
    for (int c = 0; c < COILS; c++) {
        coil(&s, 0, COILS, c, y);
        coil(&s, 1, COILS, c, x);
        lvni_data_fourier_centred(f, false, x, scratch);
        lvni_data_fourier_centred(f, false, y, scratch);
        for (int i = 0; i < N * N; i++) {
            if (s.field[4][i % N] == 1.0F) {
                noise += pow(x[i].re - y[i].re, 2) + pow(x[i].im - y[i].im, 2);
                measured += 2;
            } else {
                assert_true(s.field[4][i % N] == 0.0F);
                elsewhere += pow(y[i].re, 2) + pow(y[i].im, 2);
                missed += pow(x[i].re, 2) + pow(x[i].im, 2);
            }
        }
    }
    for (size_t i = 0; i < s.size[0]; i++) {
        values += inverse_at(&s, 0, i);
        squares += pow(inverse_at(&s, 0, i), 2);
    }
    assert_int_equal(measured, 2 * COILS * N * N / 8);
    assert_true(fabs(sqrt(noise / measured) / 0.005 - 1.0) < 0.03);
    assert_true(sqrt(elsewhere) < 1e-5 * sqrt(missed) && missed > 1.0);
    assert_true(fabs(values / (double)s.size[0]) < 1e-5);
    assert_true(fabs(squares / (double)(s.size[0] - 1) - 1.0) < 1e-5);
    lvni_data_fourier_destroy(f);
    free(scratch);
    inverse_sample_free(&s);
    lvn_dataset_destroy(d);
}

TEST(maps_of_a_sample_join_its_coils)
{
    enum { N = 32, COILS = 3 };
    const lvni_data_inverse_options o = phantoms(N, COILS);
    lvn_dataset *d = inverse_open(&o);
    inverse_sample s = inverse_sample_make(d);
    static lvni_data_complex x[COILS][N * N], maps[COILS][N * N];
    static double image[N * N];
    inverse_get(d, 2, 1, 0, true, &s);
    for (int c = 0; c < COILS; c++) {
        coil(&s, 1, COILS, c, x[c]);
        coil(&s, 5, COILS, c, maps[c]);
    }
    const lvni_inverse_random random = {3, LVNI_INVERSE_TRAIN, 0, 2, LVNI_INVERSE_SHAPE};
    lvni_inverse_mri_phantom(&random, N, image);
    for (int i = 0; i < N * N; i++) {
        double re = 0.0, im = 0.0, sum = 0.0;
        for (int c = 0; c < COILS; c++) {
            const lvni_data_complex m = maps[c][i], v = x[c][i];
            re += m.re * v.re + m.im * v.im;
            im += m.re * v.im - m.im * v.re;
            sum += m.re * m.re + m.im * m.im;
        }
        assert_true(fabs(sum - 1.0) < 1e-5);
        assert_true(fabs(re - image[i]) < 1e-5 && fabs(im) < 1e-5);
    }
    inverse_sample_free(&s);
    lvn_dataset_destroy(d);
}

TEST(samples_depend_on_their_key_alone)
{
    lvni_data_inverse_options o = phantoms(16, 2);
    inverse_check_keys(&o);
    o.acceleration = 4;
    lvn_dataset *d = inverse_open(&o);
    inverse_sample s = inverse_sample_make(d);
    inverse_get(d, 0, 0, 0, true, &s);
    double on = 0.0;
    for (int i = 0; i < 16; i++) {
        on += inverse_at(&s, 4, (size_t)i);
    }
    assert_true(on == 4.0);
    inverse_sample_free(&s);
    lvn_dataset_destroy(d);
    inverse_check_memory(&o);
}

TEST(samples_have_the_same_bits_everywhere)
{
    const lvni_data_inverse_options o = phantoms(20, 3);
    inverse_check_bits(&o, 0x88abf2fb5a008116);
}

/* ---- volumes ---- */

enum { ROWS = 20, COLS = 26, SIDE = 16, SLICES = 9 };

/* Image of a coil of a slice: smooth, so that the third is a combination of the first two. */
static lvni_data_complex pixel(int slice, int c, int r, int k)
{
    const int down = r - ROWS / 2, right = k - COLS / 2;
    const double y = down * 0.2, x = right * 0.15;
    const double body = exp(-x * x - y * y) * (1.0 + 0.1 * slice);
    const lvni_data_complex first = {body * (1.0 + 0.2 * x), body * 0.1 * y},
                            second = {0.5 * body * (1.0 - 0.3 * y), -0.4 * body};
    if (c < 2) {
        return c == 0 ? first : second;
    }
    return (lvni_data_complex){0.3 * first.re - 0.2 * second.im, 0.3 * first.im + 0.2 * second.re};
}

static void write_volume(const char *path, int slices, int coils)
{
    const size_t plane = (size_t)ROWS * COLS;
    float *all = malloc((size_t)(slices * coils) * plane * 2 * sizeof *all), *at = all;
    lvni_data_fourier *f;
    assert_int_equal(lvni_data_fourier_create(ROWS, COLS, &f), LVN_OK);
    lvni_data_complex *x = malloc(plane * sizeof *x),
                      *scratch = malloc(lvni_data_fourier_scratch(f) * sizeof *scratch);
    for (int s = 0; s < slices; s++) {
        for (int c = 0; c < coils; c++) {
            for (int i = 0; i < ROWS * COLS; i++) {
                x[i] = pixel(s, c, i / COLS, i % COLS);
            }
            lvni_data_fourier_centred(f, false, x, scratch);
            for (size_t i = 0; i < plane; i++) {
                *at++ = (float)x[i].re;
                *at++ = (float)x[i].im;
            }
        }
    }
    images_write_file(path, "", 0); /* makes the folder */
    assert_int_equal(lvni_data_npy_write(path, LVNI_ARRAY_C64, 4,
                                         (const int64_t[]){slices, coils, ROWS, COLS}, all),
                     LVN_OK);
    lvni_data_fourier_destroy(f);
    free(all);
    free(x);
    free(scratch);
}

TEST(slices_are_cut_from_the_middle)
{
    const char *folder = images_temp_folder();
    write_volume(images_path(folder, "multicoil_train/b.npy"), SLICES, 3);
    write_volume(images_path(folder, "multicoil_train/a.npy"), 2, 3);
    lvni_data_inverse_options o = phantoms(SIDE, 3);
    o.path = folder;
    lvn_dataset *d = inverse_open(&o);
    assert_int_equal(d->cls->length(d), 2 + 8); /* at most 8 of a volume */
    assert_string_equal(d->cls->sample_name(d, 1), "a.npy slice 1");
    assert_string_equal(d->cls->sample_name(d, 2), "b.npy slice 0");
    inverse_sample s = inverse_sample_make(d);
    inverse_get(d, 5, 1, 0, true, &s); /* slice 3 of b */
    static lvni_data_complex x[SIDE * SIDE], maps[3][SIDE * SIDE];
    for (int c = 0; c < 3; c++) {
        coil(&s, 1, 3, c, x);
        coil(&s, 5, 3, c, maps[c]);
        for (int i = 0; i < SIDE * SIDE; i++) {
            const lvni_data_complex want = pixel(3, c, 2 + i / SIDE, 5 + i % SIDE);
            assert_true(hypot(x[i].re - want.re, x[i].im - want.im) < 1e-5);
        }
    }
    for (int i = 0; i < SIDE * SIDE; i++) {
        double sum = 0.0;
        for (int c = 0; c < 3; c++) {
            sum += pow(maps[c][i].re, 2) + pow(maps[c][i].im, 2);
        }
        assert_true(fabs(sum - 1.0) < 1e-5);
    }
    inverse_sample_free(&s);
    lvn_dataset_destroy(d);
    inverse_check_memory(&o);
    images_remove_folder(folder);
}

/* Python's random.seed(1000) and random.shuffle, of lists of 3, 10 and 20, and round(0.3 n). */
TEST(the_draw_of_volumes_is_that_of_rcgan)
{
    static const struct {
        int n, drawn[7]; /* one behind the last */
    } want[] = {{3, {2}}, {10, {4, 5, 7}}, {20, {0, 1, 4, 10, 16, 17}}};
    static const int number[][2] = {{0, 0}, {1, 0}, {5, 2}, {15, 4}, {25, 8}, {35, 10}};
    bool drawn[64];
    for (int k = 0; k < 3; k++) {
        assert_int_equal(lvni_inverse_mri_draw(want[k].n, drawn), LVN_OK);
        for (int i = 0, at = 0; i < want[k].n; i++) {
            assert_int_equal(drawn[i], i == want[k].drawn[at]);
            at += drawn[i] ? 1 : 0;
        }
    }
    for (size_t k = 0; k < sizeof number / sizeof *number; k++) {
        int sum = 0;
        assert_int_equal(lvni_inverse_mri_draw(number[k][0], drawn), LVN_OK);
        for (int i = 0; i < number[k][0]; i++) {
            sum += drawn[i];
        }
        assert_int_equal(sum, number[k][1]);
    }
}

TEST(volumes_of_rcgan_have_more_coils)
{
    const char *folder = images_temp_folder();
    /* without a: b .. k are 10, of which f, g and i are drawn; f has too few coils */
    for (int c = 'a'; c <= 'k'; c++) {
        char name[32];
        snprintf(name, sizeof name, "multicoil_val/%c.npy", c);
        write_volume(images_path(folder, name), 1, c == 'f' ? 2 : 3);
        snprintf(name, sizeof name, "multicoil_train/%c.npy", c);
        if (c < 'd') {
            write_volume(images_path(folder, name), 1, c == 'b' ? 2 : 3);
        }
    }
    lvni_data_inverse_options o = phantoms(SIDE, 2);
    o.path = folder;
    static const struct {
        lvni_data_inverse_split split;
        bool as_rcgan;
        int n;
        const char *first;
    } want[] = {{LVNI_INVERSE_VAL, false, 11, "a.npy slice 0"},
                {LVNI_INVERSE_VAL, true, 2, "g.npy slice 0"},
                {LVNI_INVERSE_TRAIN, false, 3, "a.npy slice 0"},
                {LVNI_INVERSE_TRAIN, true, 1, "c.npy slice 0"}};
    for (int k = 0; k < 4; k++) {
        o.split = want[k].split;
        o.as_rcgan = want[k].as_rcgan;
        lvn_dataset *d = inverse_open(&o);
        assert_int_equal(d->cls->length(d), want[k].n);
        assert_string_equal(d->cls->sample_name(d, 0), want[k].first);
        lvn_dataset_destroy(d);
    }
    o.split = LVNI_INVERSE_VAL;
    inverse_check_memory(&o);
    o = phantoms(SIDE, 3);
    o.path = folder;
    o.as_rcgan = true;
    assert_int_equal(inverse_refuses(&o, "3 files volumes=rcgan takes none"), LVN_ERR_USAGE);
    images_remove_folder(folder);
}

/* Three coils of rank two: two combinations hold all of the signal, the stronger one first. */
TEST(more_coils_are_combined)
{
    const char *folder = images_temp_folder();
    write_volume(images_path(folder, "multicoil_val/a.npy"), 1, 3);
    lvni_data_inverse_options o = phantoms(SIDE, 2);
    o.path = folder;
    o.split = LVNI_INVERSE_VAL;
    lvn_dataset *d = inverse_open(&o);
    inverse_sample s = inverse_sample_make(d);
    inverse_get(d, 0, 1, 0, true, &s);
    static lvni_data_complex x[2][SIDE * SIDE];
    double of[2] = {0.0, 0.0}, want = 0.0, cross_re = 0.0, cross_im = 0.0;
    for (int c = 0; c < 2; c++) {
        coil(&s, 1, 2, c, x[c]);
        for (int i = 0; i < SIDE * SIDE; i++) {
            of[c] += pow(x[c][i].re, 2) + pow(x[c][i].im, 2);
        }
    }
    for (int i = 0; i < SIDE * SIDE; i++) {
        cross_re += x[0][i].re * x[1][i].re + x[0][i].im * x[1][i].im;
        cross_im += x[0][i].re * x[1][i].im - x[0][i].im * x[1][i].re;
        for (int c = 0; c < 3; c++) {
            const lvni_data_complex v = pixel(0, c, 2 + i / SIDE, 5 + i % SIDE);
            want += v.re * v.re + v.im * v.im;
        }
    }
    assert_true(fabs((of[0] + of[1]) / want - 1.0) < 1e-5);
    assert_true(of[0] > of[1] && of[1] > 0.0);
    assert_true(hypot(cross_re, cross_im) < 1e-4 * of[0]);
    inverse_sample_free(&s);
    lvn_dataset_destroy(d);
    images_remove_folder(folder);
}

TEST(maps_come_from_their_files)
{
    const char *folder = images_temp_folder();
    char maps[512];
    snprintf(maps, sizeof maps, "%s", images_path(folder, "maps"));
    write_volume(images_path(folder, "small_T2_test/a.npy"), 2, 3);
    lvni_data_inverse_options o = phantoms(SIDE, 3);
    o.path = folder;
    o.split = LVNI_INVERSE_TEST;
    o.maps_path = maps;
    assert_int_equal(inverse_refuses(&o, "maps/a.npy"), LVN_ERR_NOT_FOUND);
    static float values[2 * 2 * 3 * SIDE * SIDE];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        values[i] = (float)i;
    }
    images_write_file(images_path(folder, "maps/a.npy"), "", 0);
    assert_int_equal(lvni_data_npy_write(images_path(folder, "maps/a.npy"), LVNI_ARRAY_C64, 4,
                                         (const int64_t[]){2, 2, SIDE, SIDE}, values),
                     LVN_OK);
    assert_int_equal(inverse_refuses(&o, "maps are complex64 of (2, 3, 16, 16)"), LVN_ERR_USAGE);
    assert_int_equal(lvni_data_npy_write(images_path(folder, "maps/a.npy"), LVNI_ARRAY_C64, 4,
                                         (const int64_t[]){2, 3, SIDE, SIDE}, values),
                     LVN_OK);
    lvn_dataset *d = inverse_open(&o);
    inverse_sample s = inverse_sample_make(d);
    inverse_get(d, 1, 1, 0, true, &s);
    static lvni_data_complex map[SIDE * SIDE];
    coil(&s, 5, 3, 2, map);
    assert_true(map[7].re == 2.0 * ((3 + 2) * SIDE * SIDE + 7) &&
                map[7].im == 2.0 * ((3 + 2) * SIDE * SIDE + 7) + 1.0);
    inverse_sample_free(&s);
    lvn_dataset_destroy(d);
    images_remove_folder(folder);
}

TEST(what_does_not_fit_is_refused_before_any_work)
{
    const char *folder = images_temp_folder();
    write_volume(images_path(folder, "multicoil_train/a.npy"), 1, 2);
    lvni_data_inverse_options o = phantoms(SIDE, 3);
    o.path = folder;
    assert_int_equal(inverse_refuses(&o, "a.npy has 2 coils: in_chans=6 needs 3"), LVN_ERR_USAGE);
    o = phantoms(24, 2);
    o.path = folder;
    assert_int_equal(inverse_refuses(&o, "a.npy: slices of 20 x 26 are smaller than im_size=24"),
                     LVN_ERR_USAGE);
    o.split = LVNI_INVERSE_VAL;
    assert_int_equal(inverse_refuses(&o, "multicoil_val"), LVN_ERR_NOT_FOUND);
    o = phantoms(SIDE, 2);
    o.path = folder;
    images_write_file(images_path(folder, "multicoil_train/b.h5"), "HDF5", 4);
    assert_int_equal(inverse_refuses(&o, "b.h5: not a .npy file"), LVN_ERR_CORRUPT);
    const float flat[4] = {0.0F};
    assert_int_equal(lvni_data_npy_write_f32(images_path(folder, "multicoil_train/a.npy"), 1,
                                             (const int64_t[]){4}, flat),
                     LVN_OK);
    assert_int_equal(inverse_refuses(&o, "a.npy holds (4) of float32"), LVN_ERR_USAGE);
    o = phantoms(SIDE, 2);
    o.out_chans = 2;
    assert_int_equal(inverse_refuses(&o, "in_chans=4 out_chans=2"), LVN_ERR_USAGE);
    o = phantoms(SIDE, 2);
    o.acceleration = 17;
    assert_int_equal(inverse_refuses(&o, "acceleration of 17"), LVN_ERR_USAGE);
    o = phantoms(SIDE, 2);
    o.calib_width = 17;
    assert_int_equal(inverse_refuses(&o, "calib_width=17"), LVN_ERR_USAGE);
    o = phantoms(SIDE, 2);
    o.maps_path = "maps";
    assert_int_equal(inverse_refuses(&o, "coil maps of its own"), LVN_ERR_USAGE);
    images_remove_folder(folder);
}
