/* Two-dimensional Fourier transforms: every kind of size against the sum of the definition. */
#include "data/fourier.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void fill(lvni_data_complex *x, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] = (lvni_data_complex){sin(1.7 * i + 0.3 * i * i), cos(2.9 * i) - 0.2};
    }
}

static double distance(const lvni_data_complex *a, const lvni_data_complex *b, int n)
{
    double most = 0.0;
    for (int i = 0; i < n; i++) {
        const double d = hypot(a[i].re - b[i].re, a[i].im - b[i].im);
        most = d > most ? d : most;
    }
    return most;
}

/* Frequencies and positions counted from the origin. */
static void direct(int rows, int cols, int origin_row, int origin_col, const lvni_data_complex *x,
                   lvni_data_complex *out)
{
    const double two_pi = 6.283185307179586476925;
    for (int u = 0; u < rows; u++) {
        for (int v = 0; v < cols; v++) {
            double re = 0.0, im = 0.0;
            for (int r = 0; r < rows; r++) {
                for (int c = 0; c < cols; c++) {
                    const double a = -two_pi * ((double)(u - origin_row) * (r - origin_row) / rows +
                                                (double)(v - origin_col) * (c - origin_col) / cols);
                    const lvni_data_complex s = x[r * cols + c];
                    re += s.re * cos(a) - s.im * sin(a);
                    im += s.re * sin(a) + s.im * cos(a);
                }
            }
            out[u * cols + v] = (lvni_data_complex){re, im};
        }
    }
}

typedef struct buffers {
    lvni_data_fourier *f;
    lvni_data_complex *x, *y, *want, *scratch;
    int n;
} buffers;

static buffers make(int rows, int cols)
{
    buffers b = {.n = rows * cols};
    assert_int_equal(lvni_data_fourier_create(rows, cols, &b.f), 0);
    b.x = calloc((size_t)b.n, sizeof *b.x);
    b.y = calloc((size_t)b.n, sizeof *b.y);
    b.want = calloc((size_t)b.n, sizeof *b.want);
    /* exactly that much: the sanitizer sees more */
    b.scratch = calloc(lvni_data_fourier_scratch(b.f), sizeof *b.scratch);
    fill(b.x, b.n);
    memcpy(b.y, b.x, (size_t)b.n * sizeof *b.x);
    return b;
}

static void drop(buffers *b)
{
    lvni_data_fourier_destroy(b->f);
    free(b->x);
    free(b->y);
    free(b->want);
    free(b->scratch);
}

static const int sizes[][2] = {{1, 1},   {1, 7},  {2, 3},   {4, 5},   {8, 8},   {15, 16}, {25, 9},
                               {12, 18}, {20, 6}, {49, 11}, {13, 32}, {30, 30}, {64, 24}, {1, 97}};

TEST(transforms_equal_the_definition)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        buffers b = make(sizes[i][0], sizes[i][1]);
        direct(sizes[i][0], sizes[i][1], 0, 0, b.x, b.want);
        lvni_data_fourier_forward(b.f, b.y, b.scratch);
        assert_true(distance(b.y, b.want, b.n) < 1e-11 * b.n);
        lvni_data_fourier_inverse(b.f, b.y, b.scratch);
        assert_true(distance(b.y, b.x, b.n) < 1e-13 * b.n);
        drop(&b);
    }
}

TEST(centred_transforms_are_orthonormal)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int rows = sizes[i][0], cols = sizes[i][1];
        buffers b = make(rows, cols);
        direct(rows, cols, rows / 2, cols / 2, b.x, b.want);
        for (int k = 0; k < b.n; k++) {
            b.want[k].re /= sqrt(b.n);
            b.want[k].im /= sqrt(b.n);
        }
        lvni_data_fourier_centred(b.f, false, b.y, b.scratch);
        assert_true(distance(b.y, b.want, b.n) < 1e-11 * b.n);
        lvni_data_fourier_centred(b.f, true, b.y, b.scratch);
        assert_true(distance(b.y, b.x, b.n) < 1e-13 * b.n);
        drop(&b);
    }
}

TEST(sizes_of_the_workload_come_back)
{
    static const int sides[] = {300, 384, 360, 256, 509};
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        buffers b = make(sides[i], sides[i]);
        lvni_data_fourier_forward(b.f, b.y, b.scratch);
        lvni_data_fourier_inverse(b.f, b.y, b.scratch);
        assert_true(distance(b.y, b.x, b.n) < 1e-12);
        drop(&b);
    }
}

TEST(impossible_sizes_are_refused)
{
    lvni_data_fourier *f;
    assert_int_equal(lvni_data_fourier_create(0, 4, &f), LVN_ERR_INVALID);
    assert_int_equal(lvni_data_fourier_create(4, 20000, &f), LVN_ERR_INVALID);
    assert_null(f);
}
