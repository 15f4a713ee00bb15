/* Shape rules of convolution, pooling, normalisation, softmax and losses (shape_rules.c has the
 * others). */
#include "kernels/shape_rules_impl.h"

/* ---- windows over images ---- */

lvn_status lvni_kernels_rule_window(const char *op, const char *axis, int64_t in, int64_t kernel,
                                    int stride, int padding, int dilation, int64_t *out)
{
    LVN_ARG(kernel >= 1 && stride >= 1 && dilation >= 1 && padding >= 0,
            "%s: kernel %lld, stride %d, padding %d, dilation %d along the %s: kernel, stride and "
            "dilation "
            "must be at "
            "least 1, padding at least 0",
            op, (long long)kernel, stride, padding, dilation, axis);
    const int64_t span = dilation * (kernel - 1) + 1;
    if (in + 2 * padding < span) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: the window spans %lld but the %s is %lld with padding %d on both sides; use "
                 "a larger "
                 "image, more "
                 "padding or a smaller kernel",
                 op, (long long)span, axis, (long long)in, padding);
    }
    *out = (in + 2 * padding - span) / stride + 1;
    return LVN_OK;
}

lvn_status lvni_kernels_rule_image(const char *op, const char *what, const lvn_tensor *t)
{
    if (t->ndim != 4) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: %s is %s, it must have 4 axes (batch, height, width, channels)", op, what,
                 LVNI_SHAPE_TEXT(t));
    }
    return LVN_OK;
}

/* Sizes of a convolution, from whichever tensors the op has. */
typedef struct conv_sizes {
    int64_t n, h, w, i; /* x */
    int64_t o, kh, kw;  /* w */
    int64_t oh, ow;     /* y */
} conv_sizes;

static lvn_status conv_output(const char *op, const lvn_conv_attr *a, conv_sizes *s)
{
    LVN_ARG(a->groups >= 1 && s->i % a->groups == 0 && s->o % a->groups == 0,
            "%s: %d groups do not divide %lld input and %lld output channels", op, a->groups,
            (long long)s->i, (long long)s->o);
    LVN_TRY(lvni_kernels_rule_window(op, "height", s->h, s->kh, a->stride[0], a->padding[0],
                                     a->dilation[0], &s->oh));
    return lvni_kernels_rule_window(op, "width", s->w, s->kw, a->stride[1], a->padding[1],
                                    a->dilation[1], &s->ow);
}

/* dy is what the forward pass gives. */
static lvn_status conv_check_dy(const char *op, const lvn_tensor *dy, const conv_sizes *s)
{
    const lvni_tensor_desc y = {.ndim = 4, .shape = {s->n, s->oh, s->ow, s->o}};
    for (int i = 0; i < 4; i++) {
        if (dy->shape[i] != y.shape[i]) {
            LVN_FAIL(LVN_ERR_SHAPE,
                     "%s: dy is %s but the forward pass with these attributes gives %s", op,
                     LVNI_SHAPE_TEXT(dy), LVNI_SHAPE_TEXT(&y));
        }
    }
    return LVN_OK;
}

static lvn_status need_conv_weight(const char *op, const lvn_tensor *w)
{
    if (w->ndim != 4) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: w is %s, it must have 4 axes (out, kernel height, kernel width, in / groups)",
                 op, LVNI_SHAPE_TEXT(w));
    }
    return LVN_OK;
}

