/* One call of a kernel, for run.c: its scratch memory, who failed, and what a dry run finds out
 * about the backend that it stands for. */
#ifndef LEVIN_KERNELS_CALL_H
#define LEVIN_KERNELS_CALL_H

#include "kernels/kernels.h"
#include "tensor/device.h"

/* Where an op runs: the host's backends have neither device nor stream. */
typedef struct lvni_kernels_place {
    int kind; /* whose kernels */
    const lvn_backend *backend;
    lvni_tensor_device *device; /* where the memory is */
    void *state, *stream;
    bool dry; /* the kernels are looked up, and do not run */
} lvni_kernels_place;

/* Point the arguments there. */
void lvni_kernels_aim(const lvni_kernels_place *at, const lvni_kernels_op_info *info,
                      lvn_kernel_args *args);
/* With arguments that were aimed. An error names device and op. */
lvn_status lvni_kernels_call(const lvni_kernels_place *at, const lvni_kernels_op_info *info,
                             const lvn_kernel_args *args);
/* There is no kernel for these arguments: LVN_ERR_UNSUPPORTED. A dry run notes it and goes on. */
lvn_status lvni_kernels_refuse(const lvni_kernels_place *at, const lvni_kernels_op_info *info,
                               const lvn_kernel_args *args);

/* flops.c: of a dry run; into the context's sum. */
void lvni_kernels_count_flops(const lvni_kernels_op_info *info, const lvn_kernel_args *args);

#endif
