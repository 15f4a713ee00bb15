/* The truth against numbers worked out by hand: every reference kernel at least once. */
#include "op_support.h"

#include <math.h>
#include <stdio.h>

#define EXACT 0.0
#define CLOSE 4e-16 /* a rounding or two */

static const double nan_value = (double)NAN;

/* ---- element-wise ---- */

TEST_EACH(NULL, support_release);

TEST(element_wise_ops_broadcast_like_numpy)
{
    lvn_tensor *column = F64(DIMS(2, 1), 10, 20), *row = F64(DIMS(3), 1, 2, 4);
    EXPECT(REF(add, NULL, column, row).out[0], EXACT, DIMS(2, 3), 11, 12, 14, 21, 22, 24);
    EXPECT(REF(sub, NULL, column, row).out[0], EXACT, DIMS(2, 3), 9, 8, 6, 19, 18, 16);
    EXPECT(REF(sub, NULL, row, column).out[0], EXACT, DIMS(2, 3), -9, -8, -6, -19, -18, -16);
    EXPECT(REF(mul, NULL, column, row).out[0], EXACT, DIMS(2, 3), 10, 20, 40, 20, 40, 80);
    EXPECT(REF(div, NULL, column, row).out[0], EXACT, DIMS(2, 3), 10, 5, 2.5, 20, 10, 5);
    EXPECT(REF(add, NULL, F64(SCALAR, 0.5), row).out[0], EXACT, DIMS(3), 1.5, 2.5, 4.5);
    EXPECT(REF(mul, NULL, F64(SCALAR, 3), F64(SCALAR, 4)).out[0], EXACT, SCALAR, 12);
    EXPECT(REF(add, NULL, F64(DIMS(2, 1, 2), 1, 2, 3, 4), F64(DIMS(1, 2, 1), 10, 20)).out[0], EXACT,
           DIMS(2, 2, 2), 11, 12, 21, 22, 13, 14, 23, 24);
}

TEST(functions_of_one_number)
{
    const lvn_scale_attr twice_plus_one = {.mul = 2, .add = 1};
    EXPECT(REF(scale, &twice_plus_one, F64(DIMS(3), -1, 0, 2.5)).out[0], EXACT, DIMS(3), -1, 1, 6);
    EXPECT(REF(exp, NULL, F64(DIMS(4), 0, 1, -1, -2000)).out[0], CLOSE, DIMS(4), 1,
           2.718281828459045, 0.36787944117144233, 0);
    EXPECT(REF(log, NULL, F64(DIMS(4), 1, 10, 0.5, 0)).out[0], CLOSE, DIMS(4), 0, 2.302585092994046,
           -0.6931471805599453, -INFINITY);
    EXPECT(REF(square, NULL, F64(DIMS(3), -3, 0, 1.5)).out[0], EXACT, DIMS(3), 9, 0, 2.25);
    EXPECT(REF(square_grad, NULL, F64(DIMS(2), 10, -1), F64(DIMS(2), -3, 4)).out[0], EXACT, DIMS(2),
           -60, -8);
    EXPECT(REF(sqrt, NULL, F64(DIMS(3), 4, 0, 2)).out[0], EXACT, DIMS(3), 2, 0, 1.4142135623730951);
    EXPECT(REF(sqrt_grad, NULL, F64(DIMS(2), 6, 1), F64(DIMS(2), 3, 0.25)).out[0], EXACT, DIMS(2),
           1, 2);
    EXPECT(REF(relu, NULL, F64(DIMS(4), -2, 0, 3, nan_value)).out[0], EXACT, DIMS(4), 0, 0, 3,
           nan_value);
    EXPECT(REF(relu_grad, NULL, F64(DIMS(3), 5, 6, 7), F64(DIMS(3), 0, 0.1, 9)).out[0], EXACT,
           DIMS(3), 0, 6, 7);
}

