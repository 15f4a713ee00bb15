/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_reduce.h. */
#include "gradient_rows.h"

FN(sum, lvn_sum(in[0]))
FN(mean, lvn_mean(in[0]))
FN(sum_first, lvn_sum_axes(in[0], (const int[]){0}, 1, false))
FN(sum_last_two, lvn_sum_axes(in[0], (const int[]){-1, 1}, 2, true))
FN(sum_none, lvn_sum_axes(in[0], NULL, 0, false))
FN(mean_middle, lvn_mean_axes(in[0], (const int[]){1}, 1, true))
FN(mean_outer, lvn_mean_axes(in[0], (const int[]){0, -1}, 2, false))
FN(var_all, lvn_var_axes(in[0], (const int[]){0, 1, 2}, 3, false, 1))
FN(var_middle, lvn_var_axes(in[0], (const int[]){1}, 1, true, 0))
FN(norm_last, lvn_norm_axis(in[0], -1))
FN(norm_outer, lvn_norm_axes(in[0], (const int[]){0, 2}, 2, true))
FN(min_1, lvn_min_axis(in[0], 1, false))
FN(max_0, lvn_max_axis(in[0], 0, false))
FN(max_1, lvn_max_axis(in[0], 1, true))
FN(max_last, lvn_max_axis(in[0], -1, false))
FN(sum_to_row, lvn_sum_to(in[0], 1, (const int64_t[]){4}))
FN(sum_to_middle, lvn_sum_to(in[0], 3, (const int64_t[]){2, 1, 4}))

FN(std_middle, lvn_std_axes(in[0], (const int[]){1}, 1, true, 0))
FN(std_outer, lvn_std_axes(in[0], (const int[]){0, -1}, 2, false, 1))
FN(cumsum_first, lvn_cumsum(in[0], 0))
FN(cumsum_last, lvn_cumsum(in[0], -1))

static const row rows[] = {
    {"sum", fn_sum, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"sum", fn_sum, SMOOTH, 1, {S(1)}, NORMAL, .second = true},
    {"mean", fn_mean, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"sum_axes", fn_sum_first, SMOOTH, 1, {S(3, 4)}, NORMAL, .second = true},
    {"sum_axes", fn_sum_last_two, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"sum_axes", fn_sum_none, SMOOTH, 1, {S(2, 3)}, NORMAL, .second = true},
    {"mean_axes", fn_mean_middle, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"mean_axes", fn_mean_outer, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"var_axes", fn_var_all, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"var_axes", fn_var_middle, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"std_axes", fn_std_middle, CURVED, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"std_axes", fn_std_outer, CURVED, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"cumsum", fn_cumsum_first, SMOOTH, 1, {S(3, 4)}, NORMAL, .second = true},
    {"cumsum", fn_cumsum_last, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"norm_axis", fn_norm_last, CURVED, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"norm_axes", fn_norm_outer, CURVED, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"min_axis", fn_min_1, SMOOTH, 1, {S(2, 3, 4)}, APART},
    {"max_axis", fn_max_0, SMOOTH, 1, {S(3, 4)}, APART},
    {"max_axis", fn_max_1, SMOOTH, 1, {S(2, 3, 4)}, APART},
    {"max_axis", fn_max_last, SMOOTH, 1, {S(2, 3, 4)}, APART},
    {"sum_to", fn_sum_to_row, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"sum_to", fn_sum_to_middle, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
};

const row_table rows_reduce = {rows, sizeof rows / sizeof *rows};
