/* Ops on images (N, H, W, C).
 * Rules for all ops, scopes and gradients: ops.h. */
#ifndef LEVIN_OPS_IMAGE_H
#define LEVIN_OPS_IMAGE_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- images: (N, H, W, C) ---- */
typedef struct lvn_conv2d_options {
    size_t struct_size;
    int stride, padding, dilation, groups; /* 0: 1, 0, 1, 1 */
} lvn_conv2d_options;
/* x (N, H, W, I), w (O, KH, KW, I / groups), b (O) or NULL -> (N, H', W', O), H' = (H + 2 padding - dilation (KH - 1) - 1) / stride + 1 */
LVN_API lvn_tensor *lvn_conv2d_with(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b, const lvn_conv2d_options *o);
#define lvn_conv2d(x, w, b, ...) \
    lvn_conv2d_with((x), (w), (b), &(lvn_conv2d_options){.struct_size = sizeof(lvn_conv2d_options), __VA_ARGS__})

/* The gradient of conv2d's input as a layer (Dumoulin and Visin 2016, section 4): x (N, H, W, I), w (I, KH, KW, O / groups), b (O) or
 * NULL -> (N, H', W', O), H' = (H - 1) stride - 2 padding + dilation (KH - 1) + 1 + output_padding. The weight lies in memory as that of the
 * convolution (N, H', W', O) -> (N, H, W, I) whose transpose this is; PyTorch's (I, O / groups, KH, KW) is made at the file border.
 * output_padding adds rows and columns at the end, fewer than stride. */
typedef struct lvn_conv_transpose2d_options {
    size_t struct_size;
    int stride, padding, output_padding, groups, dilation; /* 0: 1, 0, 0, 1, 1 */
} lvn_conv_transpose2d_options;
LVN_API lvn_tensor *lvn_conv_transpose2d_with(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b, const lvn_conv_transpose2d_options *o);
#define lvn_conv_transpose2d(x, w, b, ...) \
    lvn_conv_transpose2d_with((x), (w), (b), &(lvn_conv_transpose2d_options){.struct_size = sizeof(lvn_conv_transpose2d_options), __VA_ARGS__})

typedef struct lvn_pool2d_options {
    size_t struct_size;
    int stride, padding; /* 0: the kernel, 0 */
} lvn_pool2d_options;
/* (N, H, W, C) -> (N, H', W', C), H' = (H + 2 padding - kernel) / stride + 1; padding at most half the kernel. */
LVN_API lvn_tensor *lvn_max_pool2d_with(lvn_tensor *x, int kernel, const lvn_pool2d_options *o);
#define lvn_max_pool2d(x, kernel, ...) \
    lvn_max_pool2d_with((x), (kernel), &(lvn_pool2d_options){.struct_size = sizeof(lvn_pool2d_options), __VA_ARGS__})
LVN_API lvn_tensor *lvn_global_avg_pool2d(lvn_tensor *x); /* (N, H, W, C) -> (N, C) */

#ifdef __cplusplus
}
#endif
#endif
