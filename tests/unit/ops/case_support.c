/* Helpers of the tests that go over the cases of ops (case_support.h). */
#include "case_support.h"

#include <string.h>

void case_inputs_low(lvni_kernels_op op, const lvni_check_case *row, lvn_dtype dtype,
                     lvn_tensor *in64[LVN_KERNEL_INPUTS], lvn_tensor *low[LVN_KERNEL_INPUTS])
{
    lvni_check_inputs in;
    if (lvni_check_inputs_make(op, row, dtype, &in) != LVN_OK) {
        fail_msg("%s, case \"%s\": %s", lvni_kernels_ops[op].name, row->name,
                 lvn_last_error()->message);
    }
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        in64[i] = in.truth[i] == NULL ? NULL : support_keep(in.truth[i]);
        low[i] = in.own[i] == NULL ? NULL : support_keep(in.own[i]);
    }
}

void case_inputs(lvni_kernels_op op, const lvni_check_case *row,
                 lvn_tensor *in64[LVN_KERNEL_INPUTS], lvn_tensor *in32[LVN_KERNEL_INPUTS])
{
    case_inputs_low(op, row, LVN_F32, in64, in32);
}

lvn_kernel_args case_run(lvni_kernels_op op, const lvni_check_case *row, lvn_tensor *const *in)
{
    lvn_kernel_args args = {.attr = lvni_check_attribute(op, row)};
    memcpy(args.in, in, sizeof args.in);
    if (lvni_kernels_run(op, &args, ~0u) != LVN_OK) {
        fail_msg("%s, case \"%s\": %s", lvni_kernels_ops[op].name, row->name,
                 lvn_last_error()->message);
    }
    for (int i = 0; i < lvni_kernels_ops[op].n_out; i++) {
        support_keep(args.out[i]);
    }
    return args;
}
