/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_shape.h. */
#include "gradient_rows.h"

FN(reshape, lvn_reshape(in[0], 3, (const int64_t[]){2, -1, 3}))
FN(flatten, lvn_flatten(in[0], 1))
FN(flatten_last, lvn_flatten(in[0], -1))
FN(expand, lvn_expand(in[0], 3, (const int64_t[]){2, 3, 4}))

static const row rows[] = {
    {"reshape", fn_reshape, SMOOTH, 1, {S(3, 4)}, NORMAL, .second = true},
    {"flatten", fn_flatten, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"flatten", fn_flatten_last, SMOOTH, 1, {S(2, 3, 4)}, NORMAL, .second = true},
    {"expand", fn_expand, SMOOTH, 1, {S(3, 1)}, NORMAL, .second = true},
};

const row_table rows_shape = {rows, sizeof rows / sizeof *rows};
