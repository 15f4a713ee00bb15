/* Transposed convolution: the input gradient of a convolution, and a bias on top. Called through the op table (kernels.h). */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"

#include <string.h>

/* The bias repeated over so many elements, that a call of the inner loop is worth its while. */
enum { LONG_ENOUGH = 1024 };

typedef struct bias_job {
    float *y;
    const float *bias; /* `block` elements: whole rows */
    int64_t block, n;
} bias_job;

/* An item is one block of y. */
static void bias_range(const void *job, int64_t begin, int64_t end)
{
    const bias_job *j = job;
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i * j->block, left = j->n - at;
        lvni_cpu_isa()->accumulate(j->y + at, j->bias, left < j->block ? left : j->block);
    }
}

lvn_status lvni_cpu_conv_transpose2d(const lvni_args *args)
{
    const lvn_tensor *b = args->in[2];
    lvn_tensor *y = args->out[0];
    LVN_TRY(lvni_cpu_conv2d_grad_input(args));
    const int64_t n = lvn_numel(y), channels = y->shape[3];
    if (b == NULL || n == 0) {
        return LVN_OK;
    }
    const int64_t rows = lvni_div_up(LONG_ENOUGH, channels), block = rows * channels;
    float *bias = lvni_scratch(LVNI_SCRATCH_OWN, (size_t)block * sizeof *bias);
    if (bias == NULL) {
        return lvn_last_error()->code;
    }
    for (int64_t r = 0; r < rows; r++) {
        memcpy(bias + r * channels, b->data, (size_t)channels * sizeof *bias);
    }
    const bias_job job = {.y = LVNI_F32(y), .bias = bias, .block = block, .n = n};
    lvni_par(lvni_div_up(n, block), 1, block, bias_range, &job);
    return LVN_OK;
}
