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
/* one size may be -1 */
LVN_API lvn_tensor *lvn_reshape(lvn_tensor *x, int ndim, const int64_t *shape);
/* axes from start_axis on become one */
LVN_API lvn_tensor *lvn_flatten(lvn_tensor *x, int start_axis);
/* broadcast to a shape, as in NumPy; a copy */
LVN_API lvn_tensor *lvn_expand(lvn_tensor *x, int ndim, const int64_t *shape);

/* ---- elements moved, joined, cut; any type, negative axes count from the end ---- */
enum { LVN_END = -1 }; /* where a slice stops: at the end of the axis */
/* Axis i of the result is axis axes[i] of x; n_axes: all of x's. */
LVN_API lvn_tensor *lvn_permute(lvn_tensor *x, const int *axes, int n_axes);
/* two axes change places */
LVN_API lvn_tensor *lvn_transpose(lvn_tensor *x, int axis_a, int axis_b);
/* n tensors one after the other along an axis; sizes agree in all others. */
LVN_API lvn_tensor *lvn_concat(lvn_tensor *const *tensors, int n, int axis);
/* n tensors of one shape along a new axis, which the result has in place `axis`. */
LVN_API lvn_tensor *lvn_stack(lvn_tensor *const *tensors, int n, int axis);
/* Elements start, start + 1, .. stop - 1 of an axis, 0 <= start <= stop <= size; a copy. */
LVN_API lvn_tensor *lvn_slice(lvn_tensor *x, int axis, int64_t start, int64_t stop);
/* parts[i] gets sizes[i] elements of the axis, one part after the other; the sizes add up to it. On
 * failure all parts are NULL. */
LVN_API lvn_status lvn_split(lvn_tensor *x, int axis, const int64_t *sizes, int n,
                             lvn_tensor **parts);

typedef struct lvn_pad_options {
    size_t struct_size;
    double value; /* of the border */
    /* the border shows x mirrored at its first and last element (which are not repeated); it is
     * smaller than the axis */
    bool reflect;
} lvn_pad_options;
/* before[i] and after[i] elements around axis i, for all axes of x. */
LVN_API lvn_tensor *lvn_pad_with(lvn_tensor *x, const int64_t *before, const int64_t *after,
                                 const lvn_pad_options *o);
#define lvn_pad(x, before, after, ...)                                                             \
    lvn_pad_with((x), (before), (after),                                                           \
                 &(lvn_pad_options){.struct_size = sizeof(lvn_pad_options), __VA_ARGS__})
/* Images (N, H, W, C): rows at the top and bottom, columns at the left and right. */
LVN_API lvn_tensor *lvn_pad2d_with(lvn_tensor *x, int64_t top, int64_t bottom, int64_t left,
                                   int64_t right, const lvn_pad_options *o);
#define lvn_pad2d(x, top, bottom, left, right, ...)                                                \
    lvn_pad2d_with((x), (top), (bottom), (left), (right),                                          \
                   &(lvn_pad_options){.struct_size = sizeof(lvn_pad_options), __VA_ARGS__})

/* index (M) i64 in [0, size): the slices of x at index along the axis. The gradient adds what was
 * taken several times, in the order of the index: the same bits always. */
LVN_API lvn_tensor *lvn_index_select(lvn_tensor *x, int axis, lvn_tensor *index);
/* index i64, shaped like x but along the axis: y[i][m][k] = x[i][index[i][m][k]][k] for axis 1 of
 * three. The gradient as above. */
LVN_API lvn_tensor *lvn_gather(lvn_tensor *x, int axis, lvn_tensor *index);
/* x with every element of source added at its index along the axis: y[i][index[i][m][k]][k] +=
 * source[i][m][k] for axis 1 of three. source and index (i64) have one shape, that of x but along
 * the axis. What meets in a place is added in the order of the index: the same bits always. */
LVN_API lvn_tensor *lvn_scatter_add(lvn_tensor *x, int axis, lvn_tensor *index, lvn_tensor *source);
/* x with elements replaced: y[i][index[i][m][k]][k] = source[i][m][k], shapes as above. Of several
 * that meet in a place the last in the order of the index remains, and it alone gets the gradient
 * of the place; x gets that of the others. */
LVN_API lvn_tensor *lvn_scatter(lvn_tensor *x, int axis, lvn_tensor *index, lvn_tensor *source);
/* labels (...) i64 in [0, classes) -> (..., classes) of a float type: 1 at the label, else 0. No
 * gradient. */
LVN_API lvn_tensor *lvn_one_hot(lvn_tensor *labels, int64_t classes, lvn_dtype dtype);

/* ---- order along an axis ----
 * Equal elements stay in the order of their places (0 and -0 are equal), whichever way; NaN counts
 * as the largest. */
/* Places (i64) in the order of their elements; no gradient. */
LVN_API lvn_tensor *lvn_argsort(lvn_tensor *x, int axis, bool descending);
/* The elements in that order; *index (may be NULL) receives their places. The gradient goes to the
 * places. */
LVN_API lvn_tensor *lvn_sort(lvn_tensor *x, int axis, bool descending, lvn_tensor **index);
/* The k largest, the largest first, or the k smallest; 0 <= k <= size of the axis. */
LVN_API lvn_tensor *lvn_topk(lvn_tensor *x, int64_t k, int axis, bool largest, lvn_tensor **index);

#ifdef __cplusplus
}
#endif
#endif
