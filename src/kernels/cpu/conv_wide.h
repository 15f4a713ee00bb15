/* Convolutions in bf16 through f32 copies, for shapes of which oneDNN's bf16 kernels are known to
 * be wrong (onednn_version.c). Used by onednn_conv.c. */
#ifndef LEVIN_KERNELS_CPU_CONV_WIDE_H
#define LEVIN_KERNELS_CPU_CONV_WIDE_H

#include "kernels/kernels.h"

/* Run `kernel` with f32 copies of all bf16 tensors of `args` (in[0] is one; in[1] may be weights in
 * f32, which are rounded to bf16); its results are rounded to bf16 where
 * they were asked for in it. */
lvn_status lvni_cpu_conv_wide(lvn_kernel kernel, const lvn_kernel_args *args);

#endif