TEST(dropout_keeps_what_the_stream_gives)
{
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(7, lvni_core_rng_purpose("net.drop")),
                               .a = 3};
    lvn_dropout_attr attr = {.p = 0.5, .rng = {.key = {rng.key.k[0], rng.key.k[1]}, .a = rng.a}};
    lvn_tensor *x = support_tensor(LVN_F64, DIMS(1000));
    for (int e = 0; e < 1000; e++) {
        ((double *)x->data)[e] = e + 1;
    }
    const lvn_tensor *y = REF(dropout, &attr, x).out[0];
    int n_kept = 0;
    for (int e = 0; e < 1000; e++) {
        const double v = lvni_check_value(y, e);
        const bool keep = lvni_core_rng_uniform(&rng, (uint64_t)e) >= 0.5f;
        assert_true(v == (keep ? 2.0 * (e + 1) : 0.0));
        n_kept += keep;
    }
    assert_int_in_range(n_kept, 440, 560); /* 500 +- 3.8 standard deviations */
    attr.p = 0.0;
    EXPECT(REF(dropout, &attr, F64(DIMS(3), 1, 2, 3)).out[0], EXACT, DIMS(3), 1, 2, 3);
}

/* ---- reductions ---- */

TEST(sums_means_and_broadcasting)
{
    lvn_tensor *x = F64(DIMS(2, 3), 1, 2, 3, 4, 5, 9);
    EXPECT(REF(sum, (&(lvn_axes_attr){.mask = 1}), x).out[0], EXACT, DIMS(3), 5, 7, 12);
    EXPECT(REF(sum, (&(lvn_axes_attr){.mask = 2, .keepdim = true}), x).out[0], EXACT, DIMS(2, 1), 6,
           18);
    EXPECT(REF(sum, (&(lvn_axes_attr){.mask = 3}), x).out[0], EXACT, SCALAR, 24);
    EXPECT(REF(sum, (&(lvn_axes_attr){.mask = 0}), x).out[0], EXACT, DIMS(2, 3), 1, 2, 3, 4, 5, 9);
    EXPECT(REF(mean, (&(lvn_axes_attr){.mask = 3}), x).out[0], EXACT, SCALAR, 4);
    EXPECT(REF(mean, (&(lvn_axes_attr){.mask = 2}), x).out[0], EXACT, DIMS(2), 2, 6);
    lvn_tensor *cube = F64(DIMS(2, 2, 2), 1, 2, 3, 4, 5, 6, 7, 8);
    EXPECT(REF(sum, (&(lvn_axes_attr){.mask = 5}), cube).out[0], EXACT, DIMS(2), 14, 22);
    EXPECT(REF(sum_to, (&(lvn_shape_attr){.ndim = 1, .shape = {3}}), x).out[0], EXACT, DIMS(3), 5,
           7, 12);
    EXPECT(REF(sum_to, (&(lvn_shape_attr){.ndim = 2, .shape = {2, 1}}), x).out[0], EXACT,
           DIMS(2, 1), 6, 18);
    EXPECT(REF(sum_to, (&(lvn_shape_attr){.ndim = 0}), x).out[0], EXACT, SCALAR, 24);
    EXPECT(
        REF(expand, (&(lvn_shape_attr){.ndim = 2, .shape = {2, 3}}), F64(DIMS(3), 1, 2, 3)).out[0],
        EXACT, DIMS(2, 3), 1, 2, 3, 1, 2, 3);
    EXPECT(
        REF(expand, (&(lvn_shape_attr){.ndim = 2, .shape = {2, 3}}), F64(DIMS(2, 1), 4, 5)).out[0],
        EXACT, DIMS(2, 3), 4, 4, 4, 5, 5, 5);
}

TEST(first_maximum_wins_and_nan_is_kept)
{
    lvn_tensor *x = F64(DIMS(2, 4), 1, 7, 7, 2, 3, nan_value, nan_value, 9);
    lvn_kernel_args a = REF(max, (&(lvn_axes_attr){.mask = 2}), x);
    EXPECT(a.out[0], EXACT, DIMS(2), 7, nan_value);
    EXPECT(a.out[1], EXACT, DIMS(2), 1, 1);
    a = REF(max, (&(lvn_axes_attr){.mask = 1, .keepdim = true}), F64(DIMS(2, 3), 1, 5, 2, 1, 4, 3));
    EXPECT(a.out[0], EXACT, DIMS(1, 3), 1, 5, 3);
    EXPECT(a.out[1], EXACT, DIMS(1, 3), 0, 0, 1);
    const lvn_shape_attr shape = {.ndim = 2, .shape = {2, 3}};
    EXPECT(REF(max_grad, &shape, F64(DIMS(1, 3), 10, 20, 30), I64(DIMS(1, 3), 0, 0, 1)).out[0],
           EXACT, DIMS(2, 3), 10, 20, 0, 0, 0, 30);
    EXPECT(REF(max_grad, &shape, F64(DIMS(2, 1), 10, 20), I64(DIMS(2, 1), 2, 0)).out[0], EXACT,
           DIMS(2, 3), 0, 0, 10, 20, 0, 0);
}

