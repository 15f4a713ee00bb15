/* Convolutions on oneDNN: forward, gradient of the input, gradient of the weights. Called through
 * the op table. Shapes on which a matrix product is quicker than oneDNN's convolution take that way
 * (conv_product.c), and so do those of which oneDNN has only its reference implementation
 * (conv_groups.c); in bf16 those of which its kernels are wrong are computed in f32 (conv_wide.c).
 *
 * Forward and input gradient run with the lane's team where their bits do not depend on it, else
 * with wgrad_threads (onednn_table.c chooses, onednn_version.c knows which); the weight gradient
 * adds over the team and always runs with wgrad_threads
 * (tests/unit/kernels_cpu/test_onednn_reproducibility.c and test_onednn_teams.c watch). */
#include "kernels/cpu/conv_product.h"
#include "kernels/cpu/conv_wide.h"
#include "kernels/cpu/omp_team.h"
#include "kernels/cpu/onednn_weights.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

#include <string.h>

typedef struct conv_call {
    lvni_cpu_dnn_key key;
    lvn_kernel kernel; /* that was called, with these: for other ways */
    const lvn_kernel_args *args;
    lvn_status (*by_products)(const lvni_cpu_conv_call *c);
    const lvni_cpu_conv_call *product;
    const lvn_tensor *w; /* forward and input gradient: the plain weights */
    void *dw;            /* weight gradient: where its plain form goes */
    /* in the order of lvni_cpu_dnn_op; the weights' place is filled here */
    const void *data[LVNI_DNN_MAX_ARGS];
} conv_call;

static lvn_status run(conv_call *call)
{
    lvni_cpu_dnn_found f = {0};
    const bool gradient = call->key.work.op == LVNI_DNN_CONV_GRAD_WEIGHT;
    lvn_status s = lvni_cpu_dnn_lookup(&call->key, &f);
    if (s != LVN_OK) {
        return s;
    }
    if (f.refused) {
        return call->key.work.low != 0 ? lvni_cpu_conv_wide(call->kernel, call->args)
                                       : call->by_products(call->product);
    }
    const int before = lvni_cpu_omp_enter(f.team);
    s = gradient ? lvni_cpu_dnn_run_to_weights(&f, call->data, call->dw)
                 : lvni_cpu_dnn_run_with_weights(&f, call->data, call->w);
    lvni_cpu_omp_leave(before);
    return s;
}

/* x (N, H, W, I), y (N, H', W', O), w (O, KH, KW, I / groups); of w only the window is taken. */
static lvn_status begin(conv_call *call, lvni_cpu_dnn_op op, const lvn_conv_attr *at,
                        const lvn_tensor *x, const lvn_tensor *y, int64_t kh, int64_t kw)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx == NULL) {
        return LVN_ERR_MEMORY; /* the only reason; recorded */
    }
    memset(call, 0, sizeof *call);
    call->key.work.op = op;
    call->key.work.low = x->dtype == LVN_BF16;
    call->key.fixed_team = ctx->pins.wgrad_threads;
    call->key.team = op == LVNI_DNN_CONV_GRAD_WEIGHT ? ctx->pins.wgrad_threads : ctx->team;
    lvni_cpu_dnn_conv_shape *s = &call->key.work.shape.conv;
    *s = (lvni_cpu_dnn_conv_shape){.n = x->shape[0],
                                   .ih = x->shape[1],
                                   .iw = x->shape[2],
                                   .ic = x->shape[3],
                                   .oh = y->shape[1],
                                   .ow = y->shape[2],
                                   .oc = y->shape[3],
                                   .kh = kh,
                                   .kw = kw,
                                   .groups = at->groups};
    for (int i = 0; i < 2; i++) {
        s->stride[i] = at->stride[i];
        s->padding[i] = at->padding[i];
        s->dilation[i] = at->dilation[i];
    }
    return LVN_OK;
}

static size_t bytes_of(const lvn_tensor *t)
{
    return (size_t)lvn_numel(t) * lvn_dtype_size(t->dtype);
}

