/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_image.h. */
#include "gradient_rows.h"

FN(conv, lvn_conv2d(in[0], in[1], in[2]))
FN(conv_plain, lvn_conv2d(in[0], in[1], NULL, .padding = 1))
FN(conv_stride, lvn_conv2d(in[0], in[1], in[2], .stride = 2, .padding = 1))
FN(conv_groups, lvn_conv2d(in[0], in[1], in[2], .padding = 1, .groups = 2))
FN(conv_dilation, lvn_conv2d(in[0], in[1], in[2], .padding = 2, .dilation = 2))
FN(conv_uneven, lvn_conv2d(in[0], in[1], in[2], .stride_hw = {2, 1}, .padding_hw = {1, 2},
                           .dilation_hw = {1, 2}))
FN(conv_depthwise, lvn_conv2d(in[0], in[1], in[2], .padding = 1, .groups = 3))
FN(conv_penalty, lvn_conv2d(lvn_square(lvn_conv2d(in[0], in[1], NULL, .stride = 2)), in[2], NULL))
FN(transpose, lvn_conv_transpose2d(in[0], in[1], in[2]))
FN(transpose_plain, lvn_conv_transpose2d(in[0], in[1], NULL, .stride = 2))
FN(transpose_stride,
   lvn_conv_transpose2d(in[0], in[1], in[2], .stride = 2, .padding = 1, .output_padding = 1))
FN(transpose_groups,
   lvn_conv_transpose2d(in[0], in[1], in[2], .stride = 2, .padding = 1, .groups = 2))
FN(transpose_dilation, lvn_conv_transpose2d(in[0], in[1], in[2], .padding = 1, .dilation = 2))
FN(transpose_uneven,
   lvn_conv_transpose2d(in[0], in[1], in[2], .stride_hw = {2, 3}, .padding_hw = {1, 0},
                        .output_padding_hw = {0, 2}, .dilation_hw = {2, 1}))
FN(pool, lvn_max_pool2d(in[0], 2))
FN(pool_large, lvn_max_pool2d(in[0], 17, .stride = 2, .padding = 3))
FN(pool_overlap, lvn_max_pool2d(in[0], 3, .stride = 2, .padding = 1))
FN(pool_uneven, lvn_max_pool2d(in[0], 2, .kernel_hw = {0, 3}, .stride_hw = {1, 2}))
FN(average_uneven, lvn_avg_pool2d(in[0], 2, .kernel_hw = {3, 0}, .padding_hw = {1, 0}))
FN(average, lvn_avg_pool2d(in[0], 2))
FN(average_overlap, lvn_avg_pool2d(in[0], 3, .stride = 2, .padding = 1))
FN(average_inside, lvn_avg_pool2d(in[0], 3, .stride = 1, .padding = 1, .exclude_padding = true))
FN(average_gaps, lvn_avg_pool2d(in[0], 1, .stride = 3))
FN(adaptive, lvn_adaptive_avg_pool2d(in[0], 3, 2))
FN(adaptive_up, lvn_adaptive_avg_pool2d(in[0], 5, 7))
FN(nearest, lvn_resize2d(in[0], 5, 3))
FN(bilinear, lvn_resize2d(in[0], 6, 3, .mode = LVN_RESIZE_BILINEAR))
FN(bilinear_corners, lvn_resize2d(in[0], 2, 7, .mode = LVN_RESIZE_BILINEAR, .align_corners = true))
FN(bicubic, lvn_resize2d(in[0], 6, 3, .mode = LVN_RESIZE_BICUBIC))
FN(bicubic_corners, lvn_resize2d(in[0], 2, 7, .mode = LVN_RESIZE_BICUBIC, .align_corners = true))
FN(bilinear_smooth, lvn_resize2d(in[0], 2, 3, .mode = LVN_RESIZE_BILINEAR, .antialias = true))
FN(bicubic_smooth, lvn_resize2d(in[0], 2, 3, .mode = LVN_RESIZE_BICUBIC, .antialias = true))
FN(bicubic_scaled, lvn_resize2d(in[0], 5, 2, .mode = LVN_RESIZE_BICUBIC, .scale = {1.7, 0.525}))
FN(shuffle, lvn_pixel_shuffle(in[0], 2))
FN(unshuffle, lvn_pixel_unshuffle(in[0], 3))
FN(fft, lvn_fft(in[0]))
FN(fft_ortho, lvn_fft(in[0], .norm = LVN_FFT_ORTHO, .centered = true))
FN(ifft, lvn_ifft(in[0]))
FN(fft2, lvn_fft2(in[0], .norm = LVN_FFT_FORWARD))
FN(ifft2, lvn_ifft2(in[0], .norm = LVN_FFT_ORTHO, .centered = true))
FN(conv1d, lvn_conv1d(in[0], in[1], in[2], .stride = 2, .padding = 1, .groups = 2))
FN(conv1d_plain, lvn_conv1d(in[0], in[1], NULL, .dilation = 2))
FN(unfold, lvn_unfold(in[0], 3, .padding = 1, .stride = 2))
FN(unfold_uneven, lvn_unfold(in[0], 2, .kernel_hw = {0, 3}, .stride_hw = {1, 2},
                             .padding_hw = {1, 0}, .dilation_hw = {2, 1}))
