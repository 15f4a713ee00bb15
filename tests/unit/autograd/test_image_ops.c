/* Ops on images, beyond the rows of test_gradients: transposed convolution in bf16, Fourier transforms and back. */
#include "gradient_support.h"

#include "core/half.h"
#include "kernels/kernels.h"

#include <math.h>

static double value(const lvn_tensor *t, int64_t e)
{
    return lvn_tensor_dtype(t) == LVN_BF16 ? (double)lvni_bf16_to_f32(((const uint16_t *)lvn_const_data(t))[e]) : element(t, e);
}

/* |a - b| <= tolerance * largest b */
static void assert_close(const char *what, const lvn_tensor *a, const lvn_tensor *b, double tolerance)
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

static void transposed_convolution_in_bf16(void **state)
{
    (void)state;
    static const char *const names[] = {"dx", "dw", "db"};
    if (!lvni_cpu_has_bf16()) {
        skip();
    }
    lvn_tensor *full[3], *low[3], *y = upsample(full);
    lvni_ctx_get()->low = LVN_BF16;
    lvn_tensor *y_low = upsample(low);
    lvni_ctx_get()->low = LVN_F32;
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

/* Every norm, centered or not, even and odd sizes: the inverse leads back, and ortho keeps the length. */
static void fourier_and_back(void **state)
{
    (void)state;
    static const dims shapes[] = {S(2, 8, 12, 2), S(3, 7, 5, 2), S(1, 6, 31, 2)};
    for (int i = 0; i < 18; i++) {
        const lvn_fft_norm norm = (lvn_fft_norm)(i % 3);
        const bool centered = i / 3 % 2 != 0;
        lvn_tensor *x = make_leaf(LVN_F32, 5, &shapes[i / 6], NORMAL);
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *line = lvn_fft(x, .norm = norm, .centered = centered), *plane = lvn_fft2(x, .norm = norm, .centered = centered);
        assert_close("line", lvn_ifft(line, .norm = norm, .centered = centered), x, 1e-6);
        assert_close("plane", lvn_ifft2(plane, .norm = norm, .centered = centered), x, 1e-6);
        if (norm == LVN_FFT_ORTHO) {
            const double before = lvn_item(lvn_sum(lvn_square(x))), after = lvn_item(lvn_sum(lvn_square(plane)));
            assert_true(fabs(before - after) < 1e-5 * before);
        }
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvn_release(x);
    }
}

/* One pixel of 8 channels; two channels stay. */
static void pixel_shuffle_by_hand(void **state)
{
    (void)state;
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
    assert_error_says("x is (1, 1, 1, 8), the factor 3; x must have 4 axes (batch, height, width, channels) and a multiple of factor * factor");
    lvn_release(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(transposed_convolution_in_bf16), cmocka_unit_test(fourier_and_back),
                                       cmocka_unit_test(pixel_shuffle_by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