/* ---- products ---- */

TEST(products_in_all_orientations)
{
    lvn_tensor *a = F64(DIMS(2, 3), 1, 2, 3, 4, 5, 6), *b = F64(DIMS(3, 2), 7, 8, 9, 10, 11, 12);
    lvn_tensor *at = F64(DIMS(3, 2), 1, 4, 2, 5, 3, 6), *bt = F64(DIMS(2, 3), 7, 9, 11, 8, 10, 12);
    const struct {
        lvn_tensor *a, *b;
        lvn_matmul_attr attr;
    } rows[] = {{a, b, {false, false}},
                {at, b, {true, false}},
                {a, bt, {false, true}},
                {at, bt, {true, true}}};
    for (size_t i = 0; i < 4; i++) {
        EXPECT(REF(matmul, &rows[i].attr, rows[i].a, rows[i].b).out[0], EXACT, DIMS(2, 2), 58, 64,
               139, 154);
    }
    lvn_tensor *w = F64(DIMS(2, 3), 1, 0, -1, 2, 1, 0);
    EXPECT(REF(linear, NULL, a, w, F64(DIMS(2), 0.5, 100)).out[0], EXACT, DIMS(2, 2), -1.5, 104,
           -1.5, 113);
    EXPECT(REF(linear, NULL, a, w).out[0], EXACT, DIMS(2, 2), -2, 4, -2, 13);
    const lvn_kernel_args g = REF(linear_grad_weight, NULL, F64(DIMS(2, 2), 1, 0, 10, -1), a);
    EXPECT(g.out[0], EXACT, DIMS(2, 3), 41, 52, 63, -4, -5, -6);
    EXPECT(g.out[1], EXACT, DIMS(2), 11, -1);
}

#define CONV(s, p, d, g)                                                                           \
    {                                                                                              \
        .stride = {s, s}, .padding = {p, p}, .dilation = {d, d}, .groups = g                       \
    }

TEST(convolution_by_hand)
{
    lvn_tensor *x = F64(DIMS(1, 3, 3, 1), 1, 2, 3, 4, 5, 6, 7, 8, 9);
    lvn_tensor *w = F64(DIMS(1, 2, 2, 1), 1, 2, 3, 4);
    const lvn_conv_attr plain = CONV(1, 0, 1, 1);
    EXPECT(REF(conv2d, &plain, x, w).out[0], EXACT, DIMS(1, 2, 2, 1), 37, 47, 67, 77);
    EXPECT(REF(conv2d, &plain, x, w, F64(DIMS(1), 0.5)).out[0], EXACT, DIMS(1, 2, 2, 1), 37.5, 47.5,
           67.5, 77.5);
    /* windows at rows and columns -1..0 and 1..2 */
    const lvn_conv_attr strided = CONV(2, 1, 1, 1);
    EXPECT(REF(conv2d, &strided, x, w).out[0], EXACT, DIMS(1, 2, 2, 1), 4, 18, 36, 77);
    const lvn_conv_attr dilated = CONV(1, 0, 2, 1); /* the four corners */
    EXPECT(REF(conv2d, &dilated, x, w).out[0], EXACT, DIMS(1, 1, 1, 1),
           1 * 1 + 2 * 3 + 3 * 7 + 4 * 9);
    /* two groups of one channel, two output channels each */
    const lvn_conv_attr grouped = CONV(1, 0, 1, 2);
    EXPECT(REF(conv2d, &grouped, F64(DIMS(1, 1, 2, 2), 1, 10, 2, 20),
               F64(DIMS(4, 1, 1, 1), 1, 2, 3, 4))
               .out[0],
           EXACT, DIMS(1, 1, 2, 4), 1, 2, 30, 40, 2, 4, 60, 80);
    /* height and width have their own stride, padding and kernel */
    const lvn_conv_attr uneven = {
        .stride = {1, 2}, .padding = {0, 1}, .dilation = {1, 1}, .groups = 1};
    EXPECT(REF(conv2d, &uneven, x, F64(DIMS(1, 1, 3, 1), 1, 10, 100)).out[0], EXACT,
           DIMS(1, 3, 2, 1), 210, 32, 540, 65, 870, 98);
    /* three input channels: one product per pixel */
    EXPECT(REF(conv2d, &plain, F64(DIMS(1, 1, 2, 3), 1, 2, 3, 4, 5, 6),
               F64(DIMS(2, 1, 1, 3), 1, 1, 1, 1, 0, -1))
               .out[0],
           EXACT, DIMS(1, 1, 2, 2), 6, -2, 15, -2);
}