lvn_status lvni_kernels_shape_conv2d(const lvn_kernel_args *args,
                                     lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0], *w = args->in[1], *b = args->in[2];
    const lvn_conv_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float_params("conv2d", args, 1, 6));
    LVN_TRY(lvni_kernels_rule_image("conv2d", "x", x));
    LVN_TRY(need_conv_weight("conv2d", w));
    if (x->shape[3] != w->shape[3] * attr->groups) {
        LVN_FAIL(LVN_ERR_SHAPE, "conv2d: x is %s but w %s with %d group(s) takes %lld channels",
                 LVNI_SHAPE_TEXT(x), LVNI_SHAPE_TEXT(w), attr->groups,
                 (long long)w->shape[3] * attr->groups);
    }
    conv_sizes s = {.n = x->shape[0],
                    .h = x->shape[1],
                    .w = x->shape[2],
                    .i = x->shape[3],
                    .o = w->shape[0],
                    .kh = w->shape[1],
                    .kw = w->shape[2]};
    LVN_TRY(conv_output("conv2d", attr, &s));
    if (b != NULL) {
        LVN_TRY(lvni_kernels_rule_vector("conv2d", "the bias", b, s.o, "output channel", w));
    }
    out[0] = lvni_kernels_rule_make(x->dtype, 4, (const int64_t[]){s.n, s.oh, s.ow, s.o});
    return LVN_OK;
}

lvn_status lvni_kernels_shape_conv2d_grad_input(const lvn_kernel_args *args,
                                                lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "conv2d_grad_input";
    const lvn_tensor *dy = args->in[0], *w = args->in[1];
    const lvn_conv_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float_params(op, args, 1, 2));
    LVN_TRY(lvni_kernels_rule_image(op, "dy", dy));
    LVN_TRY(need_conv_weight(op, w));
    conv_sizes s = {.n = dy->shape[0],
                    .h = attr->in_h,
                    .w = attr->in_w,
                    .i = w->shape[3] * attr->groups,
                    .o = w->shape[0],
                    .kh = w->shape[1],
                    .kw = w->shape[2]};
    LVN_TRY(conv_output(op, attr, &s));
    LVN_TRY(conv_check_dy(op, dy, &s));
    out[0] = lvni_kernels_rule_make(dy->dtype, 4, (const int64_t[]){s.n, s.h, s.w, s.i});
    return LVN_OK;
}

lvn_status lvni_kernels_shape_conv_transpose2d(const lvn_kernel_args *args,
                                               lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "conv_transpose2d";
    const lvn_tensor *x = args->in[0], *w = args->in[1], *b = args->in[2];
    const lvn_conv_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float_params(op, args, 1, 6));
    LVN_TRY(lvni_kernels_rule_image(op, "x", x));
    if (w->ndim != 4 || w->shape[0] != x->shape[3]) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: x is %s and w %s; w must be (in, kernel height, kernel width, out / groups), "
                 "here (%lld, ...)",
                 op, LVNI_SHAPE_TEXT(x), LVNI_SHAPE_TEXT(w), (long long)x->shape[3]);
    }
    conv_sizes s = {.n = x->shape[0],
                    .h = attr->in_h,
                    .w = attr->in_w,
                    .i = w->shape[3] * attr->groups,
                    .o = w->shape[0],
                    .kh = w->shape[1],
                    .kw = w->shape[2]};
    LVN_ARG(attr->in_h >= 1 && attr->in_w >= 1,
            "%s: the result would have %lld x %lld pixels; use less padding or a larger image", op,
            (long long)attr->in_h, (long long)attr->in_w);
    LVN_TRY(conv_output(op, attr, &s));
    LVN_ARG(s.oh == x->shape[1] && s.ow == x->shape[2],
            "%s: a result of %lld x %lld comes from %lld x %lld, but x is %s; output_padding must "
            "be at least 0 and below stride %d",
            op, (long long)s.h, (long long)s.w, (long long)s.oh, (long long)s.ow,
            LVNI_SHAPE_TEXT(x), attr->stride[0]);
    if (b != NULL) {
        LVN_TRY(lvni_kernels_rule_vector(op, "the bias", b, s.i, "output channel", w));
    }
    out[0] = lvni_kernels_rule_make(x->dtype, 4, (const int64_t[]){s.n, s.h, s.w, s.i});
    return LVN_OK;
}

