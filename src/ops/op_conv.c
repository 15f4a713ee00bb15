/* Convolution and pooling of images (N, H, W, C). */
#include "autograd/tape.h"
#include "core/options_struct.h"

/* Of a bilinear map y = conv(x, w) every derivative is one of three maps: forward, gradient of the
 * input, gradient of the weight. So the rules written with ops, and the transposed convolution,
 * need no kernels of their own: each of the three is recorded, and its rule consists of the other
 * two. attr->in_h, in_w and kernel are those of x and w all along. */
static lvn_tensor *conv_forward(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b,
                                const lvn_conv_attr *attr);
static lvn_tensor *conv_input(lvn_tensor *dy, lvn_tensor *w, const lvn_conv_attr *attr);
static lvn_tensor *conv_weight(lvn_tensor *dy, lvn_tensor *x, const lvn_conv_attr *attr);

static const int all_but_channels[] = {0, 1, 2};

/* A node that saves both inputs. */
static lvn_tensor *record_conv(const char *name, lvni_autograd_backward_rule rule,
                               lvni_autograd_backward_rule rule_ops, lvn_tensor *y,
                               lvn_tensor *const *in, int n_in, const lvn_conv_attr *attr)
{
    lvni_autograd_node *node = lvni_autograd_record(name, rule, y, in, n_in);
    if (node != NULL) {
        node->backward_ops = rule_ops;
        node->attr.conv = *attr;
        lvni_autograd_save(node, 0, in[0]);
        lvni_autograd_save(node, 1, in[1]);
    }
    return y;
}

/* ---- forward: x, w, b ---- */

static lvn_status conv_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvn_conv_attr *attr = &n->attr.conv;
    lvn_tensor *x = n->saved[0], *w = n->saved[1];
    if (lvni_autograd_grad_wanted(n, 0)) {
        lvn_kernel_args a = {.in = {dy, w}, .attr = attr};
        LVN_TRY(lvni_kernels_run(LVNI_OP_conv2d_grad_input, &a, 1));
        LVN_TRY(lvni_autograd_grad_give(n, 0, a.out[0]));
    }
    return lvni_autograd_grad_weight_and_bias(n, LVNI_OP_conv2d_grad_weight,
                                              &(lvn_kernel_args){.in = {dy, x}, .attr = attr});
}

static lvn_status conv_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvn_conv_attr *attr = &n->attr.conv;
    if (lvni_autograd_grad_wanted(n, 0)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, 0, conv_input(dy, n->saved[1], attr)));
    }
    if (lvni_autograd_grad_wanted(n, 1)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, 1, conv_weight(dy, n->saved[0], attr)));
    }
    return lvni_autograd_grad_wanted(n, 2)
               ? lvni_autograd_grad_give_op(n, 2, lvn_sum_axes(dy, all_but_channels, 3, false))
               : LVN_OK;
}

static lvn_tensor *conv_forward(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b,
                                const lvn_conv_attr *attr)
{
    lvn_tensor *in[] = {x, w, b};
    if (!lvni_autograd_op_begin(LVNI_OP_conv2d, in, 3, 4)) {
        return lvni_autograd_op_fail("conv2d");
    }
    lvn_kernel_args args = {.in = {in[0], in[1], in[2]}, .attr = attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_conv2d, &args, 1);
    lvn_conv_attr known = *attr;
    if (y != NULL) { /* so the shapes are right */
        known.in_h = in[0]->shape[1];
        known.in_w = in[0]->shape[2];
        known.kernel[0] = in[1]->shape[1];
        known.kernel[1] = in[1]->shape[2];
    }
    return record_conv("conv2d", conv_backward, conv_backward_ops, y, in, 3, &known);
}

/* ---- gradient of the input: dy, w ---- */