TEST(convolution_gradients_by_hand)
{
    lvn_tensor *x = F64(DIMS(1, 3, 3, 1), 1, 2, 3, 4, 5, 6, 7, 8, 9);
    lvn_tensor *w = F64(DIMS(1, 2, 2, 1), 1, 2, 3, 4), *dy = F64(DIMS(1, 2, 2, 1), 1, 0, 0, 10);
    lvn_conv_attr attr = CONV(1, 0, 1, 1);
    attr.in_h = attr.in_w = 3;
    attr.kernel[0] = attr.kernel[1] = 2;
    EXPECT(REF(conv2d_grad_input, &attr, dy, w).out[0], EXACT, DIMS(1, 3, 3, 1), 1, 2, 0, 3, 14, 20,
           0, 30, 40);
    EXPECT(REF(conv_transpose2d, &attr, dy, w, F64(DIMS(1), 0.5)).out[0], EXACT, DIMS(1, 3, 3, 1),
           1.5, 2.5, 0.5, 3.5, 14.5, 20.5, 0.5, 30.5, 40.5);
    const lvn_kernel_args g = REF(conv2d_grad_weight, &attr, dy, x);
    EXPECT(g.out[0], EXACT, DIMS(1, 2, 2, 1), 51, 62, 84, 95);
    EXPECT(g.out[1], EXACT, DIMS(1), 11);
}

/* ---- pooling ---- */

#define MAP(k, ...) (&(lvn_resample_attr){.kind = LVN_RESAMPLE_##k, __VA_ARGS__})

TEST(average_pooling_by_hand)
{
    lvn_tensor *x = F64(DIMS(1, 2, 5, 1), 1, 2, 3, 4, 5, 11, 12, 13, 14, 15);
    EXPECT(REF(resample2d, MAP(AVG_POOL, .pool = {.kernel = {2, 2}, .stride = {2, 2}}), x).out[0],
           CLOSE, DIMS(1, 1, 2, 1), 6.5, 8.5);
    /* columns -2..1 and 1..4 */
    const lvn_pool_attr padded = {.kernel = {2, 4}, .stride = {2, 3}, .padding = {0, 2}};
    EXPECT(REF(resample2d, MAP(AVG_POOL, .pool = padded), x).out[0], CLOSE, DIMS(1, 1, 2, 1), 3.25,
           8.5);
    EXPECT(REF(resample2d, MAP(AVG_POOL, .pool = padded, .exclude_padding = true), x).out[0], CLOSE,
           DIMS(1, 1, 2, 1), 6.5, 8.5);
    EXPECT(REF(resample2d, MAP(AVG_POOL, .pool = padded, .transposed = true, .size = {2, 5}),
               F64(DIMS(1, 1, 2, 1), 8, 80))
               .out[0],
           CLOSE, DIMS(1, 2, 5, 1), 1, 11, 10, 10, 10, 1, 11, 10, 10, 10);
    /* bins 0..1, 1..3, 3..4 overlap */
    EXPECT(REF(resample2d, MAP(ADAPTIVE_POOL, .size = {1, 3}), x).out[0], CLOSE, DIMS(1, 1, 3, 1),
           6.5, 8, 9.5);
}