lvn_status lvni_kernels_shape_conv2d_grad_weight(const lvn_kernel_args *args,
                                                 lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "conv2d_grad_weight";
    const lvn_tensor *dy = args->in[0], *x = args->in[1];
    const lvn_conv_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float(op, args, 3));
    LVN_TRY(lvni_kernels_rule_image(op, "dy", dy));
    LVN_TRY(lvni_kernels_rule_image(op, "x", x));
    conv_sizes s = {.n = x->shape[0],
                    .h = x->shape[1],
                    .w = x->shape[2],
                    .i = x->shape[3],
                    .o = dy->shape[3],
                    .kh = attr->kernel[0],
                    .kw = attr->kernel[1]};
    LVN_TRY(conv_output(op, attr, &s));
    LVN_TRY(conv_check_dy(op, dy, &s));
    out[0] = lvni_kernels_rule_make(lvni_kernels_rule_weight_dtype(dy), 4,
                                    (const int64_t[]){s.o, s.kh, s.kw, s.i / attr->groups});
    out[1] = lvni_kernels_rule_make(lvni_kernels_rule_weight_dtype(dy), 1, &s.o);
    return LVN_OK;
}

lvn_status lvni_kernels_rule_pool(const char *op, const lvn_pool_attr *a, const int64_t in[2],
                                  int64_t out[2])
{
    static const char *const axis[2] = {"height", "width"};
    for (int i = 0; i < 2; i++) {
        LVN_TRY(lvni_kernels_rule_window(op, axis[i], in[i], a->kernel[i], a->stride[i],
                                         a->padding[i], 1, &out[i]));
        LVN_ARG(2 * a->padding[i] <= a->kernel[i],
                "%s: padding %d along the %s is more than half of kernel %d", op, a->padding[i],
                axis[i], a->kernel[i]);
    }
    return LVN_OK;
}

/* The place in a window fits a byte. */
static lvn_status max_pool_output(const char *op, const lvn_pool_attr *a, const int64_t in[2],
                                  int64_t out[2])
{
    LVN_TRY(lvni_kernels_rule_pool(op, a, in, out));
    LVN_ARG((int64_t)a->kernel[0] * a->kernel[1] <= 256,
            "%s: a window of %d x %d has more than 256 places", op, a->kernel[0], a->kernel[1]);
    return LVN_OK;
}

lvn_status lvni_kernels_shape_max_pool2d(const lvn_kernel_args *args,
                                         lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0];
    LVN_TRY(lvni_kernels_rule_float("max_pool2d", args, 1));
    LVN_TRY(lvni_kernels_rule_image("max_pool2d", "x", x));
    int64_t size[2];
    LVN_TRY(max_pool_output("max_pool2d", args->attr, x->shape + 1, size));
    out[0] = lvni_kernels_rule_make(x->dtype, 4,
                                    (const int64_t[]){x->shape[0], size[0], size[1], x->shape[3]});
    out[1] = out[0];
    out[1].dtype = LVN_U8;
    return LVN_OK;
}

lvn_status lvni_kernels_shape_max_pool2d_grad(const lvn_kernel_args *args,
                                              lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "max_pool2d_grad";
    const lvn_tensor *dy = args->in[0], *place = args->in[1];
    const lvn_pool_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float(op, args, 1));
    LVN_TRY(lvni_kernels_rule_dtype(op, "the place", place, LVN_U8));
    LVN_TRY(lvni_kernels_rule_image(op, "dy", dy));
    LVN_TRY(lvni_kernels_rule_same(op, "dy", dy, "place", place));
    int64_t size[2];
    LVN_TRY(max_pool_output(op, attr, (const int64_t[]){attr->in_h, attr->in_w}, size));
    if (size[0] != dy->shape[1] || size[1] != dy->shape[2]) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: dy is %s but an image of %lld x %lld pools to %lld x %lld", op,
                 LVNI_SHAPE_TEXT(dy), (long long)attr->in_h, (long long)attr->in_w,
                 (long long)size[0], (long long)size[1]);
    }
    out[0] = lvni_kernels_rule_make(
        dy->dtype, 4, (const int64_t[]){dy->shape[0], attr->in_h, attr->in_w, dy->shape[3]});
    return LVN_OK;
}

/* ---- batch norm ---- */

