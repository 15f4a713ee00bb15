/* Convolution and pooling of images (N, H, W, C). */
#include "autograd/tape.h"
#include "core/options_struct.h"

static lvn_status conv2d_backward(lvni_node *n, lvn_tensor *dy)
{
    lvni_conv_attr attr = n->attr.conv;
    lvn_tensor *x = n->saved[0], *w = n->saved[1];
    attr.in_h = n->in_desc.shape[1];
    attr.in_w = n->in_desc.shape[2];
    attr.kernel[0] = w->shape[1];
    attr.kernel[1] = w->shape[2];
    if (lvni_grad_wanted(n, 0)) {
        lvni_args a = {.in = {dy, w}, .attr = &attr};
        LVN_TRY(lvni_run(LVNI_OP_conv2d_grad_input, &a, 1));
        LVN_TRY(lvni_grad_give(n, 0, a.out[0]));
    }
    return lvni_grad_weight_and_bias(n, LVNI_OP_conv2d_grad_weight, &(lvni_args){.in = {dy, x}, .attr = &attr});
}

static int or_default(int value, int fallback)
{
    return value == 0 ? fallback : value;
}

lvn_tensor *lvn_conv2d_with(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b, const lvn_conv2d_options *options)
{
    lvn_conv2d_options o;
    lvni_options_copy(&o, sizeof o, options);
    lvn_tensor *in[] = {x, w, b};
    if (!lvni_op_begin(LVNI_OP_conv2d, in, 3, 4)) {
        return lvni_op_fail("conv2d");
    }
    const int stride = or_default(o.stride, 1), dilation = or_default(o.dilation, 1);
    const lvni_conv_attr attr = {.stride = {stride, stride},
                                 .padding = {o.padding, o.padding},
                                 .dilation = {dilation, dilation},
                                 .groups = or_default(o.groups, 1)};
    lvni_args args = {.in = {in[0], in[1], in[2]}, .attr = &attr};
    lvn_tensor *y = lvni_op_run(LVNI_OP_conv2d, &args, 1);
    lvni_node *node = lvni_record("conv2d", conv2d_backward, y, in, 3);
    if (node != NULL) {
        node->attr.conv = attr;
        lvni_save(node, 0, in[0]);
        lvni_save(node, 1, in[1]);
    }
    return y;
}

/* saved[0]: where in its window each maximum was */
static lvn_status max_pool2d_backward(lvni_node *n, lvn_tensor *dy)
{
    lvni_pool_attr attr = n->attr.pool;
    attr.in_h = n->in_desc.shape[1];
    attr.in_w = n->in_desc.shape[2];
    lvni_args a = {.in = {dy, n->saved[0]}, .attr = &attr};
    LVN_TRY(lvni_run(LVNI_OP_max_pool2d_grad, &a, 1));
    return lvni_grad_give(n, 0, a.out[0]);
}

lvn_tensor *lvn_max_pool2d_with(lvn_tensor *x, int kernel, const lvn_pool2d_options *options)
{
    lvn_pool2d_options o;
    lvni_options_copy(&o, sizeof o, options);
    if (!lvni_op_begin(LVNI_OP_max_pool2d, &x, 1, 0)) {
        return lvni_op_fail("max_pool2d");
    }
    const int stride = or_default(o.stride, kernel);
    const lvni_pool_attr attr = {
        .kernel = {kernel, kernel}, .stride = {stride, stride}, .padding = {o.padding, o.padding}};
    const bool recorded = lvni_records(&x, 1);
    lvni_args args = {.in = {x}, .attr = &attr};
    lvn_tensor *y = lvni_op_run(LVNI_OP_max_pool2d, &args, recorded ? 3 : 1);
    lvni_node *node = lvni_record("max_pool2d", max_pool2d_backward, y, &x, 1);
    if (node != NULL) {
        node->attr.pool = attr;
        lvni_save(node, 0, args.out[1]);
    }
    return y;
}
