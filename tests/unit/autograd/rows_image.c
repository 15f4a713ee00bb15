/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_image.h. */
#include "gradient_rows.h"

FN(conv, lvn_conv2d(in[0], in[1], in[2]))
FN(conv_plain, lvn_conv2d(in[0], in[1], NULL, .padding = 1))
FN(conv_stride, lvn_conv2d(in[0], in[1], in[2], .stride = 2, .padding = 1))
FN(conv_groups, lvn_conv2d(in[0], in[1], in[2], .padding = 1, .groups = 2))
FN(conv_dilation, lvn_conv2d(in[0], in[1], in[2], .padding = 2, .dilation = 2))
FN(conv_depthwise, lvn_conv2d(in[0], in[1], in[2], .padding = 1, .groups = 3))
FN(conv_penalty, lvn_conv2d(lvn_square(lvn_conv2d(in[0], in[1], NULL, .stride = 2)), in[2], NULL))
FN(transpose, lvn_conv_transpose2d(in[0], in[1], in[2]))
FN(transpose_plain, lvn_conv_transpose2d(in[0], in[1], NULL, .stride = 2))
FN(transpose_stride, lvn_conv_transpose2d(in[0], in[1], in[2], .stride = 2, .padding = 1, .output_padding = 1))
FN(transpose_groups, lvn_conv_transpose2d(in[0], in[1], in[2], .stride = 2, .padding = 1, .groups = 2))
FN(transpose_dilation, lvn_conv_transpose2d(in[0], in[1], in[2], .padding = 1, .dilation = 2))
FN(pool, lvn_max_pool2d(in[0], 2))
FN(pool_overlap, lvn_max_pool2d(in[0], 3, .stride = 2, .padding = 1))
FN(global_avg, lvn_global_avg_pool2d(in[0]))

static const row rows[] = {
    {"conv2d_with", fn_conv, SMOOTH, 3, {S(2, 4, 5, 3), S(2, 3, 2, 3), S(2)}, NORMAL, .second = true},
    {"conv2d_with", fn_conv_plain, SMOOTH, 2, {S(1, 3, 3, 2), S(3, 3, 3, 2)}, NORMAL, .second = true},
    {"conv2d_with", fn_conv_stride, SMOOTH, 3, {S(2, 5, 4, 2), S(3, 3, 3, 2), S(3)}, NORMAL, .second = true},
    {"conv2d_with", fn_conv_groups, SMOOTH, 3, {S(1, 3, 4, 4), S(6, 3, 3, 2), S(6)}, NORMAL, .second = true},
    {"conv2d_with", fn_conv_dilation, SMOOTH, 3, {S(1, 5, 5, 2), S(2, 3, 3, 2), S(2)}, NORMAL, .second = true},
    {"conv2d_with", fn_conv_depthwise, SMOOTH, 3, {S(1, 3, 3, 3), S(3, 3, 3, 1), S(3)}, NORMAL, .second = true},
    {"conv2d_with", fn_conv_penalty, SMOOTH, 3, {S(1, 5, 5, 1), S(2, 3, 3, 1), S(1, 2, 2, 2)}, NORMAL, .second = true},
    {"conv_transpose2d_with", fn_transpose, SMOOTH, 3, {S(2, 3, 2, 2), S(2, 2, 3, 3), S(3)}, NORMAL, .second = true},
    {"conv_transpose2d_with", fn_transpose_plain, SMOOTH, 2, {S(1, 3, 2, 2), S(2, 2, 2, 3)}, NORMAL, .second = true},
    {"conv_transpose2d_with", fn_transpose_stride, SMOOTH, 3, {S(1, 2, 3, 2), S(2, 3, 3, 2), S(2)}, NORMAL, .second = true},
    {"conv_transpose2d_with", fn_transpose_groups, SMOOTH, 3, {S(1, 2, 2, 4), S(4, 4, 4, 1), S(2)}, NORMAL, .second = true},
    {"conv_transpose2d_with", fn_transpose_dilation, SMOOTH, 3, {S(1, 3, 3, 1), S(1, 2, 2, 2), S(2)}, NORMAL, .second = true},
    {"max_pool2d_with", fn_pool, SMOOTH, 1, {S(2, 4, 5, 2)}, APART},
    {"max_pool2d_with", fn_pool_overlap, SMOOTH, 1, {S(1, 5, 6, 2)}, APART},
    {"global_avg_pool2d", fn_global_avg, SMOOTH, 1, {S(2, 3, 4, 3)}, NORMAL},
};

const row_table rows_image = {rows, sizeof rows / sizeof *rows};