/* Inputs first to last are vectors, one value per channel (last axis) of x. */
static lvn_status channel_vectors(const char *op, const lvn_tensor *x, const lvn_kernel_args *args,
                                  int first, int last, const char *const *names)
{
    if (x->ndim < 1) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: x is a single number, it must have channels in its last axis",
                 op);
    }
    for (int i = first; i <= last; i++) {
        LVN_TRY(lvni_kernels_rule_vector(op, names[i - first], args->in[i], x->shape[x->ndim - 1],
                                         "channel", x));
    }
    return LVN_OK;
}

static lvn_status several_values(const char *op, const lvn_tensor *x)
{
    int64_t n = 1;
    for (int i = 0; i < x->ndim - 1; i++) {
        n *= x->shape[i];
    }
    if (n < 2) {
        LVN_FAIL(
            LVN_ERR_SHAPE,
            "%s: batch norm needs more than one value per channel in training, x is %s; use larger "
            "micro-batches or images",
            op, LVNI_SHAPE_TEXT(x));
    }
    return LVN_OK;
}

static lvn_status need_eps(const char *op, const lvn_norm_attr *attr)
{
    LVN_ARG(attr->eps >= 0.0, "%s: eps is %g, it must not be negative", op, attr->eps);
    return LVN_OK;
}

/* Input i, unless NULL, has the shape of x. */
static lvn_status like_x(const char *op, const char *name, const lvn_kernel_args *args, int i,
                         const lvn_tensor *x)
{
    return args->in[i] == NULL ? LVN_OK : lvni_kernels_rule_same(op, name, args->in[i], "x", x);
}

lvn_status lvni_kernels_shape_batch_norm_train(const lvn_kernel_args *args,
                                               lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "batch_norm_train";
    static const char *const names[] = {"gamma", "beta"};
    const lvn_tensor *x = args->in[0];
    LVN_TRY(lvni_kernels_rule_float_params(op, args, 9, 6));
    LVN_TRY(need_eps(op, args->attr));
    LVN_TRY(channel_vectors(op, x, args, 1, 2, names));
    LVN_TRY(like_x(op, "the residual", args, 3, x));
    LVN_TRY(several_values(op, x));
    out[0] = lvni_tensor_get_desc(x);
    for (int i = 1; i < 4; i++) {
        out[i] = lvni_tensor_get_desc(args->in[1]);
    }
    return LVN_OK;
}

lvn_status lvni_kernels_shape_batch_norm_eval(const lvn_kernel_args *args,
                                              lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "batch_norm_eval";
    static const char *const names[] = {"gamma", "beta", "the running mean",
                                        "the running variance"};
    LVN_TRY(lvni_kernels_rule_float_params(op, args, 33, 30));
    LVN_TRY(need_eps(op, args->attr));
    LVN_TRY(channel_vectors(op, args->in[0], args, 1, 4, names));
    LVN_TRY(like_x(op, "the residual", args, 5, args->in[0]));
    out[0] = lvni_tensor_get_desc(args->in[0]);
    return LVN_OK;
}

/* dy, x, then four vectors, y -> dx, two vectors, dresidual. */
static lvn_status norm_grad(const char *op, const char *const *names, const lvn_kernel_args *args,
                            lvni_tensor_desc *out)
{
    LVN_TRY(lvni_kernels_rule_float_params(op, args, 67, 60));
    LVN_TRY(need_eps(op, args->attr));
    LVN_TRY(lvni_kernels_rule_same(op, "dy", args->in[0], "x", args->in[1]));
    LVN_TRY(channel_vectors(op, args->in[1], args, 2, 5, names));
    LVN_TRY(like_x(op, "y", args, 6, args->in[1]));
    out[0] = out[3] = lvni_tensor_get_desc(args->in[1]);
    out[1] = out[2] = lvni_tensor_get_desc(args->in[2]);
    return LVN_OK;
}

lvn_status lvni_kernels_shape_batch_norm_train_grad(const lvn_kernel_args *args,
                                                    lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char *const names[] = {"gamma", "the mean", "1/sqrt(var + eps)", "beta"};
    LVN_TRY(norm_grad("batch_norm_train_grad", names, args, out));
    return several_values("batch_norm_train_grad", args->in[1]);
}

