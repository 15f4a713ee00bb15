/* Checks that the shape rules share (shape_rules.c: element-wise, reductions, products;
 * shape_rules_nn.c: the rest). */
#ifndef LEVIN_KERNELS_SHAPE_RULES_IMPL_H
#define LEVIN_KERNELS_SHAPE_RULES_IMPL_H

#include "kernels/kernels_decl.h"

/* "(32, 8, 8, 64)", alive until the end of the enclosing block. */
#define LVNI_SHAPE_TEXT(t) lvni_tensor_shape_string((t)->ndim, (t)->shape, (char[96]){0})

/* Inputs of mask (bit i: input i; NULLs are skipped) have one float type. */
lvn_status lvni_kernels_rule_float(const char *op, const lvn_kernel_args *a, unsigned mask);
/* The same; those of `params` (weights, statistics) may be f32 beside bf16 or f16 in `data`. */
lvn_status lvni_kernels_rule_float_params(const char *op, const lvn_kernel_args *a, unsigned data,
                                          unsigned params);
/* The type of what is summed over `t` (a weight's gradient over dy, a loss over logits): f32 where
 * t is bf16 or f16. */
static inline lvn_dtype lvni_kernels_rule_weight_dtype(const lvn_tensor *t)
{
    return lvni_tensor_is_low(t->dtype) ? LVN_F32 : t->dtype;
}
lvn_status lvni_kernels_rule_dtype(const char *op, const char *what, const lvn_tensor *t,
                                   lvn_dtype dtype);
lvn_status lvni_kernels_rule_same(const char *op, const char *name_a, const lvn_tensor *a,
                                  const char *name_b, const lvn_tensor *b);
/* `t` is a vector of n values, one per `unit` ("channel") of x. */
lvn_status lvni_kernels_rule_vector(const char *op, const char *what, const lvn_tensor *t,
                                    int64_t n, const char *unit, const lvn_tensor *x);

/* `t` has 4 axes: batch, height, width, channels. */
lvn_status lvni_kernels_rule_image(const char *op, const char *what, const lvn_tensor *t);
/* Places of a window along one axis: floor((in + 2 pad - (dilation (kernel - 1) + 1)) / stride) +
 * 1. */
lvn_status lvni_kernels_rule_window(const char *op, const char *axis, int64_t in, int64_t kernel,
                                    int stride, int padding, int dilation, int64_t *out);
/* Those along both axes of an image, with at most half a kernel of padding, so that every window
 * holds a pixel. */
lvn_status lvni_kernels_rule_pool(const char *op, const lvn_pool_attr *a, const int64_t in[2],
                                  int64_t out[2]);
/* The shape that a and b broadcast to (NumPy: aligned at the last axis, sizes equal or one of them
 * 1), of the type of a. */
lvn_status lvni_kernels_rule_broadcast(const char *op, const lvn_tensor *a, const lvn_tensor *b,
                                       lvni_tensor_desc *out);
/* Element-wise ops of one input; gradients of such: dy and what the forward kept ("x", "y"). */
lvn_status lvni_kernels_rule_like_input(const char *op, const lvn_kernel_args *args,
                                        lvni_tensor_desc out[LVN_KERNEL_OUTPUTS]);
lvn_status lvni_kernels_rule_like_pair(const char *op, const char *kept,
                                       const lvn_kernel_args *args,
                                       lvni_tensor_desc out[LVN_KERNEL_OUTPUTS]);

static inline lvni_tensor_desc lvni_kernels_rule_make(lvn_dtype dtype, int ndim,
                                                      const int64_t *shape)
{
    lvni_tensor_desc d = {.dtype = dtype, .ndim = ndim};
    for (int i = 0; i < ndim; i++) {
        d.shape[i] = shape[i];
    }
    return d;
}

#endif
