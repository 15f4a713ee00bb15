/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_shape.h. */
#include "gradient_rows.h"

FN(reshape, lvn_reshape(in[0], 3, (const int64_t[]){2, -1, 3}))
FN(flatten, lvn_flatten(in[0], 1))
FN(flatten_last, lvn_flatten(in[0], -1))
FN(expand, lvn_expand(in[0], 3, (const int64_t[]){2, 3, 4}))
FN(permute, lvn_permute(in[0], (const int[]){2, 0, 1}, 3))
FN(permute_heads, lvn_permute(in[0], (const int[]){0, -2, 1, -1}, 4))
FN(transpose, lvn_transpose(in[0], -1, 0))
FN(concat, lvn_concat(in, 3, -1))
FN(concat_same, lvn_concat((lvn_tensor *[]){in[0], in[0]}, 2, 0))
FN(concat_many, lvn_concat((lvn_tensor *[]){in[0], in[1], in[0], in[1], in[1], in[0], in[0], in[1],
                                            in[0], in[1]},
                           10, 1))
FN(stack, lvn_stack(in, 3, 1))
FN(stack_last, lvn_stack(in, 2, -1))
FN(slice, lvn_slice(in[0], 1, 1, 3))
FN(slice_end, lvn_slice(in[0], -1, 2, LVN_END))
FN(pad, lvn_pad(in[0], ((const int64_t[]){0, 1, 2}), ((const int64_t[]){1, 0, 2}), .value = 0.5))
FN(pad_reflect,
   lvn_pad(in[0], ((const int64_t[]){1, 2, 3}), ((const int64_t[]){0, 2, 1}), .reflect = true))
FN(pad2d, lvn_pad2d(in[0], 1, 0, 2, 1))
FN(pad2d_reflect, lvn_pad2d(in[0], 1, 2, 3, 0, .reflect = true))

FN(sorted, lvn_sort(in[0], 1, false, NULL))
FN(sorted_down, lvn_sort(in[0], 0, true, NULL))
FN(top, lvn_topk(in[0], 2, -1, true, NULL))
FN(scatter_add,
   lvn_scatter_add(in[0], 1, lvn_argsort(lvn_detach(in[1]), 1, false), lvn_square(in[1])))

/* the last two of five columns are written to the same places */
static lvn_tensor *overwritten(lvn_tensor *x, lvn_tensor *source)
{
    lvn_tensor *order = lvn_argsort(lvn_detach(source), 1, false); /* 0 to 3 */
    lvn_tensor *last = lvn_slice(order, 1, 3, 4);
    return lvn_scatter(
        x, 1, lvn_concat((lvn_tensor *[]){lvn_slice(order, 1, 0, 3), last, last}, 3, 1),
        lvn_square(lvn_concat((lvn_tensor *[]){source, lvn_slice(source, 1, 0, 1)}, 2, 1)));
}
FN(scatter, overwritten(in[0], in[1]))

static const row rows[] = {
    {"reshape", fn_reshape, SMOOTH, 1, {S(3, 4)}, NORMAL, .second = true},
    {"flatten", fn_flatten, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"flatten", fn_flatten_last, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"permute", fn_permute, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"permute", fn_permute_heads, SMOOTH, 1, {S(2, 3, 2, 4)}, NORMAL, .second = true},
    {"transpose", fn_transpose, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"concat", fn_concat, SMOOTH, 3, {S(2, 3), S(2, 1), S(2, 4)}, NORMAL, .second = true},
    {"concat", fn_concat_same, SMOOTH, 1, {S(2, 3)}, NORMAL, .second = true},
    {"concat", fn_concat_many, SMOOTH, 2, {S(2, 1), S(2, 2)}, NORMAL, .second = true},
    {"stack", fn_stack, SMOOTH, 3, {S(2, 3), S(2, 3), S(2, 3)}, NORMAL, .second = true},
    {"stack", fn_stack_last, SMOOTH, 2, {S(2, 3), S(2, 3)}, NORMAL, .second = true},
    {"slice", fn_slice, SMOOTH, 1, {S(2, 4, 3)}, NORMAL, .second = true},
    {"slice", fn_slice_end, SMOOTH, 1, {S(2, 4)}, NORMAL, .second = true},
    {"pad_with", fn_pad, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"pad_with", fn_pad_reflect, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"pad2d_with", fn_pad2d, SMOOTH, 1, {S(2, 3, 4, 2)}, NORMAL, .second = true},
    {"pad2d_with", fn_pad2d_reflect, SMOOTH, 1, {S(2, 3, 4, 2)}, NORMAL, .second = true},
    {"sort", fn_sorted, SMOOTH, 1, {S(2, 5, 2)}, APART, .second = true},
    {"sort", fn_sorted_down, SMOOTH, 1, {S(4, 3)}, APART, .second = true},
    {"topk", fn_top, SMOOTH, 1, {S(3, 5)}, APART, .second = true},
    {"scatter_add", fn_scatter_add, SMOOTH, 2, {S(2, 5, 3), S(2, 4, 3)}, APART, .second = true},
    {"scatter", fn_scatter, SMOOTH, 2, {S(2, 5, 3), S(2, 4, 3)}, APART, .second = true},
    {"expand", fn_expand, SMOOTH, 1, {S(3, 1)}, NORMAL, .second = true},
};

const row_table rows_shape = {rows, sizeof rows / sizeof *rows};
