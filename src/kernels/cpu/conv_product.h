/* Convolutions as matrix products. A 1 x 1 window over NHWC images is a product as it stands; for
 * other windows the pixels under each one are laid out as a row first ("im2col": Chellapilla, Puri
 * and Simard 2006, section 4.1), or the product's rows are added back to the pixels they came from.
 * oneDNN's own convolutions go over rows of pixels and lose up to a factor of ten on images of few
 * pixels, on strides, and in bf16; where they do, these are taken. Used by onednn_conv.c. */
#ifndef LEVIN_KERNELS_CPU_CONV_PRODUCT_H
#define LEVIN_KERNELS_CPU_CONV_PRODUCT_H

#include "kernels/kernels.h"

/* x (N, H, W, I), y (N, OH, OW, O), w (O, KH, KW, I / groups), or the gradients of them; b (O) or
 * NULL. What is computed is written. */
typedef struct lvni_cpu_conv_call {
    const lvn_conv_attr *attr;
    const lvn_tensor *x, *y, *w, *b;
} lvni_cpu_conv_call;

/* Is the product the quicker way? By shape and type alone, so that every team takes the same
 * one. */
bool lvni_cpu_conv_product_forward_pays(const lvni_cpu_conv_call *c);
bool lvni_cpu_conv_product_grad_input_pays(const lvni_cpu_conv_call *c);
bool lvni_cpu_conv_product_grad_weight_pays(const lvni_cpu_conv_call *c);

/* None of the tensors is empty, and the answer above was yes. In f32 the weight gradient has the
 * bits of wgrad_threads, the others of no team; in bf16 all run with wgrad_threads, as all products
 * do (onednn_table.c). */
lvn_status lvni_cpu_conv_product_forward(const lvni_cpu_conv_call *c);
lvn_status lvni_cpu_conv_product_grad_input(const lvni_cpu_conv_call *c);
lvn_status lvni_cpu_conv_product_grad_weight(const lvni_cpu_conv_call *c);
/* The same with a bound on its memory, and other bits; all in f32. */
lvn_status lvni_cpu_conv_product_grad_weight_in_blocks(const lvni_cpu_conv_call *c);

/* conv_groups.c: any shape in f32, as products group by group, with groups and dilation: for shapes
 * of which oneDNN has only a reference implementation, thousands of times slower. The weight
 * gradient has the bits of wgrad_threads. */
lvn_status lvni_cpu_conv_groups_forward(const lvni_cpu_conv_call *c);
lvn_status lvni_cpu_conv_groups_grad_input(const lvni_cpu_conv_call *c);
lvn_status lvni_cpu_conv_groups_grad_weight(const lvni_cpu_conv_call *c);

/* conv_depthwise.c: a weight gradient with bits of no team; none of the tensors is empty. fits: by
 * shape and type alone. */
bool lvni_cpu_conv_depthwise_grad_weight_fits(const lvni_cpu_conv_call *c);
lvn_status lvni_cpu_conv_depthwise_grad_weight(const lvni_cpu_conv_call *c);

#endif