FN(fold, lvn_fold(in[0], 4, 5, 3, .padding = 1, .stride = 2))
FN(fold_uneven, lvn_fold(in[0], 4, 5, 2, .kernel_hw = {0, 3}, .stride_hw = {1, 2},
                         .padding_hw = {1, 0}, .dilation_hw = {2, 1}))
FN(affine, lvn_affine_grid(in[0], 3, 4))
FN(affine_corners, lvn_affine_grid(in[0], 1, 4, .align_corners = true))
FN(sample, lvn_grid_sample(in[0], in[1]))
FN(sample_border, lvn_grid_sample(in[0], in[1], .padding = LVN_SAMPLE_BORDER))
FN(sample_reflection, lvn_grid_sample(in[0], in[1], .padding = LVN_SAMPLE_REFLECTION))
FN(sample_corners,
   lvn_grid_sample(in[0], in[1], .padding = LVN_SAMPLE_REFLECTION, .align_corners = true))
FN(sample_nearest,
   lvn_grid_sample(in[0], lvn_detach(lvn_mul_scalar(in[0], 0.5)), .mode = LVN_SAMPLE_NEAREST))
FN(soft_argmax, lvn_soft_argmax2d(in[0], 2, .temperature = 3.0))
FN(soft_argmax_cold, lvn_soft_argmax2d(lvn_mul_scalar(in[0], 0.003), 1))
FN(global_avg, lvn_global_avg_pool2d(in[0]))