/* Numbers of torch.nn.functional.interpolate in double precision. */
TEST(resizing_with_a_filter_and_a_scale)
{
    lvn_tensor *x = F64(DIMS(1, 7, 1, 1), 1, 4, 9, 16, 25, 36, 49);
    EXPECT(REF(resample2d, MAP(BICUBIC, .antialias = true, .size = {3, 1}), x).out[0], 1e-10,
           DIMS(1, 3, 1, 1), 3.11290322581, 16.3638583639, 39.6290322581);
    EXPECT(REF(resample2d, MAP(BILINEAR, .antialias = true, .size = {3, 1}), x).out[0], 1e-10,
           DIMS(1, 3, 1, 1), 4.0, 16.9411764706, 38.2857142857);
    EXPECT(REF(resample2d, MAP(BICUBIC, .antialias = true, .size = {9, 1}), x).out[0], 1e-10,
           DIMS(1, 9, 1, 1), 0.85798816568, 2.67857142857, 5.97530864198, 10.3827160494, 16,
           22.8271604938, 30.8641975309, 40.9642857143, 49.6153846154);
    EXPECT(REF(resample2d, MAP(BICUBIC, .scale = {3.1 / 7}, .size = {3, 1}), x).out[0], 1e-10,
           DIMS(1, 3, 1, 1), 2.38181728542, 14.7880525998, 38.4760214914);
    EXPECT(REF(resample2d, MAP(BILINEAR, .scale = {3.1 / 7}, .size = {3, 1}), x).out[0], 1e-10,
           DIMS(1, 3, 1, 1), 2.88709677419, 15.2096774194, 37.8870967742);
    EXPECT(REF(resample2d, MAP(BICUBIC, .scale = {9.1 / 7}, .size = {9, 1}), x).out[0], 1e-10,
           DIMS(1, 9, 1, 1), 0.796839440146, 2.45882168867, 5.84313837051, 10.4477127902,
           15.5558147474, 21.8731793355, 30.125, 40.3910303823, 49.3467085799);
    EXPECT(REF(resample2d, MAP(BICUBIC, .antialias = true, .scale = {3.1 / 7}, .size = {3, 1}), x)
               .out[0],
           1e-10, DIMS(1, 3, 1, 1), 2.99799386285, 15.188210948, 38.278769167);
}

TEST(resizing_by_hand)
{
    lvn_tensor *x = F64(DIMS(1, 2, 2, 1), 1, 2, 3, 4),
               *row = F64(DIMS(1, 1, 4, 1), 1, 10, 100, 1000);
    EXPECT(REF(resample2d, MAP(NEAREST, .size = {3, 4}), x).out[0], EXACT, DIMS(1, 3, 4, 1), 1, 1,
           2, 2, 1, 1, 2, 2, 3, 3, 4, 4);
    EXPECT(REF(resample2d, MAP(BILINEAR, .size = {4, 4}), x).out[0], CLOSE, DIMS(1, 4, 4, 1), 1,
           1.25, 1.75, 2, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3, 3.25, 3.75, 4);
    EXPECT(REF(resample2d, MAP(BILINEAR, .size = {3, 5}, .align_corners = true), x).out[0], CLOSE,
           DIMS(1, 3, 5, 1), 1, 1.25, 1.5, 1.75, 2, 2, 2.25, 2.5, 2.75, 3, 3, 3.25, 3.5, 3.75, 4);
    EXPECT(REF(resample2d, MAP(BILINEAR, .size = {2, 2}, .transposed = true),
               F64(DIMS(1, 2, 4, 1), 1, 0, 0, 0, 0, 16, 0, 0))
               .out[0],
           CLOSE, DIMS(1, 2, 2, 1), 1, 0, 12, 4);
    EXPECT(REF(resample2d, MAP(BICUBIC, .size = {1, 8}), row).out[0], 1e-13, DIMS(1, 1, 8, 1),
           0.05078125, -0.125, -1.53125, -0.30078125, -14.99609375, 313.3984375, 799.2578125,
           1094.921875);
    EXPECT(REF(resample2d, MAP(BICUBIC, .size = {2, 4}, .align_corners = true), row).out[0], CLOSE,
           DIMS(1, 2, 4, 1), 1, 10, 100, 1000, 1, 10, 100, 1000);
}

TEST(fourier_by_hand)
{
    lvn_tensor *x = F64(DIMS(4, 2), 1, 0, 2, 0, 3, 0, 4, 0);
    lvn_fft_attr attr = {.axes = 1, .scale = 1.0};
    EXPECT(REF(fft, &attr, x).out[0], 1e-15, DIMS(4, 2), 10, 0, -2, 2, -2, 0, -2, -2);
    attr.centered = true; /* 3 4 1 2, and frequencies -2 -1 0 1 */
    EXPECT(REF(fft, &attr, x).out[0], 1e-15, DIMS(4, 2), -2, 0, 2, 2, 10, 0, 2, -2);
    attr = (lvn_fft_attr){.axes = 2, .inverse = true, .scale = 0.5};
    EXPECT(REF(fft, &attr, F64(DIMS(2, 2, 2), 1, 1, 2, 0, 3, 0, 4, 0)).out[0], 1e-15, DIMS(2, 2, 2),
           5, 0.5, -1, 0.5, -2, 0.5, 0, 0.5);
}

