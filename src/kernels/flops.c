/* How many floating-point operations the products of an op are, by its shapes: two for each
 * multiplication and addition, of attention all places, masked ones, too. Sums over the dry runs of
 * a context (kernels.h). */
#include "kernels/call.h"

typedef struct work {
    double flops;
} work;

static void end_work(void *state)
{
    (void)state;
}

static const lvni_tensor_state_class work_class = {.bytes = sizeof(work), .end = end_work};

static double numel(const lvn_tensor *t)
{
    double n = 1.0;
    for (int i = 0; t != NULL && i < t->ndim; i++) {
        n *= (double)t->shape[i];
    }
    return n;
}

static double last(const lvn_tensor *t)
{
    return (double)t->shape[t->ndim - 1];
}

/* Products of a convolution: for each place of y all weights of an output channel, of w (O, ..). */
static double convolution(const lvn_tensor *y, const lvn_tensor *w)
{
    return numel(y) * numel(w) / (double)w->shape[0];
}

/* q (N, T, H, D), k (N, S, H, D), v (N, S, H, E): sums over D and over E of N H T S places. */
static double attention(const lvn_tensor *q, const lvn_tensor *k, const lvn_tensor *v, double of_d,
                        double of_e)
{
    return numel(q) / last(q) * (double)k->shape[1] * (of_d * last(q) + of_e * last(v));
}

/* qkv (N, T, 3, H, D) */
static double attention_qkv(const lvn_tensor *qkv, double times)
{
    return numel(qkv) / 3.0 * (double)qkv->shape[1] * times;
}

static double products(const lvni_kernels_op_info *op, const lvn_kernel_args *a)
{
    const lvn_tensor *const *in = a->in;
    switch (op->number) {
    case LVNI_OP_matmul: return numel(in[0]) * last(a->out[0]);
    case LVNI_OP_linear: return numel(in[0]) * (double)in[1]->shape[0];
    case LVNI_OP_linear_grad_input:
    case LVNI_OP_linear_grad_weight: return numel(in[0]) * last(in[1]);
    case LVNI_OP_conv2d: return convolution(a->out[0], in[1]);
    case LVNI_OP_conv2d_grad_input: return convolution(in[0], in[1]);
    case LVNI_OP_conv2d_grad_weight: return convolution(in[0], a->out[0]);
    case LVNI_OP_conv_transpose2d: return convolution(in[0], in[1]);
    case LVNI_OP_attention: return attention(in[0], in[1], in[2], 1.0, 1.0);
    case LVNI_OP_attention_grad: /* the scores again; three results */
        return attention(in[1], in[2], in[3], 3.0, 2.0);
    case LVNI_OP_attention_qkv: return attention_qkv(in[0], 2.0);
    case LVNI_OP_attention_qkv_grad: return attention_qkv(in[1], 5.0);
    default: return 0.0;
    }
}

void lvni_kernels_count_flops(const lvni_kernels_op_info *info, const lvn_kernel_args *args)
{
    work *w = lvni_tensor_ctx_state(&work_class);
    if (w != NULL) {
        w->flops += 2.0 * products(info, args);
    }
}

double lvni_kernels_dry_flops(void)
{
    const work *w = lvni_tensor_ctx_state(&work_class);
    return w == NULL ? 0.0 : w->flops;
}
