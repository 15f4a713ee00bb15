/* What ops along an axis share (op_move.c; op_order.c uses it). */
#ifndef LEVIN_OPS_MOVE_H
#define LEVIN_OPS_MOVE_H

#include "autograd/tape.h"

/* *axis from the end becomes one from the start; false with an error when there is none of
 * `ndim`. */
bool lvni_ops_own_axis(const char *op, const lvn_tensor *x, int *axis, int ndim);
/* The adjoint of lvn_gather, recorded: zeros with `size` elements along the axis (not negative), to
 * which those of x are added at index. */
lvn_tensor *lvni_ops_put_back(lvn_tensor *x, int axis, int64_t size, lvn_tensor *index);

#endif
