/* Ops that reduce axes.
 * Rules for all ops, scopes and gradients: ops.h. */
#ifndef LEVIN_OPS_REDUCE_H
#define LEVIN_OPS_REDUCE_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reductions; axes may be negative ---- */
/* Sums and means of f32 are added in fixed blocks: the same bits on any number of threads. An empty
 * axis: sum 0, mean an error. */
LVN_API lvn_tensor *lvn_sum(lvn_tensor *x);  /* over everything: shape () */
LVN_API lvn_tensor *lvn_mean(lvn_tensor *x); /* over everything: shape () */
LVN_API lvn_tensor *lvn_sum_axes(lvn_tensor *x, const int *axes, int n_axes, bool keepdim);
LVN_API lvn_tensor *lvn_mean_axes(lvn_tensor *x, const int *axes, int n_axes, bool keepdim);
/* y[i] = x[0] + ... + x[i] along the axis, added in f64. */
LVN_API lvn_tensor *lvn_cumsum(lvn_tensor *x, int axis);
/* Down to a shape that broadcasts to x's (aligned at the last axis): axes that are 1 or absent
 * there are summed. */
LVN_API lvn_tensor *lvn_sum_to(lvn_tensor *x, int ndim, const int64_t *shape);
/* Mean of the squared distances from the mean, with terms - correction as divisor: 1 is the
 * unbiased variance, 0 that of the terms alone. */
LVN_API lvn_tensor *lvn_var_axes(lvn_tensor *x, const int *axes, int n_axes, bool keepdim,
                                 int correction);
/* Its square root; where it is 0, so is its gradient. */
LVN_API lvn_tensor *lvn_std_axes(lvn_tensor *x, const int *axes, int n_axes, bool keepdim,
                                 int correction);
/* Euclidean; where it is 0, so is its gradient */
LVN_API lvn_tensor *lvn_norm_axes(lvn_tensor *x, const int *axes, int n_axes, bool keepdim);
/* of one axis, which goes */
LVN_API lvn_tensor *lvn_norm_axis(lvn_tensor *x, int axis);
/* The gradient goes to the first maximum; NaN counts as the largest. */
LVN_API lvn_tensor *lvn_max_axis(lvn_tensor *x, int axis, bool keepdim);
/* likewise; a NaN counts as the smallest */
LVN_API lvn_tensor *lvn_min_axis(lvn_tensor *x, int axis, bool keepdim);
LVN_API lvn_tensor *lvn_argmin(lvn_tensor *x, int axis, bool keepdim);
LVN_API lvn_tensor *lvn_argmax(lvn_tensor *x, int axis, bool keepdim); /* i64; the first maximum */

#ifdef __cplusplus
}
#endif
#endif
