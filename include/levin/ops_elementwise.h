/* Ops element by element.
 * Rules for all ops, scopes and gradients: ops.h. */
#ifndef LEVIN_OPS_ELEMENTWISE_H
#define LEVIN_OPS_ELEMENTWISE_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* a and b broadcast as in NumPy. */
LVN_API lvn_tensor *lvn_add(lvn_tensor *a, lvn_tensor *b);
LVN_API lvn_tensor *lvn_sub(lvn_tensor *a, lvn_tensor *b);
LVN_API lvn_tensor *lvn_mul(lvn_tensor *a, lvn_tensor *b);
LVN_API lvn_tensor *lvn_div(lvn_tensor *a, lvn_tensor *b);
LVN_API lvn_tensor *lvn_add_scalar(lvn_tensor *x, double c);
LVN_API lvn_tensor *lvn_mul_scalar(lvn_tensor *x, double c);
LVN_API lvn_tensor *lvn_neg(lvn_tensor *x);
LVN_API lvn_tensor *lvn_exp(lvn_tensor *x);
/* natural logarithm (lvn_log is the trainer's metric call) */
LVN_API lvn_tensor *lvn_log_e(lvn_tensor *x);
LVN_API lvn_tensor *lvn_square(lvn_tensor *x);
LVN_API lvn_tensor *lvn_sqrt(lvn_tensor *x);
LVN_API lvn_tensor *lvn_relu(lvn_tensor *x);
LVN_API lvn_tensor *lvn_rsqrt(lvn_tensor *x);      /* 1 / sqrt(x) */
LVN_API lvn_tensor *lvn_reciprocal(lvn_tensor *x); /* 1 / x */
LVN_API lvn_tensor *lvn_abs(lvn_tensor *x);        /* slope 0 at 0 */
LVN_API lvn_tensor *lvn_sign(lvn_tensor *x);       /* -1, 0, 1; no gradient */
/* To a whole number, the sign of zeros kept; no gradient. */
LVN_API lvn_tensor *lvn_round(lvn_tensor *x); /* to the nearest; 0.5, 2.5: to the even 0, 2 */
LVN_API lvn_tensor *lvn_floor(lvn_tensor *x);
LVN_API lvn_tensor *lvn_ceil(lvn_tensor *x);
LVN_API lvn_tensor *lvn_sin(lvn_tensor *x); /* radians, of any size; NaN for infinities */
LVN_API lvn_tensor *lvn_cos(lvn_tensor *x);
LVN_API lvn_tensor *lvn_pow_scalar(lvn_tensor *x, double exponent);
/* the gradient passes where min <= x <= max */
LVN_API lvn_tensor *lvn_clamp(lvn_tensor *x, double min, double max);
/* 2 / sqrt(pi) integral of e^(-t^2) from 0 to x */
LVN_API lvn_tensor *lvn_erf(lvn_tensor *x);

/* ---- two operands, with broadcasting ---- */
/* special values as C's pow */
LVN_API lvn_tensor *lvn_pow(lvn_tensor *base, lvn_tensor *exponent);
LVN_API lvn_tensor *lvn_lerp(lvn_tensor *a, lvn_tensor *b, lvn_tensor *t); /* a + t (b - a) */
/* NaN where one is. Where equal, half the gradient goes to each; where one is NaN, all of it to
 * both, as in PyTorch. */
LVN_API lvn_tensor *lvn_minimum(lvn_tensor *a, lvn_tensor *b);
LVN_API lvn_tensor *lvn_maximum(lvn_tensor *a, lvn_tensor *b);
/* Comparisons of floats or i64 -> bool, no gradient; also against a number. NaN is unequal to
 * everything and in no order. */
LVN_API lvn_tensor *lvn_eq(lvn_tensor *a, lvn_tensor *b);
LVN_API lvn_tensor *lvn_ne(lvn_tensor *a, lvn_tensor *b);
LVN_API lvn_tensor *lvn_lt(lvn_tensor *a, lvn_tensor *b);
LVN_API lvn_tensor *lvn_le(lvn_tensor *a, lvn_tensor *b);
LVN_API lvn_tensor *lvn_gt(lvn_tensor *a, lvn_tensor *b);
LVN_API lvn_tensor *lvn_ge(lvn_tensor *a, lvn_tensor *b);
LVN_API lvn_tensor *lvn_eq_scalar(lvn_tensor *x, double value);
LVN_API lvn_tensor *lvn_ne_scalar(lvn_tensor *x, double value);
LVN_API lvn_tensor *lvn_lt_scalar(lvn_tensor *x, double value);
LVN_API lvn_tensor *lvn_le_scalar(lvn_tensor *x, double value);
LVN_API lvn_tensor *lvn_gt_scalar(lvn_tensor *x, double value);
LVN_API lvn_tensor *lvn_ge_scalar(lvn_tensor *x, double value);
/* a where condition (bool) is true, else b; all three broadcast. */
LVN_API lvn_tensor *lvn_where(lvn_tensor *condition, lvn_tensor *a, lvn_tensor *b);

/* value where mask (bool, broadcast to the shape of x) is true, else x: gradient 0 there */
LVN_API lvn_tensor *lvn_masked_fill(lvn_tensor *x, lvn_tensor *mask, double value);

/* ---- activations ---- */
/* x, below 0 slope x. Maas, Hannun & Ng 2013 */
LVN_API lvn_tensor *lvn_leaky_relu(lvn_tensor *x, double slope);
/* The same with a slope that is learned: x (..., C), slope (1), or (C) one for each number of the
 * last axis; the result as x. Another shape of slope fails the scope. He et al. 2015, "Delving deep
 * into rectifiers" */
LVN_API lvn_tensor *lvn_prelu(lvn_tensor *x, lvn_tensor *slope);
/* x P(X <= x), X standard normal: x (1 + erf(x / sqrt 2)) / 2. Hendrycks & Gimpel 2016, "Gaussian
 * error linear units" */
LVN_API lvn_tensor *lvn_gelu(lvn_tensor *x);
/* The same paper's approximation: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
LVN_API lvn_tensor *lvn_gelu_tanh(lvn_tensor *x);
LVN_API lvn_tensor *lvn_silu(lvn_tensor *x);    /* x sigmoid(x). Elfwing, Uchibe & Doya 2018 */
LVN_API lvn_tensor *lvn_sigmoid(lvn_tensor *x); /* 1 / (1 + e^-x) */
LVN_API lvn_tensor *lvn_tanh(lvn_tensor *x);
LVN_API lvn_tensor *lvn_softplus(lvn_tensor *x); /* log(1 + e^x). Dugas et al. 2001 */

#ifdef __cplusplus
}
#endif
#endif