lvn_status lvni_kernels_shape_batch_norm_eval_grad(const lvn_kernel_args *args,
                                                   lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char *const names[] = {"gamma", "the running mean", "the running variance",
                                        "beta"};
    return norm_grad("batch_norm_eval_grad", names, args, out);
}

/* ---- batch norm over a group of micro-batches, in parts ---- */

/* (2, C) of the type of statistics beside x. */
static lvni_tensor_desc two_vectors(const lvn_tensor *x)
{
    return lvni_kernels_rule_make(lvni_kernels_rule_weight_dtype(x), 2,
                                  (const int64_t[]){2, x->shape[x->ndim - 1]});
}

lvn_status lvni_kernels_shape_batch_norm_moments(const lvn_kernel_args *args,
                                                 lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "batch_norm_moments";
    LVN_TRY(lvni_kernels_rule_float(op, args, 1));
    LVN_TRY(channel_vectors(op, args->in[0], args, 1, 0, NULL));
    out[0] = two_vectors(args->in[0]);
    return LVN_OK;
}

lvn_status lvni_kernels_shape_batch_norm_sums(const lvn_kernel_args *args,
                                              lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char *const names[] = {"gamma", "the mean", "the variance", "beta"};
    lvni_tensor_desc all[LVN_KERNEL_OUTPUTS];
    LVN_TRY(norm_grad("batch_norm_sums", names, args, all));
    out[0] = two_vectors(args->in[1]);
    out[1] = all[0];
    return LVN_OK;
}

lvn_status lvni_kernels_shape_batch_norm_group_grad(const lvn_kernel_args *args,
                                                    lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "batch_norm_group_grad";
    static const char *const names[] = {"gamma", "the mean", "the variance", "beta"};
    const lvn_tensor *x = args->in[1], *sums = args->in[6];
    LVN_TRY(lvni_kernels_rule_float_params(op, args, 131, 124));
    LVN_TRY(need_eps(op, args->attr));
    LVN_TRY(lvni_kernels_rule_same(op, "dy", args->in[0], "x", x));
    LVN_TRY(channel_vectors(op, x, args, 2, 5, names));
    LVN_TRY(like_x(op, "y", args, 7, x));
    const lvni_tensor_desc need = two_vectors(x);
    if (sums->ndim != 2 || sums->shape[0] != 2 || sums->shape[1] != need.shape[1]) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: the sums are %s, but x is %s: they must be %s", op,
                 LVNI_SHAPE_TEXT(sums), LVNI_SHAPE_TEXT(x), LVNI_SHAPE_TEXT(&need));
    }
    out[0] = lvni_tensor_get_desc(x);
    return LVN_OK;
}

/* ---- softmax and losses ---- */

static lvn_status last_axis(const char *op, int n_in, const lvn_kernel_args *args,
                            lvni_tensor_desc *out)
{
    const lvn_tensor *x = args->in[0];
    LVN_TRY(lvni_kernels_rule_float(op, args, n_in == 2 ? 3 : 1));
    if (n_in == 2) {
        LVN_TRY(lvni_kernels_rule_same(op, "dy", x, "y", args->in[1]));
    }
    if (x->ndim < 1) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: works over the last axis, a single number has none", op);
    }
    out[0] = lvni_tensor_get_desc(x);
    return LVN_OK;
}

lvn_status lvni_kernels_shape_softmax(const lvn_kernel_args *args,
                                      lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    return last_axis("softmax", 1, args, out);
}

lvn_status lvni_kernels_shape_softmax_grad(const lvn_kernel_args *args,
                                           lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    return last_axis("softmax_grad", 2, args, out);
}

lvn_status lvni_kernels_shape_log_softmax(const lvn_kernel_args *args,
                                          lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    return last_axis("log_softmax", 1, args, out);
}

lvn_status lvni_kernels_shape_log_softmax_grad(const lvn_kernel_args *args,
                                               lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    return last_axis("log_softmax_grad", 2, args, out);
}