lvn_status lvni_cpu_conv2d(const lvn_kernel_args *args)
{
    const lvn_tensor *x = args->in[0], *w = args->in[1], *b = args->in[2];
    lvn_tensor *y = args->out[0];
    conv_call call;
    LVN_TRY(begin(&call, LVNI_DNN_CONV_FORWARD, args->attr, x, y, w->shape[1], w->shape[2]));
    if (lvn_numel(y) == 0) {
        return LVN_OK;
    }
    const lvni_cpu_conv_call product = {.attr = args->attr, .x = x, .y = y, .w = w, .b = b};
    if (lvni_cpu_conv_product_forward_pays(&product)) {
        return lvni_cpu_conv_product_forward(&product);
    }
    call.key.work.bias = b != NULL;
    call.w = w;
    call.key.work.wide_w = x->dtype != w->dtype;
    call.data[0] = x->data;
    call.data[2] = y->data;
    LVN_TRY(lvni_cpu_dnn_bias(b, &call.data[3]));
    call.kernel = lvni_cpu_conv2d;
    call.args = args;
    call.by_products = lvni_cpu_conv_groups_forward;
    call.product = &product;
    return run(&call);
}

lvn_status lvni_cpu_conv2d_grad_input(const lvn_kernel_args *args)
{
    const lvn_tensor *dy = args->in[0], *w = args->in[1];
    lvn_tensor *dx = args->out[0];
    conv_call call;
    LVN_TRY(begin(&call, LVNI_DNN_CONV_GRAD_INPUT, args->attr, dx, dy, w->shape[1], w->shape[2]));
    if (lvn_numel(dx) == 0) {
        return LVN_OK;
    }
    if (lvn_numel(dy) == 0) {
        memset(dx->data, 0, bytes_of(dx));
        return LVN_OK;
    }
    const lvni_cpu_conv_call product = {.attr = args->attr, .x = dx, .y = dy, .w = w};
    if (lvni_cpu_conv_product_grad_input_pays(&product)) {
        return lvni_cpu_conv_product_grad_input(&product);
    }
    call.w = w;
    call.key.work.wide_w = dy->dtype != w->dtype;
    call.data[0] = dy->data;
    call.data[2] = dx->data;
    call.kernel = lvni_cpu_conv2d_grad_input;
    call.args = args;
    call.by_products = lvni_cpu_conv_groups_grad_input;
    call.product = &product;
    return run(&call);
}

static lvn_status weight_gradient(const lvn_kernel_args *args, lvn_tensor *dw)
{
    const lvn_tensor *dy = args->in[0], *x = args->in[1];
    conv_call call;
    LVN_TRY(begin(&call, LVNI_DNN_CONV_GRAD_WEIGHT, args->attr, x, dy, dw->shape[1], dw->shape[2]));
    if (lvn_numel(dw) == 0) {
        return LVN_OK;
    }
    if (lvn_numel(dy) == 0) {
        memset(dw->data, 0, bytes_of(dw));
        return LVN_OK;
    }
    const lvni_cpu_conv_call product = {.attr = args->attr, .x = x, .y = dy, .w = dw};
    if (lvni_cpu_conv_depthwise_grad_weight_fits(&product)) {
        return lvni_cpu_conv_depthwise_grad_weight(&product);
    }
    if (lvni_cpu_conv_product_grad_weight_pays(&product)) {
        return lvni_cpu_conv_product_grad_weight(&product);
    }
    call.dw = dw->data;
    call.data[0] = x->data;
    call.data[2] = dy->data;
    call.kernel = lvni_cpu_conv2d_grad_weight;
    call.args = args;
    call.by_products = lvni_cpu_conv_groups_grad_weight;
    call.product = &product;
    return run(&call);
}

lvn_status lvni_cpu_conv2d_grad_weight(const lvn_kernel_args *args)
{
    const lvn_tensor *dy = args->in[0];
    if (args->out[0] != NULL) {
        LVN_TRY(weight_gradient(args, args->out[0]));
    }
    if (args->out[1] != NULL) {
        return lvni_cpu_sum_rows(dy, args->out[1]);
    }
    return LVN_OK;
}
