/* Convolutions of any shape in f32, as products group by group: for shapes of which oneDNN has only
 * a reference implementation, thousands of times slower. Used by onednn_conv.c. */
#ifndef LEVIN_KERNELS_CPU_CONV_GROUPS_H
#define LEVIN_KERNELS_CPU_CONV_GROUPS_H

#include "kernels/cpu/conv_product.h"

/* As lvni_cpu_conv_product_*, with groups and dilation. The weight gradient has the bits of
 * wgrad_threads. */
lvn_status lvni_cpu_conv_groups_forward(const lvni_cpu_conv_call *c);
lvn_status lvni_cpu_conv_groups_grad_input(const lvni_cpu_conv_call *c);
lvn_status lvni_cpu_conv_groups_grad_weight(const lvni_cpu_conv_call *c);

#endif
