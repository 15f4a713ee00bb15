/* Transposed convolution: the input gradient of a convolution, and a bias on top. Called through
 * the op table (kernels.h). */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"
#include "tensor/device.h"

#include <string.h>

/* Elements of a piece: the bias is repeated, so that a call of the inner loop is worth its
 * while. */
enum { PIECE = 1024 };

typedef struct bias_job {
    lvn_tensor *y;
    /* repeated: channels + PIECE elements at least, so that a piece may begin at any channel */
    const float *bias;
    int64_t n, channels;
} bias_job;

/* An item is one piece of y. */
static void bias_range(const void *job, int64_t begin, int64_t end)
{
    const bias_job *j = job;
    const lvni_cpu_vec *vec = lvni_cpu_isa();
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i * PIECE, left = j->n - at, n = left < PIECE ? left : PIECE;
        const float *bias = j->bias + at % j->channels;
        if (j->y->dtype == LVN_F32) {
            vec->accumulate(LVNI_F32(j->y) + at, bias, n);
        } else {
            uint16_t *y = (uint16_t *)j->y->data + at;
            float wide[PIECE];
            vec->from_bf16(y, wide, n);
            vec->accumulate(wide, bias, n);
            vec->to_bf16(wide, y, n);
        }
    }
}

lvn_status lvni_cpu_conv_transpose2d(const lvn_kernel_args *args)
{
    const lvn_tensor *b = args->in[2];
    lvn_tensor *y = args->out[0];
    LVN_TRY(lvni_cpu_conv2d_grad_input(args));
    const int64_t n = lvn_numel(y), channels = y->shape[3];
    if (b == NULL || n == 0) {
        return LVN_OK;
    }
    const int64_t rows = lvni_cpu_div_up(PIECE, channels) + 1;
    float *bias = lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)(rows * channels) * sizeof *bias);
    if (bias == NULL || lvni_tensor_device_dry_run()) {
        return bias == NULL ? lvn_last_error()->code : LVN_OK;
    }
    if (b->dtype == LVN_BF16) {
        lvni_cpu_isa()->from_bf16(b->data, bias, channels);
    } else {
        memcpy(bias, b->data, (size_t)channels * sizeof *bias);
    }
    for (int64_t r = 1; r < rows; r++) {
        memcpy(bias + r * channels, bias, (size_t)channels * sizeof *bias);
    }
    lvni_cpu_par(lvni_cpu_div_up(n, PIECE), 1, PIECE, bias_range,
                 &(bias_job){.y = y, .bias = bias, .n = n, .channels = channels});
    return LVN_OK;
}
