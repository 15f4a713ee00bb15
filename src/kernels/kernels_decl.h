/* Declares the three functions behind each line of ops.def: shape rule, ref kernel, cpu kernel.
 * Included by the files that define them, so that a definition with another signature does not
 * compile, and by op_table.c. */
#ifndef LEVIN_KERNELS_KERNELS_DECL_H
#define LEVIN_KERNELS_KERNELS_DECL_H

#include "kernels/kernels.h"

#define LVNI_OP(name, n_in, n_out, attr_type, flags, sentence)                                     \
    lvn_status lvni_kernels_shape_##name(const lvn_kernel_args *args,                              \
                                         lvni_tensor_desc out[LVN_KERNEL_OUTPUTS]);                \
    lvn_status lvni_ref_##name(const lvn_kernel_args *args);                                       \
    lvn_status lvni_cpu_##name(const lvn_kernel_args *args);
#include "kernels/ops.def"
#undef LVNI_OP

#endif
