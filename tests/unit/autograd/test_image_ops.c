/* Ops on images, beyond the rows of test_gradients: transposed convolution in bf16, Fourier
 * transforms and back, positions that are nowhere, max pooling over large windows. */
#include "gradient_support.h"

#include "core/math.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

static double value(const lvn_tensor *t, int64_t e)
{
    return lvn_tensor_dtype(t) == LVN_BF16
               ? (double)lvni_core_bf16_to_f32(((const uint16_t *)lvn_const_data(t))[e])
               : element(t, e);
}

/* |a - b| <= tolerance * largest b */
static void assert_close(const char *what, const lvn_tensor *a, const lvn_tensor *b,
                         double tolerance)
{
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(lvn_numel(a), lvn_numel(b));
    const double most = largest(b);
    for (int64_t e = 0; e < lvn_numel(b); e++) {
        if (!(fabs(value(a, e) - element(b, e)) <= tolerance * most)) {
            fail_msg("%s, element %d: %g instead of %g", what, (int)e, value(a, e), element(b, e));
        }
    }
}

static void set_element(lvn_tensor *t, int64_t e, double to)
{
    if (lvn_tensor_dtype(t) == LVN_F64) {
        ((double *)lvn_data(t))[e] = to;
    } else {
        ((float *)lvn_data(t))[e] = (float)to;
    }
}

static const dims upsampled[] = {S(2, 5, 6, 8), S(8, 2, 2, 130), S(130)};

/* Leaves in f32 and their gradients; the result is the caller's to release. */
static lvn_tensor *upsample(lvn_tensor *in[3])
{
    for (int i = 0; i < 3; i++) {
        in[i] = make_leaf(LVN_F32, 1u + (uint64_t)i, &upsampled[i], NORMAL);
    }
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *y = lvn_keep(lvn_conv_transpose2d(in[0], in[1], in[2], .stride = 2));
    assert_int_equal(lvn_backward(lvn_mean(lvn_square(y))), LVN_OK);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    return y;
}

TEST(transposed_convolution_in_bf16)
{
    static const char *const names[] = {"dx", "dw", "db"};
    if (!lvni_cpu_has_bf16()) {
        skip();
    }
    lvn_tensor *full[3], *low[3], *y = upsample(full);
    lvni_tensor_ctx_get()->low = LVN_BF16;
    lvn_tensor *y_low = upsample(low);
    lvni_tensor_ctx_get()->low = LVN_F32;
    assert_int_equal(lvn_tensor_dtype(y_low), LVN_BF16);
    assert_close("y", y_low, y, 0x1p-7);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(lvn_tensor_dtype(lvn_gradient(low[i])), LVN_F32);
        assert_close(names[i], lvn_gradient(low[i]), lvn_gradient(full[i]), 0x1p-6);
        lvn_release(full[i]);
        lvn_release(low[i]);
    }
    lvn_release(y);
    lvn_release(y_low);
}

/* Every norm, centered or not, even and odd sizes: the inverse leads back, and ortho keeps the
 * length. */
TEST(fourier_and_back)
{
    static const dims shapes[] = {S(2, 8, 12, 2), S(3, 7, 5, 2), S(1, 6, 31, 2)};
    for (int i = 0; i < 18; i++) {
        const lvn_fft_norm norm = (lvn_fft_norm)(i % 3);
        const bool centered = i / 3 % 2 != 0;
        lvn_tensor *x = make_leaf(LVN_F32, 5, &shapes[i / 6], NORMAL);
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *line = lvn_fft(x, .norm = norm, .centered = centered),
                   *plane = lvn_fft2(x, .norm = norm, .centered = centered);
        assert_close("line", lvn_ifft(line, .norm = norm, .centered = centered), x, 1e-6);
        assert_close("plane", lvn_ifft2(plane, .norm = norm, .centered = centered), x, 1e-6);
        if (norm == LVN_FFT_ORTHO) {
            const double before = lvn_item(lvn_sum(lvn_square(x))),
                         after = lvn_item(lvn_sum(lvn_square(plane)));
            assert_true(fabs(before - after) < 1e-5 * before);
        }
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvn_release(x);
    }
}

