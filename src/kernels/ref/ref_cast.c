/* Reference kernel: f64 to another float type (through f32, as the other backends see numbers). */
#include "core/math.h"
#include "kernels/ref/ref_impl.h"

lvn_status lvni_ref_cast(const lvn_kernel_args *args)
{
    const double *x = lvni_ref_in(args, 0);
    void *y = args->out[0]->data;
    for (int64_t e = 0; e < lvn_numel(args->out[0]); e++) {
        switch (args->out[0]->dtype) {
        case LVN_F64: ((double *)y)[e] = x[e]; break;
        case LVN_BF16: ((uint16_t *)y)[e] = lvni_core_f32_to_bf16((float)x[e]); break;
        case LVN_F16: ((uint16_t *)y)[e] = lvni_core_f32_to_f16((float)x[e]); break;
        default: ((float *)y)[e] = (float)x[e]; break;
        }
    }
    return LVN_OK;
}