static lvn_status conv_input_backward(lvni_autograd_node *n, lvn_tensor *g)
{
    const lvn_conv_attr *attr = &n->attr.conv;
    lvn_tensor *dy = n->saved[0], *w = n->saved[1];
    if (lvni_autograd_grad_wanted(n, 0)) {
        lvn_kernel_args a = {.in = {g, w}, .attr = attr};
        LVN_TRY(lvni_kernels_run(LVNI_OP_conv2d, &a, 1));
        LVN_TRY(lvni_autograd_grad_give(n, 0, a.out[0]));
    }
    return lvni_autograd_grad_weight_and_bias(n, LVNI_OP_conv2d_grad_weight,
                                              &(lvn_kernel_args){.in = {dy, g}, .attr = attr});
}

static lvn_status conv_input_backward_ops(lvni_autograd_node *n, lvn_tensor *g)
{
    const lvn_conv_attr *attr = &n->attr.conv;
    if (lvni_autograd_grad_wanted(n, 0)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, 0, conv_forward(g, n->saved[1], NULL, attr)));
    }
    return lvni_autograd_grad_wanted(n, 1)
               ? lvni_autograd_grad_give_op(n, 1, conv_weight(n->saved[0], g, attr))
               : LVN_OK;
}

static lvn_tensor *conv_input(lvn_tensor *dy, lvn_tensor *w, const lvn_conv_attr *attr)
{
    lvn_tensor *in[] = {dy, w};
    if (!lvni_autograd_op_begin(LVNI_OP_conv2d_grad_input, in, 2, 0)) {
        return lvni_autograd_op_fail("conv2d_grad_input");
    }
    lvn_kernel_args args = {.in = {dy, w}, .attr = attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_conv2d_grad_input, &args, 1);
    return record_conv("conv2d_grad_input", conv_input_backward, conv_input_backward_ops, y, in, 2,
                       attr);
}

/* ---- gradient of the weight: dy, x ---- */

static lvn_status conv_weight_backward(lvni_autograd_node *n, lvn_tensor *g)
{
    lvn_tensor *in[] = {n->saved[1], n->saved[0]}; /* x, dy */
    const lvni_kernels_op maps[] = {LVNI_OP_conv2d, LVNI_OP_conv2d_grad_input};
    for (int i = 0; i < 2; i++) {
        if (lvni_autograd_grad_wanted(n, i)) {
            lvn_kernel_args a = {.in = {in[i], g}, .attr = &n->attr.conv};
            LVN_TRY(lvni_kernels_run(maps[i], &a, 1));
            LVN_TRY(lvni_autograd_grad_give(n, i, a.out[0]));
        }
    }
    return LVN_OK;
}

static lvn_status conv_weight_backward_ops(lvni_autograd_node *n, lvn_tensor *g)
{
    const lvn_conv_attr *attr = &n->attr.conv;
    if (lvni_autograd_grad_wanted(n, 0)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, 0, conv_forward(n->saved[1], g, NULL, attr)));
    }
    return lvni_autograd_grad_wanted(n, 1)
               ? lvni_autograd_grad_give_op(n, 1, conv_input(n->saved[0], g, attr))
               : LVN_OK;
}

static lvn_tensor *conv_weight(lvn_tensor *dy, lvn_tensor *x, const lvn_conv_attr *attr)
{
    lvn_tensor *in[] = {dy, x};
    if (!lvni_autograd_op_begin(LVNI_OP_conv2d_grad_weight, in, 2, 0)) {
        return lvni_autograd_op_fail("conv2d_grad_weight");
    }
    lvn_kernel_args args = {.in = {dy, x}, .attr = attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_conv2d_grad_weight, &args, 1);
    return record_conv("conv2d_grad_weight", conv_weight_backward, conv_weight_backward_ops, y, in,
                       2, attr);
}

/* ---- transposed: x, w, b; the gradient of an input, seen as a layer ---- */

