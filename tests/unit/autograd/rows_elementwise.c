/* Rows of test_gradients (gradient_rows.h) for include/levin/ops_elementwise.h. */
#include "gradient_rows.h"

FN(add, lvn_add(in[0], in[1]))
FN(both_sides, lvn_add(in[0], in[0]))
FN(shared,
   lvn_add(lvn_square(in[0]),
           lvn_add(in[0], in[1]))) /* one gradient for both, then more for the first alone */
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
FN(rsqrt, lvn_rsqrt(in[0]))
FN(reciprocal, lvn_reciprocal(in[0]))
FN(pow, lvn_pow(in[0], in[1]))
FN(lerp, lvn_lerp(in[0], in[1], in[2]))
FN(minimum,
   lvn_minimum(lvn_slice(in[0], 0, 0, 3),
               lvn_slice(in[0], 0, 3, 6))) /* parts of one tensor: apart from each other, too */
FN(maximum, lvn_maximum(lvn_slice(in[0], 0, 0, 3), lvn_slice(in[0], 0, 3, 4)))
FN(where, lvn_where(lvn_gt_scalar(in[1], 0.1), in[0], in[1]))
FN(masked_fill, lvn_add(in[1], lvn_masked_fill(in[0], lvn_gt_scalar(in[1], 0.1), -3.0)))
FN(abs, lvn_abs(in[0]))
FN(pow_scalar, lvn_pow_scalar(in[0], 1.7))
FN(cube, lvn_pow_scalar(in[0], 3.0))
FN(constant, lvn_add(in[0], lvn_pow_scalar(in[0], 0.0)))
FN(clamp, lvn_clamp(in[0], -0.55, 0.45))
FN(erf, lvn_erf(in[0]))
FN(sin, lvn_sin(in[0]))
FN(cos, lvn_cos(lvn_mul_scalar(in[0], 3.0)))
FN(leaky_relu, lvn_leaky_relu(in[0], 0.2))
FN(prelu, lvn_prelu(in[0], in[1]))
FN(gelu, lvn_gelu(in[0]))
FN(gelu_tanh, lvn_gelu_tanh(in[0]))
FN(silu, lvn_silu(in[0]))
FN(sigmoid, lvn_sigmoid(in[0]))
FN(tanh, lvn_tanh(in[0]))
FN(softplus, lvn_softplus(in[0]))

static const row rows[] = {
    {"add", fn_add, SMOOTH, 2, {S(3, 4), S(3, 4)}, NORMAL, .second = true},
    {"add", fn_add, SMOOTH, 2, {S(2, 3, 4), S(4)}, NORMAL, .second = true},
    {"add", fn_add, SMOOTH, 2, {S(3, 1), S(2, 1, 5)}, NORMAL, .second = true}, /* both sides grow */
    {"add", fn_shared, SMOOTH, 2, {S(3, 4), S(3, 4)}, NORMAL, .second = true},
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
    {"relu", fn_relu, SMOOTH, 1, {S(4, 5)}, APART, .second = true},
    {"rsqrt", fn_rsqrt, CURVED, 1, {S(3, 5)}, POSITIVE, .second = true},
    {"reciprocal", fn_reciprocal, CURVED, 1, {S(3, 5)}, POSITIVE, .second = true},
    {"pow", fn_pow, CURVED, 2, {S(3, 4), S(3, 4)}, POSITIVE, .second = true},
    {"pow", fn_pow, CURVED, 2, {S(2, 1), S(3, 1, 4)}, POSITIVE, .second = true},
    {"lerp", fn_lerp, SMOOTH, 3, {S(2, 3, 4), S(2, 3, 4), S(2, 1, 1)}, NORMAL, .second = true},
    {"minimum", fn_minimum, SMOOTH, 1, {S(6, 4)}, APART, .second = true},
    {"maximum", fn_maximum, SMOOTH, 1, {S(4, 4)}, APART, .second = true},
    {"where", fn_where, SMOOTH, 2, {S(3, 4), S(3, 4)}, APART, .second = true},
    {"where", fn_where, SMOOTH, 2, {S(3, 1), S(2, 1, 4)}, APART, .second = true},
    {"masked_fill", fn_masked_fill, SMOOTH, 2, {S(2, 3, 4), S(3, 1)}, APART, .second = true},
    {"abs", fn_abs, SMOOTH, 1, {S(4, 5)}, APART, .second = true},
    {"pow_scalar", fn_pow_scalar, CURVED, 1, {S(3, 5)}, POSITIVE, .second = true},
    {"pow_scalar", fn_cube, CURVED, 1, {S(3, 5)}, NORMAL, .second = true},
    {"pow_scalar", fn_constant, SMOOTH, 1, {S(3, 5)}, POSITIVE, .second = true},
    {"clamp", fn_clamp, SMOOTH, 1, {S(4, 5)}, APART, .second = true},
    {"erf", fn_erf, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
    {"sin", fn_sin, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
    {"cos", fn_cos, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
    {"leaky_relu", fn_leaky_relu, SMOOTH, 1, {S(4, 5)}, APART, .second = true},
    {"prelu", fn_prelu, SMOOTH, 2, {S(4, 5), S(1)}, APART, .second = true},
    {"prelu", fn_prelu, SMOOTH, 2, {S(2, 3, 4), S(4)}, APART, .second = true},
    {"gelu", fn_gelu, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
    {"gelu_tanh", fn_gelu_tanh, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
    {"silu", fn_silu, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
    {"sigmoid", fn_sigmoid, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
    {"tanh", fn_tanh, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
    {"softplus", fn_softplus, SMOOTH, 1, {S(3, 5)}, NORMAL, .second = true},
};

const row_table rows_elementwise = {rows, sizeof rows / sizeof *rows};