static const row rows[] = {
    {"conv2d_with",
     fn_conv,
     SMOOTH,
     3,
     {S(2, 4, 5, 3), S(2, 3, 2, 3), S(2)},
     NORMAL,
     .second = true},
    {"conv2d_with",
     fn_conv_plain,
     SMOOTH,
     2,
     {S(1, 3, 3, 2), S(3, 3, 3, 2)},
     NORMAL,
     .second = true},
    {"conv2d_with",
     fn_conv_stride,
     SMOOTH,
     3,
     {S(2, 5, 4, 2), S(3, 3, 3, 2), S(3)},
     NORMAL,
     .second = true},
    {"conv2d_with",
     fn_conv_groups,
     SMOOTH,
     3,
     {S(1, 3, 4, 4), S(6, 3, 3, 2), S(6)},
     NORMAL,
     .second = true},
    {"conv2d_with",
     fn_conv_dilation,
     SMOOTH,
     3,
     {S(1, 5, 5, 2), S(2, 3, 3, 2), S(2)},
     NORMAL,
     .second = true},
    {"conv2d_with",
     fn_conv_depthwise,
     SMOOTH,
     3,
     {S(1, 3, 3, 3), S(3, 3, 3, 1), S(3)},
     NORMAL,
     .second = true},
    {"conv2d_with",
     fn_conv_uneven,
     SMOOTH,
     3,
     {S(1, 4, 5, 2), S(2, 2, 3, 2), S(2)},
     NORMAL,
     .second = true},
    {"conv2d_with",
     fn_conv_penalty,
     SMOOTH,
     3,
     {S(1, 5, 5, 1), S(2, 3, 3, 1), S(1, 2, 2, 2)},
     NORMAL,
     .second = true},
    {"conv_transpose2d_with",
     fn_transpose,
     SMOOTH,
     3,
     {S(2, 3, 2, 2), S(2, 2, 3, 3), S(3)},
     NORMAL,
     .second = true},
    {"conv_transpose2d_with",
     fn_transpose_plain,
     SMOOTH,
     2,
     {S(1, 3, 2, 2), S(2, 2, 2, 3)},
     NORMAL,
     .second = true},
    {"conv_transpose2d_with",
     fn_transpose_stride,
     SMOOTH,
     3,
     {S(1, 2, 3, 2), S(2, 3, 3, 2), S(2)},
     NORMAL,
     .second = true},
    {"conv_transpose2d_with",
     fn_transpose_groups,
     SMOOTH,
     3,
     {S(1, 2, 2, 4), S(4, 4, 4, 1), S(2)},
     NORMAL,
     .second = true},
    {"conv_transpose2d_with",
     fn_transpose_dilation,
     SMOOTH,
     3,
     {S(1, 3, 3, 1), S(1, 2, 2, 2), S(2)},
     NORMAL,
     .second = true},
    {"conv_transpose2d_with",
     fn_transpose_uneven,
     SMOOTH,
     3,
     {S(1, 3, 2, 2), S(2, 2, 3, 2), S(2)},
     NORMAL,
     .second = true},
    {"max_pool2d_with", fn_pool_uneven, SMOOTH, 1, {S(1, 4, 7, 2)}, APART},
    {"max_pool2d_with", fn_pool, SMOOTH, 1, {S(2, 4, 5, 2)}, APART},
    {"max_pool2d_with", fn_pool_large, SMOOTH, 1, {S(1, 14, 15, 1)}, APART},
    {"max_pool2d_with", fn_pool_overlap, SMOOTH, 1, {S(1, 5, 6, 2)}, APART},
    {"avg_pool2d_with", fn_average_uneven, SMOOTH, 1, {S(1, 5, 4, 2)}, NORMAL, .second = true},
    {"avg_pool2d_with", fn_average, SMOOTH, 1, {S(2, 4, 5, 2)}, NORMAL, .second = true},
    {"avg_pool2d_with", fn_average_overlap, SMOOTH, 1, {S(1, 5, 6, 2)}, NORMAL, .second = true},
    {"avg_pool2d_with", fn_average_inside, SMOOTH, 1, {S(1, 3, 4, 1)}, NORMAL, .second = true},
    {"avg_pool2d_with", fn_average_gaps, SMOOTH, 1, {S(1, 5, 4, 1)}, NORMAL, .second = true},
    {"adaptive_avg_pool2d", fn_adaptive, SMOOTH, 1, {S(2, 4, 5, 2)}, NORMAL, .second = true},
    {"adaptive_avg_pool2d", fn_adaptive_up, SMOOTH, 1, {S(1, 3, 4, 2)}, NORMAL, .second = true},
    {"resize2d_with", fn_nearest, SMOOTH, 1, {S(2, 3, 4, 2)}, NORMAL, .second = true},
    {"resize2d_with", fn_bilinear, SMOOTH, 1, {S(2, 3, 4, 2)}, NORMAL, .second = true},
    {"resize2d_with", fn_bilinear_corners, SMOOTH, 1, {S(1, 4, 3, 2)}, NORMAL, .second = true},
    {"resize2d_with", fn_bicubic, SMOOTH, 1, {S(2, 3, 4, 2)}, NORMAL, .second = true},
    {"resize2d_with", fn_bicubic_corners, SMOOTH, 1, {S(1, 4, 3, 2)}, NORMAL, .second = true},
    {"resize2d_with", fn_bilinear_smooth, SMOOTH, 1, {S(1, 5, 4, 2)}, NORMAL, .second = true},
    {"resize2d_with", fn_bicubic_smooth, SMOOTH, 1, {S(2, 5, 4, 2)}, NORMAL, .second = true},
    {"resize2d_with", fn_bicubic_scaled, SMOOTH, 1, {S(2, 3, 4, 2)}, NORMAL, .second = true},
    {"pixel_shuffle", fn_shuffle, SMOOTH, 1, {S(2, 2, 3, 8)}, NORMAL, .second = true},
    {"pixel_unshuffle", fn_unshuffle, SMOOTH, 1, {S(2, 3, 6, 2)}, NORMAL, .second = true},
    {"fft_with", fn_fft, SMOOTH, 1, {S(2, 5, 2)}, NORMAL, .second = true},
    {"fft_with", fn_fft_ortho, SMOOTH, 1, {S(7, 2)}, NORMAL, .second = true},
    {"ifft_with", fn_ifft, SMOOTH, 1, {S(2, 6, 2)}, NORMAL, .second = true},
    {"fft2_with", fn_fft2, SMOOTH, 1, {S(2, 3, 4, 2)}, NORMAL, .second = true},
    {"ifft2_with", fn_ifft2, SMOOTH, 1, {S(1, 5, 2, 2)}, NORMAL, .second = true},
    {"conv1d_with", fn_conv1d, SMOOTH, 3, {S(2, 6, 4), S(4, 3, 2), S(4)}, NORMAL, .second = true},
    {"conv1d_with", fn_conv1d_plain, SMOOTH, 2, {S(1, 6, 2), S(3, 2, 2)}, NORMAL, .second = true},
    {"unfold_with", fn_unfold, SMOOTH, 1, {S(2, 4, 5, 2)}, NORMAL, .second = true},
    {"unfold_with", fn_unfold_uneven, SMOOTH, 1, {S(1, 4, 5, 2)}, NORMAL, .second = true},
    {"fold_with", fn_fold, SMOOTH, 1, {S(2, 2, 3, 18)}, NORMAL, .second = true},
    {"fold_with", fn_fold_uneven, SMOOTH, 1, {S(1, 4, 2, 12)}, NORMAL, .second = true},
    {"affine_grid_with", fn_affine, SMOOTH, 1, {S(2, 2, 3)}, NORMAL, .second = true},
    {"affine_grid_with", fn_affine_corners, SMOOTH, 1, {S(1, 2, 3)}, NORMAL, .second = true},
    {"grid_sample_with", fn_sample, SMOOTH, 2, {S(2, 4, 5, 2), S(2, 3, 4, 2)}, NORMAL},
    {"grid_sample_with", fn_sample_border, SMOOTH, 2, {S(2, 4, 5, 2), S(2, 3, 4, 2)}, NORMAL},
    {"grid_sample_with", fn_sample_reflection, SMOOTH, 2, {S(1, 4, 5, 2), S(1, 3, 4, 2)}, NORMAL},
    {"grid_sample_with", fn_sample_corners, SMOOTH, 2, {S(1, 4, 5, 2), S(1, 3, 4, 2)}, NORMAL},
    {"grid_sample_with", fn_sample_nearest, SMOOTH, 1, {S(1, 4, 5, 2)}, NORMAL},
    {"soft_argmax2d_with", fn_soft_argmax, SMOOTH, 1, {S(2, 4, 3, 2)}, NORMAL},
    {"soft_argmax2d_with", fn_soft_argmax_cold, CURVED, 1, {S(1, 3, 5, 2)}, NORMAL},
    {"global_avg_pool2d", fn_global_avg, SMOOTH, 1, {S(2, 3, 4, 3)}, NORMAL},
};

const row_table rows_image = {rows, sizeof rows / sizeof *rows};