static lvn_status transpose_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvn_conv_attr *attr = &n->attr.conv;
    if (lvni_autograd_grad_wanted(n, 0)) {
        lvn_kernel_args a = {.in = {dy, n->saved[1]}, .attr = attr};
        LVN_TRY(lvni_kernels_run(LVNI_OP_conv2d, &a, 1));
        LVN_TRY(lvni_autograd_grad_give(n, 0, a.out[0]));
    }
    if (lvni_autograd_grad_wanted(n, 1)) {
        lvn_kernel_args a = {
            .in = {n->saved[0], dy}, .out = {lvni_autograd_grad_dest(n, 1)}, .attr = attr};
        LVN_TRY(lvni_autograd_grad_run(LVNI_OP_conv2d_grad_weight, &a, 1));
        LVN_TRY(lvni_autograd_grad_give(n, 1, a.out[0]));
    }
    if (!lvni_autograd_grad_wanted(n, 2)) {
        return LVN_OK;
    }
    /* a bias is summed in f32 */
    lvn_kernel_args wide = {.in = {dy}, .attr = &(lvn_cast_attr){.dtype = LVN_F32}};
    lvn_tensor *widened = NULL;
    if (lvni_tensor_is_low(dy->dtype)) {
        LVN_TRY(lvni_kernels_run(LVNI_OP_cast, &wide, 1));
        widened = wide.out[0];
    }
    lvn_kernel_args sum = {.in = {widened == NULL ? dy : widened},
                           .out = {lvni_autograd_grad_dest(n, 2)},
                           .attr = &(lvn_axes_attr){.mask = 7u}};
    const lvn_status s = lvni_autograd_grad_run(LVNI_OP_sum, &sum, 1);
    lvn_release(widened);
    LVN_TRY(s);
    return lvni_autograd_grad_give(n, 2, sum.out[0]);
}

static lvn_status transpose_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvn_conv_attr *attr = &n->attr.conv;
    if (lvni_autograd_grad_wanted(n, 0)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, 0, conv_forward(dy, n->saved[1], NULL, attr)));
    }
    if (lvni_autograd_grad_wanted(n, 1)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, 1, conv_weight(n->saved[0], dy, attr)));
    }
    return lvni_autograd_grad_wanted(n, 2)
               ? lvni_autograd_grad_give_op(n, 2, lvn_sum_axes(dy, all_but_channels, 3, false))
               : LVN_OK;
}

/* ---- public ---- */

static int or_default(int value, int fallback)
{
    return value == 0 ? fallback : value;
}

lvn_tensor *lvn_conv2d_with(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b,
                            const lvn_conv2d_options *options)
{
    lvn_conv2d_options o;
    if (lvni_core_options_copy("conv2d", &o, sizeof o, options) != LVN_OK) {
        return lvni_autograd_op_fail("conv2d");
    }
    lvn_conv_attr attr = {.groups = or_default(o.groups, 1)};
    lvni_core_options_per_axis(attr.stride, o.stride_hw, o.stride, 1, 1);
    lvni_core_options_per_axis(attr.padding, o.padding_hw, o.padding, 0, 0);
    lvni_core_options_per_axis(attr.dilation, o.dilation_hw, o.dilation, 1, 1);
    return conv_forward(x, w, b, &attr);
}

/* The size of the result; sizes that make no sense are for the shape rule to refuse. */
static int64_t transposed_size(int64_t in, const lvn_conv_attr *a, int axis, int output_padding)
{
    return (in - 1) * a->stride[axis] - 2 * (int64_t)a->padding[axis] +
           a->dilation[axis] * (a->kernel[axis] - 1) + 1 + output_padding;
}

