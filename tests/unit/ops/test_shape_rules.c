/* Shape rules: what they accept is in the kernel tests; here what they refuse, with the sentence a
 * person gets. */
#include "op_support.h"

#include <string.h>

#define F(...) support_tensor(LVN_F32, DIMS(__VA_ARGS__))
#define D(...) support_tensor(LVN_F64, DIMS(__VA_ARGS__))
#define LABELS(...) support_tensor(LVN_I64, DIMS(__VA_ARGS__))
#define U(...) support_tensor(LVN_U8, DIMS(__VA_ARGS__))
static const lvn_class_loss_attr class_loss = {.ignore = -100};
#define NUMBER support_tensor(LVN_F32, SCALAR)

/* The rule refuses with this status and exactly this message. */
static void refuse(int line, lvni_kernels_op op, lvn_status status, const char *message,
                   const void *attr, lvn_tensor *const *in)
{
    lvn_kernel_args args = {.attr = attr};
    memcpy(args.in, in, sizeof args.in);
    lvni_tensor_desc out[LVN_KERNEL_OUTPUTS];
    const lvn_status got = ref_ops[op].shape(&args, out);
    if (got == LVN_OK) {
        fail_msg("line %d: accepted", line);
    }
    if (got != status || strcmp(lvn_last_error()->message, message) != 0) {
        fail_msg("line %d: %s, \"%s\"", line, lvn_status_name(got), lvn_last_error()->message);
    }
}
#define REFUSE(op, status, message, attr, ...)                                                     \
    refuse(__LINE__, LVNI_OP_##op, LVN_ERR_##status, message, attr, IN(__VA_ARGS__))

TEST_EACH(NULL, support_release);

TEST(types)
{
    REFUSE(add, DTYPE, "add: input 0 is f32 but input 1 is f64; convert one of them", NULL, F(2),
           D(2));
    REFUSE(relu, DTYPE, "relu: input 0 is i64, it must be f32, f64, bf16 or f16", NULL, LABELS(2));
    REFUSE(linear, DTYPE, "linear: input 0 is f32 but input 2 is f64; convert one of them", NULL,
           F(2, 3), F(4, 3), D(4));
    REFUSE(cross_entropy, DTYPE, "cross_entropy: the labels must be i64, not f32", &class_loss,
           F(2, 3), F(2));
    REFUSE(max_pool2d_grad, DTYPE, "max_pool2d_grad: the place must be u8, not i64",
           (&(lvn_pool_attr){.kernel = {1, 1}, .stride = {1, 1}, .in_h = 1, .in_w = 1}),
           F(1, 1, 1, 1), LABELS(1, 1, 1, 1));
}

TEST(element_wise_and_broadcasting)
{
    REFUSE(mul, SHAPE,
           "mul: (4, 2, 3) and (3, 3) cannot be broadcast: axis 2 from the end has 2 and 3; sizes "
           "must be "
           "equal, or one of "
           "them 1",
           NULL, F(4, 2, 3), F(3, 3));
    REFUSE(relu_grad, SHAPE, "relu_grad: dy is (2, 3) but y is (3, 2); both must have one shape",
           NULL, F(2, 3), F(3, 2));
    REFUSE(prelu, SHAPE,
           "prelu: the slope is (2), but x is (4, 2, 3): it must be (1), or (3) with one for each "
           "number of the last axis",
           NULL, F(4, 2, 3), F(2));
    REFUSE(prelu_grad, SHAPE,
           "prelu_grad: the slope is (1, 3), but x is (2, 3): it must be (1), or (3) with one for "
           "each number of the last axis",
           NULL, F(2, 3), F(2, 3), F(1, 3));
    REFUSE(sum_to, SHAPE,
           "sum_to: (2, 3) cannot be summed to (2): the target must broadcast to the shape of x",
           (&(lvn_shape_attr){.ndim = 1, .shape = {2}}), F(2, 3));
    REFUSE(expand, SHAPE,
           "expand: (2, 3) does not broadcast to (4, 3): sizes must be equal or 1, counted from "
           "the last axis",
           (&(lvn_shape_attr){.ndim = 2, .shape = {4, 3}}), F(2, 3));
    REFUSE(expand, INVALID, "expand: the target (2, -1) has a negative size",
           (&(lvn_shape_attr){.ndim = 2, .shape = {2, -1}}), F(1));
    REFUSE(dropout, INVALID, "dropout: p is 1, it must be at least 0 and below 1",
           (&(lvn_dropout_attr){.p = 1.0}), F(1));
}

TEST(reductions)
{
    REFUSE(sum, INVALID, "sum: x is (2, 3), the axes (bits 0x4) must be below 2",
           (&(lvn_axes_attr){.mask = 4}), F(2, 3));
    REFUSE(mean, SHAPE, "mean: x is (2, 0): there is no mean over axis 1, which has no elements",
           (&(lvn_axes_attr){.mask = 3}), F(2, 0));
    REFUSE(max, SHAPE, "max: x is (2, 0): there is no max over axis 1, which has no elements",
           (&(lvn_axes_attr){.mask = 2}), F(2, 0));
    REFUSE(max, INVALID, "max: works over one axis, got the bits 0x3",
           (&(lvn_axes_attr){.mask = 3}), F(2, 3));
    REFUSE(max_grad, SHAPE,
           "max_grad: dy is (1, 1) and x is (2, 3): dy must have size 1 in the reduced axis and "
           "agree in all "
           "others",
           (&(lvn_shape_attr){.ndim = 2, .shape = {2, 3}}), F(1, 1), LABELS(1, 1));
}

TEST(products)
{
    REFUSE(linear, SHAPE, "linear: x is (32, 100) but w (10, 128) takes 128 features", NULL,
           F(32, 100), F(10, 128));
    REFUSE(linear, SHAPE, "linear: x is (2, 4, 4, 8), it must have 2 axes (batch, features)", NULL,
           F(2, 4, 4, 8), F(10, 128));
    REFUSE(linear, SHAPE, "linear: the bias is (5), but (4, 3) has 4 outputs: it must be (4)", NULL,
           F(2, 3), F(4, 3), F(5));
    REFUSE(linear_grad_input, SHAPE, "linear_grad_input: dy is (2, 5) but w (4, 3) has 4 outputs",
           NULL, F(2, 5), F(4, 3));
    REFUSE(linear_grad_weight, SHAPE,
           "linear_grad_weight: dy is (3, 4) but x is (2, 5); both must have one batch size", NULL,
           F(3, 4), F(2, 5));
    REFUSE(matmul, SHAPE,
           "matmul: a is (2, 3, 4) and b is (5, 4, 6); both must have the axes (.., M, K) and (.., "
           "K, N) with equal sizes in front",
           (&(lvn_matmul_attr){.trans_a = false}), F(2, 3, 4), F(5, 4, 6));
    REFUSE(matmul, SHAPE, "matmul: a is (2, 3) transposed and b is (3, 4): a brings 2 terms, b 3",
           (&(lvn_matmul_attr){.trans_a = true}), F(2, 3), F(3, 4));
}

TEST(windows)
{
    lvn_conv_attr conv = {
        .stride = {1, 1}, .dilation = {1, 1}, .groups = 1, .in_h = 5, .in_w = 5, .kernel = {3, 3}};
    REFUSE(conv2d, SHAPE,
           "conv2d: x is (1, 5, 5, 3) but w (8, 3, 3, 4) with 1 group(s) takes 4 channels", &conv,
           F(1, 5, 5, 3), F(8, 3, 3, 4));
    REFUSE(
        conv2d, SHAPE,
        "conv2d: the window spans 3 but the width is 2 with padding 0 on both sides; use a larger "
        "image, more padding or "
        "a smaller kernel",
        &conv, F(1, 5, 2, 3), F(8, 3, 3, 3));
    REFUSE(conv2d_grad_input, SHAPE,
           "conv2d_grad_input: dy is (1, 5, 5, 8) but the forward pass with these attributes gives "
           "(1, 3, 3, 8)",
           &conv, F(1, 5, 5, 8), F(8, 3, 3, 4));
    REFUSE(conv2d_grad_weight, SHAPE,
           "conv2d_grad_weight: dy is (2, 3, 3, 8) but the forward pass with these attributes "
           "gives (1, 3, "
           "3, 8)",
           &conv, F(2, 3, 3, 8), F(1, 5, 5, 4));
    conv.groups = 3;
    const lvn_resample_attr average = {.pool = {.kernel = {3, 3},
                                                .stride = {1, 1},
                                                .padding = {2, 0}}},
                            up = {.kind = LVN_RESAMPLE_BILINEAR, .size = {4, 0}};
    REFUSE(resample2d, INVALID,
           "avg_pool2d: padding 2 along the height is more than half of kernel 3", &average,
           F(1, 4, 4, 3));
    REFUSE(resample2d, SHAPE,
           "resize2d: from (1, 4, 4, 3) to height 4 and width 0: both must be at least 1 on both "
           "sides",
           &up, F(1, 4, 4, 3));
    lvn_window_attr window = {
        .kernel = {3, 2}, .stride = {1, 1}, .dilation = {2, 1}, .in_h = 5, .in_w = 4};
    REFUSE(unfold, SHAPE,
           "unfold: the window spans 5 but the height is 4 with padding 0 on both sides; use a "
           "larger image, more padding or a smaller kernel",
           &window, F(1, 4, 5, 3));
    REFUSE(unfold, SHAPE,
           "unfold: x is (4, 5, 3), it must have 4 axes (batch, height, width, channels)", &window,
           F(4, 5, 3));
    REFUSE(fold, SHAPE,
           "fold: x is (1, 1, 3, 8), but an image of 5 x 4 has 1 x 3 windows of 3 x 2 pixels: the "
           "last axis must be a multiple of 6",
           &window, F(1, 1, 3, 8));
    REFUSE(fold, SHAPE,
           "fold: x is (1, 3, 6), it must have 4 axes (batch, windows along the height, windows "
           "along the width, a window's numbers)",
           &window, F(1, 3, 6));
    window.stride[1] = 0;
    REFUSE(fold, INVALID,
           "fold: kernel 2, stride 0, padding 0, dilation 1 along the width: kernel, stride and "
           "dilation must be at least 1, padding at least 0",
           &window, F(1, 1, 3, 6));
    REFUSE(affine_grid, SHAPE, "affine_grid: theta is (4, 3, 2), it must be (4, 2, 3)",
           (&(lvn_affine_attr){.height = 3, .width = 4}), F(4, 3, 2));
    REFUSE(affine_grid, INVALID, "affine_grid: a grid of 0 x 4 positions: both must be at least 1",
           (&(lvn_affine_attr){.width = 4}), F(4, 2, 3));
    lvn_sample_attr sample = {.in_w = 3};
    REFUSE(grid_sample, SHAPE,
           "grid_sample: the grid is (1, 4, 4, 2), for x (2, 4, 4, 3) it must be (2, height, "
           "width, 2): x and y of each position",
           &sample, F(2, 4, 4, 3), F(1, 4, 4, 2));
    REFUSE(grid_sample, INVALID, "grid_sample: an image of 0 x 4: it must have a pixel", &sample,
           F(1, 0, 4, 3), F(1, 4, 4, 2));
    REFUSE(grid_sample_grad_input, INVALID,
           "grid_sample_grad_input: an image of 0 x 3: it must have a pixel", &sample,
           F(1, 4, 4, 3), F(1, 4, 4, 2));
    REFUSE(grid_sample_grad_grid, SHAPE,
           "grid_sample_grad_grid: dy is (1, 4, 3, 3) but the grid is (1, 4, 4, 2): one value for "
           "each position",
           &sample, F(1, 4, 3, 3), F(1, 5, 5, 3), F(1, 4, 4, 2));
    REFUSE(grid_sample_grad_grid, SHAPE,
           "grid_sample_grad_grid: dy is (1, 4, 4, 2) but x is (1, 5, 5, 3): both must have the "
           "same channels",
           &sample, F(1, 4, 4, 2), F(1, 5, 5, 3), F(1, 4, 4, 2));
    lvn_soft_argmax_attr soft = {.doublings = 2, .temperature = 1.0};
    REFUSE(soft_argmax2d, SHAPE,
           "soft_argmax2d: maps are (2, 0, 4, 3), they must be (batch, height, width, keypoints) "
           "with at least one pixel",
           &soft, F(2, 0, 4, 3));
    REFUSE(soft_argmax2d, INVALID, "soft_argmax2d: doublings is 5, it must be 0 to 4",
           (&(lvn_soft_argmax_attr){.doublings = 5, .temperature = 1.0}), F(2, 4, 4, 3));
    REFUSE(soft_argmax2d, INVALID, "soft_argmax2d: temperature is -1, it must be positive",
           (&(lvn_soft_argmax_attr){.temperature = -1.0}), F(2, 4, 4, 3));
    REFUSE(soft_argmax2d_grad, SHAPE,
           "soft_argmax2d_grad: dy is (2, 4, 3), for maps (2, 4, 4, 3) it must be (2, 3, 3)", &soft,
           F(2, 4, 3), F(2, 4, 4, 3), F(2, 3, 5));
    REFUSE(
        soft_argmax2d_grad, SHAPE,
        "soft_argmax2d_grad: what was kept is (2, 3, 2), for maps (2, 4, 4, 3) it must be (2, 3, "
        "5)",
        &soft, F(2, 3, 3), F(2, 4, 4, 3), F(2, 3, 2));
    lvn_heatmap_attr drawn = {.height = 4, .width = 4, .scale = 1.0, .sigma = 1.0};
    REFUSE(heatmap2d, SHAPE,
           "heatmap2d: points are (2, 3, 4) and kind is (2, 3); they must be (batch, keypoints, "
           "2), x and y, and (batch, keypoints)",
           &drawn, F(2, 3, 4), F(2, 3));
    REFUSE(heatmap2d, INVALID, "heatmap2d: maps of 0 x 4: they must have a pixel",
           (&(lvn_heatmap_attr){.width = 4, .scale = 1.0, .sigma = 1.0}), F(2, 3, 2), F(2, 3));
    REFUSE(heatmap2d, INVALID, "heatmap2d: scale is 1 and sigma 0, both must be positive",
           (&(lvn_heatmap_attr){.height = 4, .width = 4, .scale = 1.0}), F(2, 3, 2), F(2, 3));
    REFUSE(fft, SHAPE,
           "fft: x is (4, 2); complex numbers have their real and imaginary part in a last axis of "
           "size 2, with 2 axes before it",
           (&(lvn_fft_attr){.axes = 2, .scale = 1.0}), F(4, 2));
    REFUSE(fft, SHAPE, "fft: x is (3, 0, 2); a transformed axis must have 1 to 536870911 numbers",
           (&(lvn_fft_attr){.axes = 1, .scale = 1.0}), F(3, 0, 2));
    REFUSE(
        conv_transpose2d, SHAPE,
        "conv_transpose2d: x is (1, 4, 4, 3) and w (8, 2, 2, 3); w must be (in, kernel height, "
        "kernel width, out / groups), here (3, ...)",
        (&(lvn_conv_attr){.stride = {2, 2}, .dilation = {1, 1}, .groups = 1, .in_h = 8, .in_w = 8}),
        F(1, 4, 4, 3), F(8, 2, 2, 3));
    REFUSE(conv_transpose2d, INVALID,
           "conv_transpose2d: a result of 10 x 10 comes from 5 x 5, but x is (1, 4, 4, 3); "
           "output_padding must be at least 0 and below "
           "stride 2",
           (&(lvn_conv_attr){
               .stride = {2, 2}, .dilation = {1, 1}, .groups = 1, .in_h = 10, .in_w = 10}),
           F(1, 4, 4, 3), F(3, 2, 2, 8));
    REFUSE(conv_transpose2d, INVALID,
           "conv_transpose2d: the result would have -1 x 2 pixels; use less padding or a larger "
           "image",
           (&(lvn_conv_attr){
               .stride = {1, 1}, .dilation = {1, 1}, .groups = 1, .in_h = -1, .in_w = 2}),
           F(1, 4, 4, 3), F(3, 2, 2, 8));
    REFUSE(conv2d, INVALID, "conv2d: 3 groups do not divide 6 input and 8 output channels", &conv,
           F(1, 5, 5, 6), F(8, 3, 3, 2));
    conv = (lvn_conv_attr){.stride = {1, 0}, .dilation = {1, 1}, .groups = 1};
    REFUSE(conv2d, INVALID,
           "conv2d: kernel 3, stride 0, padding 0, dilation 1 along the width: kernel, stride and "
           "dilation "
           "must be at least "
           "1, padding at least 0",
           &conv, F(1, 5, 5, 3), F(8, 3, 3, 3));
    const lvn_pool_attr pool = {
        .kernel = {2, 2}, .stride = {2, 2}, .padding = {2, 0}, .in_h = 8, .in_w = 8};
    REFUSE(max_pool2d, INVALID,
           "max_pool2d: padding 2 along the height is more than half of kernel 2", &pool,
           F(1, 8, 8, 3));
    const lvn_pool_attr plain = {.kernel = {2, 2}, .stride = {2, 2}, .in_h = 8, .in_w = 8};
    REFUSE(max_pool2d, SHAPE,
           "max_pool2d: x is (8, 8, 3), it must have 4 axes (batch, height, width, channels)",
           &plain, F(8, 8, 3));
    REFUSE(max_pool2d_grad, SHAPE,
           "max_pool2d_grad: dy is (1, 3, 4, 3) but an image of 8 x 8 pools to 4 x 4", &plain,
           F(1, 3, 4, 3), U(1, 3, 4, 3));
    const lvn_pool_attr huge = {.kernel = {17, 16}, .stride = {1, 1}};
    REFUSE(max_pool2d, INVALID, "max_pool2d: a window of 17 x 16 has more than 256 places", &huge,
           F(1, 20, 20, 1));
}

TEST(norms_and_losses)
{
    const lvn_norm_attr attr = {.eps = 1e-5}, negative = {.eps = -1};
    REFUSE(batch_norm_train, SHAPE,
           "batch_norm_train: batch norm needs more than one value per channel in training, x is "
           "(1, 1, 1, "
           "8); use larger "
           "micro-batches or images",
           &attr, F(1, 1, 1, 8), F(8), F(8));
    REFUSE(batch_norm_train, SHAPE,
           "batch_norm_train: beta is (7), but (2, 8) has 8 channels: it must be (8)", &attr,
           F(2, 8), F(8), F(7));
    REFUSE(batch_norm_train, INVALID, "batch_norm_train: eps is -1, it must not be negative",
           &negative, F(2, 8), F(8), F(8));
    REFUSE(batch_norm_eval, SHAPE,
           "batch_norm_eval: the running variance is (2, 4), but (1, 8) has 8 channels: it must be "
           "(8)",
           &attr, F(1, 8), F(8), F(8), F(8), F(2, 4));
    REFUSE(softmax, SHAPE, "softmax: works over the last axis, a single number has none", NULL,
           NUMBER);
    REFUSE(cross_entropy, SHAPE,
           "cross_entropy: the label tensor is (3), but the logits are (2, 10): it must be (2)",
           &class_loss, F(2, 10), LABELS(3));
    REFUSE(
        cross_entropy, SHAPE,
        "cross_entropy: the label tensor is (2), but the logits are (2, 3, 10): it must be (2, 3)",
        &class_loss, F(2, 3, 10), LABELS(2));
    REFUSE(cross_entropy, SHAPE,
           "cross_entropy: the tensor of class weights is (2), but (2, 10) has 10 classes: it must "
           "be (10)",
           &class_loss, F(2, 10), LABELS(2), F(2));
    REFUSE(cross_entropy, INVALID,
           "cross_entropy: label_smoothing is 1.5, it must be between 0 and 1",
           (&(lvn_class_loss_attr){.smoothing = 1.5}), F(2, 10), LABELS(2));
    REFUSE(point_loss, SHAPE,
           "point_loss: the prediction is (2, 3) but the target is (3); both must have one shape",
           (&(lvn_point_loss_attr){.kind = LVN_LOSS_SQUARE}), F(2, 3), F(3));
    REFUSE(point_loss, INVALID, "point_loss: beta is 0, it must be above 0",
           (&(lvn_point_loss_attr){.kind = LVN_LOSS_SMOOTH_L1}), F(2), F(2));
    REFUSE(embedding, SHAPE,
           "embedding: the table of positions is (4, 8); for ids (2, 5) and a weight (10, 8) it "
           "must be at least (5, 8)",
           NULL, F(10, 8), LABELS(2, 5), F(4, 8));
    REFUSE(embedding_grad, SHAPE,
           "embedding_grad: dy is (2, 8) but the ids are (2, 5); dy must have their shape and one "
           "axis of features",
           (&(lvn_lookup_attr){.rows = 10}), F(2, 8), LABELS(2, 5));
    REFUSE(accuracy, SHAPE,
           "accuracy: the logits are (0, 10); the mean needs at least one row and one class", NULL,
           F(0, 10), LABELS(0));
    REFUSE(cross_entropy_grad, SHAPE,
           "cross_entropy_grad: the gradient of the loss is (1), it must be a single number ()",
           &class_loss, F(1), F(2, 10), F(2, 2), LABELS(2));
}

TEST(sequences)
{
    const lvn_layer_norm_attr layer = {.eps = 1e-5, .axes = 2}, many = {.axes = 3};
    REFUSE(layer_norm, SHAPE,
           "layer_norm: gamma is (4); it must have the shape of the last 2 axis/axes of x, which "
           "is (3, 4)",
           &layer, F(3, 4), F(4), F(3, 4));
    REFUSE(layer_norm, SHAPE, "layer_norm: 3 axes are to be normalised, x is (3, 4) and has 2",
           &many, F(3, 4));
    REFUSE(layer_norm_grad, SHAPE,
           "layer_norm_grad: the mean is (3), but the forward pass keeps ()", &layer, F(3, 4),
           F(3, 4), F(3), F(3));
    const lvn_group_norm_attr groups = {.groups = 3};
    REFUSE(group_norm, INVALID, "group_norm: 3 groups do not divide the 8 channels of x (2, 5, 8)",
           &groups, F(2, 5, 8));
    REFUSE(group_norm, SHAPE,
           "group_norm: x is (2, 3): 3 groups leave 1 value(s) to each, a norm needs two; use "
           "fewer groups or larger images",
           &groups, F(2, 3));
    const lvn_attention_attr causal = {.scale = 1, .causal = true};
    REFUSE(attention, SHAPE,
           "attention: q is (2, 5, 8), it must have 4 axes (batch, positions, heads, features)",
           &causal, F(2, 5, 8), F(2, 5, 8), F(2, 5, 8));
    REFUSE(attention, SHAPE,
           "attention: q is (2, 5, 1, 8) but k is (2, 5, 2, 8); batch, heads and features must be "
           "equal",
           &causal, F(2, 5, 1, 8), F(2, 5, 2, 8), F(2, 5, 1, 8));
    REFUSE(attention, SHAPE,
           "attention: causal attention needs as many queries as keys, q is (2, 5, 1, 8) and k is "
           "(2, 6, 1, 8)",
           &causal, F(2, 5, 1, 8), F(2, 6, 1, 8), F(2, 6, 1, 8));
    REFUSE(attention_qkv, SHAPE,
           "attention_qkv: qkv is (2, 5, 24), it must be (batch, positions, 3, heads, features)",
           &causal, F(2, 5, 24));
}

TEST(movements)
{
    REFUSE(permute, INVALID,
           "permute: axis 1 in place 1 does not exist or is named twice; x is (2, 3, 4): name each "
           "of 0 to 2 once",
           (&(lvn_permute_attr){.ndim = 3, .axis = {1, 1, 0}}), F(2, 3, 4));
    REFUSE(concat, SHAPE,
           "concat: input 0 is (2, 3) but input 1 is (4, 5); sizes must be equal in all axes but 1",
           (&(lvn_axis_attr){.axis = 1}), F(2, 3), F(4, 5));
    REFUSE(concat, DTYPE, "concat: input 0 is f32 but input 1 is f64; convert one of them",
           (&(lvn_axis_attr){.axis = 1}), F(2, 3), D(2, 3));
    REFUSE(crop, SHAPE, "crop: x is (2, 3): axis 1 has no part from 2 to 4",
           (&(lvn_box_attr){.ndim = 2, .start = {0, 2}, .size = {2, 2}}), F(2, 3));
    REFUSE(pad, INVALID,
           "pad: x is (2, 3): axis 1 would get 1 elements before and -2 behind it; crop with "
           "lvn_slice instead",
           (&(lvn_box_attr){.ndim = 2, .start = {0, 1}, .size = {2, 2}}), F(2, 3));
    REFUSE(pad, SHAPE,
           "pad: (2, 3): a mirrored border of 3 and 0 elements does not fit axis 1 of size 3; it "
           "must be smaller than the axis",
           (&(lvn_box_attr){.ndim = 2, .start = {0, 3}, .size = {2, 6}, .reflect = true}), F(2, 3));
    REFUSE(gather, SHAPE,
           "gather: x is (2, 3) but the index is (3, 1); sizes must be equal in all axes but 1",
           (&(lvn_axis_attr){.axis = 1}), F(2, 3), LABELS(3, 1));
    REFUSE(index_select, SHAPE,
           "index_select: the index is (2, 2), it must have one axis (lvn_gather takes one per "
           "element)",
           (&(lvn_axis_attr){.axis = 0}), F(2, 3), LABELS(2, 2));
}

TEST(choices)
{
    REFUSE(clamp, INVALID, "clamp: min is 2 and max is 1; min must not be above max",
           (&(lvn_range_attr){2.0, 1.0}), F(2));
    REFUSE(eq, DTYPE, "eq: input 0 is i64, it must be f32, f64, bf16 or f16", NULL, LABELS(2),
           F(2));
    REFUSE(where, DTYPE, "where: the condition must be bool, not f32", NULL, F(2), F(2), F(2));
    REFUSE(where, SHAPE,
           "where: (2, 3) and (4) cannot be broadcast: axis 1 from the end has 3 and 4; sizes must "
           "be equal, or one of them 1",
           NULL, support_tensor(LVN_BOOL, DIMS(4)), F(2, 3), F(3));
    REFUSE(var, SHAPE,
           "var: x is (2, 1): 1 terms are too few to divide by terms - 1; with correction 0 one "
           "term is enough",
           (&(lvn_var_attr){.mask = 2, .correction = 1}), F(2, 1));
}
