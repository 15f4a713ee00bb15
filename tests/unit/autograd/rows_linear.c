/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_linear.h. */
#include "gradient_rows.h"

FN(matmul, lvn_matmul(in[0], in[1]))
FN(matmul_ta, lvn_matmul(in[0], in[1], .trans_a = true))
FN(matmul_tb, lvn_matmul(in[0], in[1], .trans_b = true))
FN(matmul_tt, lvn_matmul(in[0], in[1], .trans_a = true, .trans_b = true))
FN(gram, lvn_matmul(in[0], in[0], .trans_b = true))
FN(linear, lvn_linear(in[0], in[1], in[2]))
FN(linear_plain, lvn_linear(in[0], in[1], NULL))
FN(stack_tt, lvn_matmul(in[0], in[1], .trans_a = true, .trans_b = true))

static const row rows[] = {
    {"matmul_with", fn_matmul, SMOOTH, 2, {S(3, 4), S(4, 5)}, NORMAL, .second = true},
    {"matmul_with", fn_matmul_ta, SMOOTH, 2, {S(4, 3), S(4, 5)}, NORMAL, .second = true},
    {"matmul_with", fn_matmul_tb, SMOOTH, 2, {S(3, 4), S(5, 4)}, NORMAL, .second = true},
    {"matmul_with", fn_matmul_tt, SMOOTH, 2, {S(4, 3), S(5, 4)}, NORMAL, .second = true},
    {"matmul_with", fn_gram, SMOOTH, 1, {S(3, 4)}, NORMAL, .second = true},
    {"matmul_with", fn_matmul, SMOOTH, 2, {S(2, 3, 4), S(2, 4, 5)}, NORMAL, .second = true},
    {"matmul_with", fn_matmul_ta, SMOOTH, 2, {S(2, 4, 3), S(2, 4, 5)}, NORMAL, .second = true},
    {"matmul_with",
     fn_matmul_tb,
     SMOOTH,
     2,
     {S(2, 2, 3, 4), S(2, 2, 5, 4)},
     NORMAL,
     .second = true},
    {"matmul_with", fn_stack_tt, SMOOTH, 2, {S(2, 4, 3), S(2, 5, 4)}, NORMAL, .second = true},
    /* all rows at once */
    {"matmul_with", fn_matmul, SMOOTH, 2, {S(2, 3, 4), S(4, 5)}, NORMAL, .second = true},
    /* b broadcast */
    {"matmul_with", fn_matmul_ta, SMOOTH, 2, {S(2, 4, 3), S(4, 5)}, NORMAL, .second = true},
    /* a broadcast */
    {"matmul_with", fn_matmul, SMOOTH, 2, {S(3, 4), S(2, 4, 5)}, NORMAL, .second = true},
    {"matmul_with",
     fn_matmul_tb,
     SMOOTH,
     2,
     {S(2, 1, 3, 4), S(1, 3, 5, 4)},
     NORMAL,
     .second = true},
    {"linear", fn_linear, SMOOTH, 3, {S(2, 3, 4), S(5, 4), S(5)}, NORMAL, .second = true},
    {"linear", fn_linear, SMOOTH, 3, {S(3, 4), S(5, 4), S(5)}, NORMAL, .second = true},
    {"linear", fn_linear_plain, SMOOTH, 2, {S(2, 3), S(1, 3)}, NORMAL, .second = true},
};

const row_table rows_linear = {rows, sizeof rows / sizeof *rows};