lvn_tensor *lvn_conv_transpose2d_with(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b,
                                      const lvn_conv_transpose2d_options *options)
{
    lvn_conv_transpose2d_options o;
    lvn_tensor *in[] = {x, w, b};
    if (lvni_core_options_copy("conv_transpose2d", &o, sizeof o, options) != LVN_OK ||
        !lvni_autograd_op_begin(LVNI_OP_conv_transpose2d, in, 3, 4)) {
        return lvni_autograd_op_fail("conv_transpose2d");
    }
    lvn_conv_attr attr = {.groups = or_default(o.groups, 1)};
    int more[2];
    lvni_core_options_per_axis(attr.stride, o.stride_hw, o.stride, 1, 1);
    lvni_core_options_per_axis(attr.padding, o.padding_hw, o.padding, 0, 0);
    lvni_core_options_per_axis(attr.dilation, o.dilation_hw, o.dilation, 1, 1);
    lvni_core_options_per_axis(more, o.output_padding_hw, o.output_padding, 0, 0);
    if (in[0]->ndim == 4 && in[1]->ndim == 4) {
        attr.kernel[0] = in[1]->shape[1];
        attr.kernel[1] = in[1]->shape[2];
        attr.in_h = transposed_size(in[0]->shape[1], &attr, 0, more[0]);
        attr.in_w = transposed_size(in[0]->shape[2], &attr, 1, more[1]);
    }
    lvn_kernel_args args = {.in = {in[0], in[1], in[2]}, .attr = &attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_conv_transpose2d, &args, 1);
    return record_conv("conv_transpose2d", transpose_backward, transpose_backward_ops, y, in, 3,
                       &attr);
}

/* saved[0]: where in its window each maximum was */
static lvn_status max_pool2d_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_pool_attr attr = n->attr.pool;
    attr.in_h = n->in_desc.shape[1];
    attr.in_w = n->in_desc.shape[2];
    lvn_kernel_args a = {.in = {dy, n->saved[0]}, .attr = &attr};
    LVN_TRY(lvni_kernels_run(LVNI_OP_max_pool2d_grad, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_tensor *max_pool(lvn_tensor *x, const lvn_pool_attr *attr)
{
    const bool recorded = lvni_autograd_records(&x, 1);
    lvn_kernel_args args = {.in = {x}, .attr = attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_max_pool2d, &args, recorded ? 3 : 1);
    lvni_autograd_node *node = lvni_autograd_record("max_pool2d", max_pool2d_backward, y, &x, 1);
    if (node != NULL) {
        node->attr.pool = *attr;
        lvni_autograd_save(node, 0, args.out[1]);
    }
    return y;
}

lvn_tensor *lvn_max_pool2d_with(lvn_tensor *x, int kernel, const lvn_pool2d_options *options)
{
    enum { PLACES = 256 }; /* fit a byte */
    lvn_pool2d_options o;
    if (lvni_core_options_copy("max_pool2d", &o, sizeof o, options) != LVN_OK ||
        !lvni_autograd_op_begin(LVNI_OP_max_pool2d, &x, 1, 0)) {
        return lvni_autograd_op_fail("max_pool2d");
    }
    lvn_pool_attr a = {.in_h = 0};
    lvni_core_options_per_axis(a.kernel, o.kernel_hw, kernel, 0, 0);
    lvni_core_options_per_axis(a.stride, o.stride_hw, o.stride, a.kernel[0], a.kernel[1]);
    lvni_core_options_per_axis(a.padding, o.padding_hw, o.padding, 0, 0);
    if ((int64_t)a.kernel[0] * a.kernel[1] <= PLACES) {
        return max_pool(x, &a);
    }
    /* Along the width, then along the height: the first maximum of the first row that has it is the
     * window's first one. */
    lvn_tensor *rows = max_pool(x, &(lvn_pool_attr){.kernel = {1, a.kernel[1]},
                                                    .stride = {1, a.stride[1]},
                                                    .padding = {0, a.padding[1]}});
    return rows == NULL ? NULL
                        : max_pool(rows, &(lvn_pool_attr){.kernel = {a.kernel[0], 1},
                                                          .stride = {a.stride[0], 1},
                                                          .padding = {a.padding[0], 0}});
}