TEST(pooling_by_hand)
{
    lvn_tensor *x = F64(DIMS(1, 3, 4, 1), 1, 5, 2, 2, 5, 0, 2, 2, -1, -2, -3, -4);
    lvn_pool_attr attr = {.kernel = {2, 2}, .stride = {2, 2}, .in_h = 3, .in_w = 4};
    lvn_kernel_args a = REF(max_pool2d, &attr, x); /* the last row has no whole window */
    EXPECT(a.out[0], EXACT, DIMS(1, 1, 2, 1), 5, 2);
    EXPECT(a.out[1], EXACT, DIMS(1, 1, 2, 1), 1, 0); /* the first of equals */
    EXPECT(REF(max_pool2d_grad, &attr, F64(DIMS(1, 1, 2, 1), 3, 4), a.out[1]).out[0], EXACT,
           DIMS(1, 3, 4, 1), 0, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    /* padding is never a maximum, even of negative numbers; overlapping windows add up */
    attr = (lvn_pool_attr){
        .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .in_h = 3, .in_w = 3};
    lvn_tensor *negative = F64(DIMS(1, 3, 3, 1), -5, -6, -7, -6, -1, -6, -7, -6, -5);
    a = REF(max_pool2d, &attr, negative);
    EXPECT(a.out[0], EXACT, DIMS(1, 2, 2, 1), -1, -1, -1, -1);
    EXPECT(a.out[1], EXACT, DIMS(1, 2, 2, 1), 8, 6, 2, 0);
    EXPECT(REF(max_pool2d_grad, &attr, F64(DIMS(1, 2, 2, 1), 1, 2, 4, 8), a.out[1]).out[0], EXACT,
           DIMS(1, 3, 3, 1), 0, 0, 0, 0, 15, 0, 0, 0, 0);
    /* NaN comes through, the first one is the place; minus infinity alone is a fine maximum */
    attr = (lvn_pool_attr){.kernel = {1, 3}, .stride = {1, 3}};
    a = REF(max_pool2d, &attr,
            F64(DIMS(1, 1, 6, 1), 9, nan_value, nan_value, -INFINITY, -INFINITY, -INFINITY));
    EXPECT(a.out[0], EXACT, DIMS(1, 1, 2, 1), nan_value, -INFINITY);
    EXPECT(a.out[1], EXACT, DIMS(1, 1, 2, 1), 1, 0);
    /* channels apart */
    attr = (lvn_pool_attr){.kernel = {2, 1}, .stride = {1, 1}};
    EXPECT(REF(max_pool2d, &attr, F64(DIMS(1, 2, 1, 2), 1, 8, 3, 4)).out[0], EXACT,
           DIMS(1, 1, 1, 2), 3, 8);
}

/* ---- batch norm ---- */

TEST(batch_norm_by_hand)
{
    const lvn_norm_attr attr = {.eps = 0.75};
    /* channel 0: 1 2 3 6 (mean 3, squared distances 14); channel 1: 0 0 2 2 (mean 1, 4) */
    lvn_tensor *x = F64(DIMS(2, 2, 2), 1, 0, 2, 0, 3, 2, 6, 2);
    lvn_tensor *gamma = F64(DIMS(2), 2, -1), *beta = F64(DIMS(2), 10, 0);
    const double r0 = 1 / sqrt(3.5 + 0.75), r1 = 1 / sqrt(1.75);
    const lvn_kernel_args a = REF(batch_norm_train, &attr, x, gamma, beta);
    EXPECT(a.out[0], CLOSE, DIMS(2, 2, 2), 10 - 4 * r0, r1, 10 - 2 * r0, r1, 10, -r1, 10 + 6 * r0,
           -r1);
    EXPECT(a.out[1], EXACT, DIMS(2), 3, 1);
    EXPECT(a.out[2], CLOSE, DIMS(2), r0, r1);
    EXPECT(a.out[3], CLOSE, DIMS(2), 14.0 / 3.0, 4.0 / 3.0);
    const lvn_kernel_args e =
        REF(batch_norm_eval, &attr, x, gamma, beta, F64(DIMS(2), 1, 2), F64(DIMS(2), 0.25, 3.25));
    EXPECT(e.out[0], CLOSE, DIMS(2, 2, 2), 10, 1, 12, 1, 14, 0, 20, 0);
    const lvn_kernel_args g =
        REF(batch_norm_eval_grad, &attr, F64(DIMS(2, 2, 2), 1, 1, 0, 0, 0, 0, 2, 4), x, gamma,
            F64(DIMS(2), 1, 2), F64(DIMS(2), 0.25, 3.25), beta);
    EXPECT(g.out[0], CLOSE, DIMS(2, 2, 2), 2, -0.5, 0, 0, 0, 0, 4, -2);
    EXPECT(g.out[1], CLOSE, DIMS(2), 10, -1); /* 1 * 0 + 2 * 5;  1 * -2/2 + 4 * 0 */
    EXPECT(g.out[2], CLOSE, DIMS(2), 3, 5);
}

TEST(batch_norm_gradient_by_hand)
{
    /* x 0 2, mean 1, rstd 1/2 as given: xhat -1/2 1/2; dy 4 0: dbeta 4, dgamma -2 */
    lvn_norm_attr attr = {.eps = 0};
    lvn_tensor *dy = F64(DIMS(2, 1), 4, 0), *x = F64(DIMS(2, 1), 0, 2), *gamma = F64(DIMS(1), 3),
               *mean = F64(DIMS(1), 1), *rstd = F64(DIMS(1), 0.5), *beta = F64(DIMS(1), 1);
    const lvn_kernel_args g = REF(batch_norm_train_grad, &attr, dy, x, gamma, mean, rstd, beta);
    EXPECT(g.out[1], CLOSE, DIMS(1), -2);
    EXPECT(g.out[2], CLOSE, DIMS(1), 4);
    /* 3/2 (4 - (4 + 1) / 2) and 3/2 (0 - (4 - 1) / 2) */
    EXPECT(g.out[0], CLOSE, DIMS(2, 1), 2.25, -2.25);
    EXPECT(g.out[3], EXACT, DIMS(2, 1), 4, 0);
    /* relu: y = 3 xhat + 1 = -1/2 5/2 lets the second dy through, which is 0; a given y overrules
     * it */
    attr.relu = true;
    EXPECT(REF(batch_norm_train_grad, &attr, dy, x, gamma, mean, rstd, beta).out[2], EXACT, DIMS(1),
           0);
    EXPECT(REF(batch_norm_train_grad, &attr, dy, x, gamma, mean, rstd, beta, F64(DIMS(2, 1), 1, 0))
               .out[3],
           EXACT, DIMS(2, 1), 4, 0);
}

TEST(batch_norm_with_residual_and_relu_by_hand)
{
    const lvn_norm_attr relu = {.eps = 0, .relu = true}, plain = {.eps = 0};
    /* mean 2, deviation 1: xhat -1 1 */
    lvn_tensor *x = F64(DIMS(2, 1), 1, 3), *one = F64(DIMS(1), 1), *zero = F64(DIMS(1), 0),
               *r = F64(DIMS(2, 1), 0.5, -4);
    EXPECT(REF(batch_norm_train, &relu, x, one, zero).out[0], EXACT, DIMS(2, 1), 0, 1);
    EXPECT(REF(batch_norm_train, &plain, x, one, zero, r).out[0], EXACT, DIMS(2, 1), -0.5, -3);
    EXPECT(REF(batch_norm_train, &relu, x, one, zero, F64(DIMS(2, 1), 3, -4)).out[0], EXACT,
           DIMS(2, 1), 2, 0);
    EXPECT(REF(batch_norm_eval, &relu, x, one, zero, one, one, r).out[0], EXACT, DIMS(2, 1), 0.5,
           0);
}

/* ---- softmax and losses ---- */

TEST(softmax_by_hand)
{
    const double l2 = 0.6931471805599453, l5 = 1.6094379124341003, l8 = 2.0794415416798357;
    lvn_tensor *x = F64(DIMS(2, 3), 0, l2, l5, 1000, 1000 + l2, 1000 + l5);
    EXPECT(REF(softmax, NULL, x).out[0], 1e-13, DIMS(2, 3), 0.125, 0.25, 0.625, 0.125, 0.25, 0.625);
    EXPECT(REF(log_softmax, NULL, x).out[0], 1e-13, DIMS(2, 3), -l8, l2 - l8, l5 - l8, -l8, l2 - l8,
           l5 - l8);
    lvn_tensor *dy = F64(DIMS(1, 3), 8, 0, 16), *y = F64(DIMS(1, 3), 0.125, 0.25, 0.625);
    EXPECT(REF(softmax_grad, NULL, dy, y).out[0], CLOSE, DIMS(1, 3), -0.375, -2.75,
           3.125); /* sum(dy y) = 11 */
    EXPECT(REF(log_softmax_grad, NULL, dy, F64(DIMS(1, 3), -l8, l2 - l8, l5 - l8)).out[0], 1e-14,
           DIMS(1, 3), 5, -6, 1);
}

TEST(losses_by_hand)
{
    const double l2 = 0.6931471805599453, l5 = 1.6094379124341003, l8 = 2.0794415416798357;
    lvn_tensor *labels = I64(DIMS(2), 2, 0);
    const lvn_class_loss_attr mean = {.ignore = -100};
    lvn_tensor *x = F64(DIMS(2, 3), 0, l2, l5, 0, l5, l2);
    lvn_kernel_args a = REF(cross_entropy, &mean, x, labels);
    EXPECT(a.out[0], CLOSE, SCALAR, (2 * l8 - l5) / 2);
    EXPECT(a.out[1], CLOSE, DIMS(2, 2), l5, l8 - l5, l5, l8 - l5);
    EXPECT(REF(cross_entropy_grad, &mean, F64(SCALAR, 16), x, a.out[1], labels).out[0], 2e-15,
           DIMS(2, 3), 1, 2, -3, -7, 5, 2);
    /* weights 3 and 1 of the labels' classes: (3 (l8 - l5) + l8) / 4; ignored: the second row
     * alone; nothing left: 0 */
    EXPECT(REF(cross_entropy, &mean, x, labels, F64(DIMS(3), 1, 9, 3)).out[0], CLOSE, SCALAR,
           (3 * (l8 - l5) + l8) / 4);
    EXPECT(REF(cross_entropy, (&(lvn_class_loss_attr){.ignore = 2}), x, labels).out[0], CLOSE,
           SCALAR, l8);
    EXPECT(REF(cross_entropy, &mean, x, I64(DIMS(2), -100, -100)).out[0], EXACT, SCALAR, 0);
    /* half of the target on all three classes: their mean -log p is l8 - (l2 + l5) / 3 in both
     * rows */
    EXPECT(REF(cross_entropy, (&(lvn_class_loss_attr){.smoothing = 0.5, .ignore = -100}), x, labels)
               .out[0],
           1e-15, SCALAR, (2 * l8 - l5) / 4 + (l8 - (l2 + l5) / 3) / 2);
    /* rows: right, a tie won by the first, NaN (the greatest), wrong */
    lvn_tensor *scores = F64(DIMS(4, 2), 1, 2, 3, 3, 9, nan_value, 1, 0);
    EXPECT(REF(accuracy, NULL, scores, I64(DIMS(4), 1, 0, 1, 1)).out[0], EXACT, SCALAR, 0.75);
}

TEST(labels_out_of_range_are_named)
{
    lvn_tensor *y = F64(DIMS(3, 2), 0, 0, 0, 0, 0, 0), *one = F64(SCALAR, 1),
               *loss = F64(SCALAR, 0);
    const int64_t bad[] = {2, -1};
    for (int i = 0; i < 2; i++) {
        lvn_tensor *labels = I64(DIMS(3), 0, bad[i], 1);
        const lvn_class_loss_attr mean = {.ignore = -100};
        const lvn_kernel_args forward = {
            .in = {y, labels}, .out = {loss, support_tensor(LVN_F64, DIMS(3, 2))}, .attr = &mean};
        assert_int_equal(lvni_ref_cross_entropy(&forward), LVN_ERR_INVALID);
        char expected[128];
        snprintf(expected, sizeof expected,
                 "cross_entropy: the label of row 1 is %d, but there are 2 classes (0 to 1)",
                 (int)bad[i]);
        assert_string_equal(lvn_last_error()->message, expected);
        const lvn_kernel_args gradient = {
            .in = {one, y, y, labels}, .out = {support_tensor(LVN_F64, DIMS(3, 2))}, .attr = &mean};
        assert_int_equal(lvni_ref_cross_entropy_grad(&gradient), LVN_ERR_INVALID);
    }
}
