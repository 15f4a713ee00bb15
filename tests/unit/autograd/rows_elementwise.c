/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_elementwise.h. */
#include "gradient_rows.h"

FN(add, lvn_add(in[0], in[1]))
FN(both_sides, lvn_add(in[0], in[0]))
FN(sub, lvn_sub(in[0], in[1]))
FN(mul, lvn_mul(in[0], in[1]))
FN(twice, lvn_add(lvn_mul(in[0], in[0]), lvn_mul_scalar(in[0], 3.0)))
FN(div, lvn_div(in[0], in[1]))
FN(add_scalar, lvn_add_scalar(in[0], 2.5))
FN(mul_scalar, lvn_mul_scalar(in[0], -1.5))
FN(neg, lvn_neg(in[0]))
FN(exp, lvn_exp(in[0]))
FN(log_e, lvn_log_e(in[0]))
FN(square, lvn_square(in[0]))
FN(sqrt, lvn_sqrt(in[0]))
FN(relu, lvn_relu(in[0]))

static const row rows[] = {
    {"add", fn_add, SMOOTH, 2, {S(3, 4), S(3, 4)}, NORMAL, .second = true},
    {"add", fn_add, SMOOTH, 2, {S(2, 3, 4), S(4)}, NORMAL, .second = true},
    {"add", fn_add, SMOOTH, 2, {S(3, 1), S(2, 1, 5)}, NORMAL, .second = true}, /* both sides grow */
    {"add", fn_both_sides, SMOOTH, 1, {S(5)}, NORMAL, .second = true},
    {"sub", fn_sub, SMOOTH, 2, {S(3, 4), S(3, 4)}, NORMAL, .second = true},
    {"sub", fn_sub, SMOOTH, 2, {S(1, 4), S(3, 1)}, NORMAL, .second = true},
    {"mul", fn_mul, SMOOTH, 2, {S(3, 4), S(3, 4)}, NORMAL, .second = true},
    {"mul", fn_mul, SMOOTH, 2, {S(4), S(2, 3, 4)}, NORMAL, .second = true},
    {"mul", fn_mul, SMOOTH, 2, {S(2, 1, 3), S(4, 1)}, NORMAL, .second = true},
    {"mul", fn_twice, SMOOTH, 1, {S(3, 2)}, NORMAL, .second = true},
    {"div", fn_div, CURVED, 2, {S(3, 4), S(3, 4)}, POSITIVE, .second = true},
    {"div", fn_div, CURVED, 2, {S(2, 3, 1), S(1, 4)}, POSITIVE, .second = true},
    {"add_scalar", fn_add_scalar, SMOOTH, 1, {S(2, 5)}, NORMAL, .second = true},
    {"mul_scalar", fn_mul_scalar, SMOOTH, 1, {S(2, 5)}, NORMAL, .second = true},
    {"neg", fn_neg, SMOOTH, 1, {S(7)}, NORMAL, .second = true},
    {"exp", fn_exp, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
    {"log_e", fn_log_e, CURVED, 1, {S(3, 5)}, POSITIVE, .second = true},
    {"square", fn_square, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
    {"sqrt", fn_sqrt, CURVED, 1, {S(3, 5)}, POSITIVE, .second = true},
    {"relu", fn_relu, SMOOTH, 1, {S(4, 5)}, APART},
};

const row_table rows_elementwise = {rows, sizeof rows / sizeof *rows};
