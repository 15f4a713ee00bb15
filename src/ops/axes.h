/* Axes of reductions, for op_reduce.c and op_spread.c. */
#ifndef LEVIN_OPS_AXES_H
#define LEVIN_OPS_AXES_H

#include "tensor/tensor.h"

/* Axes (negative ones from the end) to a mask; false with an error when one is out of range or
 * twice. */
bool lvni_ops_axes_mask(const char *op, const lvn_tensor *x, const int *axes, int n,
                        uint32_t *mask);
/* The axis of the greatest or least element, to a mask; false with the op failed under the name
 * that was called. */
bool lvni_ops_axes_extreme(const char *op, lvn_tensor *x, int axis, uint32_t *mask);
/* The shape of x with the masked axes as size 1. */
void lvni_ops_axes_ones(const lvni_tensor_desc *x, uint32_t mask, int64_t shape[LVN_MAX_NDIM]);
/* Elements behind one result. */
double lvni_ops_axes_terms(const lvni_tensor_desc *x, uint32_t mask);

#endif
