/* Ops that move, join or cut.
 * Rules for all ops, scopes and gradients: ops.h. */
#ifndef LEVIN_OPS_SHAPE_H
#define LEVIN_OPS_SHAPE_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- shapes ---- */
/* Both share the memory of x; nothing is copied. */
LVN_API lvn_tensor *lvn_reshape(lvn_tensor *x, int ndim, const int64_t *shape); /* one size may be -1 */
LVN_API lvn_tensor *lvn_flatten(lvn_tensor *x, int start_axis);                 /* axes from start_axis on become one */
LVN_API lvn_tensor *lvn_expand(lvn_tensor *x, int ndim, const int64_t *shape);  /* broadcast to a shape, as in NumPy; a copy */

#ifdef __cplusplus
}
#endif
#endif
