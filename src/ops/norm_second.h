/* The gradients of all norms written with ops, for create_graph. Used by op_norm.c and
 * op_layer_norm.c. */
#ifndef LEVIN_OPS_NORM_SECOND_H
#define LEVIN_OPS_NORM_SECOND_H

#include "autograd/tape.h"

/* How a norm sees x: reshaped to `shape`, mean and variance over the axes of `axes`, gamma and beta
 * reshaped to `params` (which broadcasts to `shape`). */
typedef struct lvni_ops_norm_view {
    int ndim, n_axes;
    int64_t shape[4], params[4];
    int axes[2];
    double eps;
} lvni_ops_norm_view;

/* Hands over the gradients of inputs 0 (x), 1 (gamma; NULL when there is none) and 2 (beta), where
 * wanted; `params` describes the latter two. */
lvn_status lvni_ops_norm_backward_ops(lvni_autograd_node *n, lvn_tensor *dy,
                                      const lvni_ops_norm_view *view, lvn_tensor *x,
                                      lvn_tensor *gamma, const lvni_tensor_desc *params);

#endif
