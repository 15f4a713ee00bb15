/* Primitives whose weights have a layout or type of their own: the plain master copy is carried to
 * it, its gradient back. Used by onednn_conv.c and onednn_matmul.c. */
#ifndef LEVIN_KERNELS_CPU_ONEDNN_WEIGHTS_H
#define LEVIN_KERNELS_CPU_ONEDNN_WEIGHTS_H

#include "kernels/cpu/onednn_table.h"
#include "tensor/tensor.h"

/* Run with the weights w; data[LVNI_DNN_WEIGHTS] is filled here. Parameters stay as they are for a
 * whole step: their copy is shared by all lanes (weights_cache.h). Other weights are carried over
 * each time. Inside the team of `f`. */
lvn_status lvni_cpu_dnn_run_with_weights(const lvni_cpu_dnn_found *f, const void **data,
                                         const lvn_tensor *w);
/* The f32 numbers of a bias, which may be bf16 (then in scratch memory of the lane, until the next
 * own kernel) or absent. */
lvn_status lvni_cpu_dnn_bias(const lvn_tensor *b, const void **out);
/* Run what computes a gradient of weights into its plain form `dw`. */
lvn_status lvni_cpu_dnn_run_to_weights(const lvni_cpu_dnn_found *f, const void **data, void *dw);

#endif