/* One pixel of 8 channels; two channels stay. */
TEST(pixel_shuffle_by_hand)
{
    static const double shuffled[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* (0, 0), (0, 1), (1, 0), (1, 1) */
    const dims pixel = S(1, 1, 1, 8);
    lvn_tensor *x = make_constant(LVN_F32, 1, pixel.ndim, pixel.size);
    for (int c = 0; c < 8; c++) {
        ((float *)lvn_data(x))[c] = (float)c;
    }
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *y = lvn_pixel_shuffle(x, 2), *back = lvn_pixel_unshuffle(y, 2);
    assert_non_null(back);
    assert_int_equal(lvn_size(y, 1), 2);
    assert_int_equal(lvn_size(y, 2), 2);
    for (int e = 0; e < 8; e++) {
        assert_true(element(y, e) == shuffled[e] && element(back, e) == (double)e);
    }
    assert_null(lvn_pixel_shuffle(x, 3));
    assert_int_equal(lvn_scope_close(), LVN_ERR_SHAPE);
    assert_error_has("x is (1, 1, 1, 8), the factor 3; x must have 4 axes (batch, height, width, "
                     "channels) and a multiple of factor * factor");
    lvn_release(x);
}

/* Positions that are nowhere: 0, or the first pixel; and far outside: 0, the border, mirrored. */
TEST(positions_that_are_nowhere)
{
    static const lvn_sample_padding paddings[] = {LVN_SAMPLE_ZEROS, LVN_SAMPLE_BORDER,
                                                  LVN_SAMPLE_REFLECTION};
    static const double at[] = {(double)NAN, (double)INFINITY, -1e30, 1e30, 5.0};
    /* columns 1, 2, 3, 4; mirrored three times, 5 lies on the right border */
    static const double want[3][5] = {{0, 0, 0, 0, 0}, {1, 4, 1, 4, 4}, {1, 1, 1, 1, 4}};
    for (int type = 0; type < 2; type++) {
        const lvn_dtype dtype = type == 0 ? LVN_F64 : LVN_F32;
        lvn_tensor *x = make_constant(dtype, 1, LVN_SHAPE(1, 1, 4, 1)),
                   *grid = make_constant(dtype, 2, LVN_SHAPE(1, 1, 1, 2));
        for (int i = 0; i < 4; i++) {
            set_element(x, i, 1.0 + i);
        }
        for (int i = 0; i < 30; i++) {
            const int p = i / 10, k = i / 2 % 5;
            set_element(grid, 0, at[k]);
            set_element(grid, 1, 0.0);
            assert_int_equal(lvn_scope_open(), LVN_OK);
            lvn_tensor *y =
                lvn_grid_sample(x, grid, .padding = paddings[p],
                                .mode = i % 2 == 0 ? LVN_SAMPLE_BILINEAR : LVN_SAMPLE_NEAREST);
            assert_non_null(y);
            const double have = element(y, 0);
            /* 1e30 mirrored lies somewhere in the image */
            const bool good =
                p == 2 && (k == 2 || k == 3) ? have >= 1.0 && have <= 4.0 : have == want[p][k];
            if (!good) {
                fail_msg("padding %d, position %g: %g", p, at[k], have);
            }
            assert_int_equal(lvn_scope_close(), LVN_OK);
        }
        lvn_release(x);
        lvn_release(grid);
    }
}

/* ---- max pooling over windows that take two passes, against one loop over each window ---- */

typedef struct pooling {
    dims x;
    int kernel, stride, padding;
} pooling;

/* Few values, so that nearly every window has its maximum several times, zeros of both signs, and
 * `nans` of 1000 NaN. */
static void fill_with_ties(lvn_tensor *x, uint32_t nans)
{
    uint32_t state = 12345;
    float *to = lvn_data(x);
    for (int64_t e = 0; e < lvn_numel(x); e++) {
        state = state * 1664525u + 1013904223u;
        const uint32_t draw = state >> 16;
        to[e] =
            draw % 1000 < nans ? NAN : copysignf((float)(draw % 3), draw % 2 != 0 ? 1.0f : -1.0f);
    }
}

/* The first of the greatest, NaN being the greatest, of the window of output (n, i, j, c); an index
 * into x. */
static int64_t first_greatest(const pooling *p, const float *x, const int64_t at[4])
{
    const int64_t h = p->x.size[1], w = p->x.size[2], top = at[1] * p->stride - p->padding,
                  left = at[2] * p->stride - p->padding;
    int64_t best = -1;
    for (int64_t i = top < 0 ? 0 : top; i < top + p->kernel && i < h; i++) {
        for (int64_t j = left < 0 ? 0 : left; j < left + p->kernel && j < w; j++) {
            const int64_t e = ((at[0] * h + i) * w + j) * p->x.size[3] + at[3];
            if (best < 0 || x[e] > x[best] || (isnan(x[e]) && !isnan(x[best]))) {
                best = e;
            }
        }
    }
    return best;
}

static void check_pooling(const pooling *p, lvn_tensor *x, const lvn_tensor *y,
                          const lvn_tensor *dy)
{
    static float wanted[16384];
    const float *from = lvn_const_data(x), *out = lvn_const_data(y), *g = lvn_const_data(dy),
                *dx = lvn_const_data(lvn_gradient(x));
    const int64_t rows = lvn_size(y, 1), columns = lvn_size(y, 2), c = lvn_size(y, 3);
    assert_int_equal(rows, (p->x.size[1] + 2 * (int64_t)p->padding - p->kernel) / p->stride + 1);
    assert_int_equal(columns, (p->x.size[2] + 2 * (int64_t)p->padding - p->kernel) / p->stride + 1);
    assert_true(lvn_numel(x) <= (int64_t)(sizeof wanted / sizeof *wanted));
    memset(wanted, 0, sizeof wanted);
    for (int64_t e = 0; e < lvn_numel(y); e++) {
        const int64_t at[4] = {e / (rows * columns * c), e / (columns * c) % rows, e / c % columns,
                               e % c};
        const int64_t best = first_greatest(p, from, at);
        const bool same = isnan(from[best])
                              ? isnan(out[e])
                              : out[e] == from[best] && signbit(out[e]) == signbit(from[best]);
        if (!same) {
            fail_msg("kernel %d, stride %d, padding %d, element %d: %g instead of %g", p->kernel,
                     p->stride, p->padding, (int)e, (double)out[e], (double)from[best]);
        }
        wanted[best] += g[e];
    }
    for (int64_t e = 0; e < lvn_numel(x); e++) { /* sums of small integers are exact in any order */
        if (dx[e] != wanted[e]) {
            fail_msg("kernel %d, stride %d, padding %d, gradient of %d: %g instead of %g",
                     p->kernel, p->stride, p->padding, (int)e, (double)dx[e], (double)wanted[e]);
        }
    }
}

TEST(max_pooling_over_large_windows)
{
    static const pooling rows[] = {{S(1, 30, 33, 3), 17, 1, 0},  {S(2, 40, 43, 2), 17, 5, 8},
                                   {S(1, 21, 50, 5), 20, 7, 10}, {S(2, 17, 17, 19), 17, 17, 0},
                                   {S(1, 63, 60, 1), 18, 25, 3}, {S(1, 64, 70, 1), 64, 3, 32}};
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const pooling *p = &rows[i / 2];
        lvn_tensor *x = make_leaf(LVN_F32, 1, &p->x, NORMAL);
        fill_with_ties(x, i % 2 == 0 ? 0 : 5);
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *y = lvn_max_pool2d(x, p->kernel, .stride = p->stride, .padding = p->padding);
        if (y == NULL) {
            fail_msg("%s", lvn_last_error()->message);
            return;
        }
        lvn_tensor *dy = make_constant(
            LVN_F32, 1, 4,
            (const int64_t[]){lvn_size(y, 0), lvn_size(y, 1), lvn_size(y, 2), lvn_size(y, 3)});
        for (int64_t e = 0; e < lvn_numel(dy); e++) {
            ((float *)lvn_data(dy))[e] = (float)(e % 7 - 2);
        }
        assert_int_equal(lvn_backward(lvn_sum(lvn_mul(y, dy))), LVN_OK);
        check_pooling(p, x, y, dy);
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvn_release(dy);
        lvn_release(x);
    }
}
