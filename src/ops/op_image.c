/* Images (N, H, W, C): average pooling and resizing, pixel shuffles, Fourier transforms. */
#include "autograd/tape.h"
#include "core/options_struct.h"

#include <math.h>

/* ---- average pooling and resizing ---- */

static lvn_tensor *resample(const char *name, lvn_tensor *x, const lvn_resample_attr *attr);

/* The map that leads back to the input of `n`. */
static lvn_resample_attr resample_back(const lvni_autograd_node *n)
{
    lvn_resample_attr attr = n->attr.resample;
    attr.transposed = !attr.transposed;
    attr.size[0] = n->in_desc.shape[1];
    attr.size[1] = n->in_desc.shape[2];
    return attr;
}

static lvn_status resample_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvn_resample_attr attr = resample_back(n);
    lvn_kernel_args a = {.in = {dy}, .attr = &attr};
    LVN_TRY(lvni_kernels_run(LVNI_OP_resample2d, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_status resample_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvn_resample_attr attr = resample_back(n);
    return lvni_autograd_grad_give_op(n, 0, resample(n->name, dy, &attr));
}

static lvn_tensor *resample(const char *name, lvn_tensor *x, const lvn_resample_attr *attr)
{
    if (!lvni_autograd_op_begin(LVNI_OP_resample2d, &x, 1, 0)) {
        return lvni_autograd_op_fail(name);
    }
    lvn_kernel_args args = {.in = {x}, .attr = attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_resample2d, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record("resample2d", resample_backward, y, &x, 1);
    if (node != NULL) {
        node->backward_ops = resample_backward_ops;
        node->attr.resample = *attr;
    }
    return y;
}

lvn_tensor *lvn_avg_pool2d_with(lvn_tensor *x, int kernel, const lvn_avg_pool2d_options *options)
{
    lvn_avg_pool2d_options o;
    if (lvni_core_options_copy("avg_pool2d", &o, sizeof o, options) != LVN_OK) {
        return lvni_autograd_op_fail("avg_pool2d");
    }
    lvn_resample_attr attr = {.kind = LVN_RESAMPLE_AVG_POOL, .exclude_padding = o.exclude_padding};
    lvn_pool_attr *pool = &attr.pool;
    lvni_core_options_per_axis(pool->kernel, o.kernel_hw, kernel, 0, 0);
    lvni_core_options_per_axis(pool->stride, o.stride_hw, o.stride, pool->kernel[0],
                               pool->kernel[1]);
    lvni_core_options_per_axis(pool->padding, o.padding_hw, o.padding, 0, 0);
    return resample("avg_pool2d", x, &attr);
}

lvn_tensor *lvn_adaptive_avg_pool2d(lvn_tensor *x, int64_t height, int64_t width)
{
    return resample(
        "adaptive_avg_pool2d", x,
        &(lvn_resample_attr){.kind = LVN_RESAMPLE_ADAPTIVE_POOL, .size = {height, width}});
}

static lvn_status read_resize(const lvn_resize2d_options *given, lvn_resize2d_options *o)
{
    LVN_TRY(lvni_core_options_copy("resize2d", o, sizeof *o, given));
    LVN_TRY(lvni_core_options_enum("resize2d", "mode", (int)o->mode, LVN_RESIZE_BICUBIC));
    LVN_ARG(!o->align_corners || o->mode != LVN_RESIZE_NEAREST,
            "resize2d: align_corners is for bilinear and bicubic; nearest has no corners to align");
    const bool scaled = o->scale[0] != 0.0 || o->scale[1] != 0.0;
    LVN_ARG(!(o->antialias || scaled) || (o->mode != LVN_RESIZE_NEAREST && !o->align_corners),
            "resize2d: %s is for bilinear and bicubic without align_corners",
            o->antialias ? "antialias" : "scale");
    return LVN_OK;
}

lvn_tensor *lvn_resize2d_with(lvn_tensor *x, int64_t height, int64_t width,
                              const lvn_resize2d_options *options)
{
    static const lvn_resample_kind kind[] = {[LVN_RESIZE_NEAREST] = LVN_RESAMPLE_NEAREST,
                                             [LVN_RESIZE_BILINEAR] = LVN_RESAMPLE_BILINEAR,
                                             [LVN_RESIZE_BICUBIC] = LVN_RESAMPLE_BICUBIC};
    lvn_resize2d_options o;
    if (read_resize(options, &o) != LVN_OK) {
        return lvni_autograd_op_fail("resize2d");
    }
    return resample("resize2d", x,
                    &(lvn_resample_attr){.kind = kind[o.mode],
                                         .size = {height, width},
                                         .align_corners = o.align_corners,
                                         .antialias = o.antialias,
                                         .scale = {o.scale[0], o.scale[1]}});
}

/* ---- pixel shuffles ---- */

static bool divides(const char *op, const lvn_tensor *x, bool ok, int factor, const char *what)
{
    char shape[96];
    if (x->ndim != 4 || factor < 1 || !ok) {
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "%s: x is %s, the factor %d; x must have 4 axes (batch, height, width, "
                      "channels) and %s",
                      op, lvni_tensor_shape_string(x->ndim, x->shape, shape), factor, what);
        return false;
    }
    return true;
}

lvn_tensor *lvn_pixel_shuffle(lvn_tensor *x, int factor)
{
    if (x == NULL || lvni_autograd_scope_failed()) {
        return lvni_autograd_op_fail("pixel_shuffle");
    }
    const int64_t r = factor, *s = x->shape;
    if (!divides("pixel_shuffle", x, x->ndim == 4 && r >= 1 && s[3] % (r * r) == 0, factor,
                 "a multiple of factor * factor channels")) {
        return lvni_autograd_op_fail("pixel_shuffle");
    }
    /* row, w, c, i, j */
    lvn_tensor *parts =
        lvn_reshape(x, 5, (const int64_t[]){s[0] * s[1], s[2], s[3] / (r * r), r, r});
    parts = lvn_permute(parts, (const int[]){0, 3, 1, 4, 2}, 5);
    return lvn_reshape(parts, 4, (const int64_t[]){s[0], s[1] * r, s[2] * r, s[3] / (r * r)});
}

lvn_tensor *lvn_pixel_unshuffle(lvn_tensor *x, int factor)
{
    if (x == NULL || lvni_autograd_scope_failed()) {
        return lvni_autograd_op_fail("pixel_unshuffle");
    }
    const int64_t r = factor, *s = x->shape;
    if (!divides("pixel_unshuffle", x, x->ndim == 4 && r >= 1 && s[1] % r == 0 && s[2] % r == 0,
                 factor, "a height and a width that are multiples of the factor")) {
        return lvni_autograd_op_fail("pixel_unshuffle");
    }
    /* row, i, w, j, c */
    lvn_tensor *parts =
        lvn_reshape(x, 5, (const int64_t[]){s[0] * (s[1] / r), r, s[2] / r, r, s[3]});
    parts = lvn_permute(parts, (const int[]){0, 2, 4, 1, 3}, 5);
    return lvn_reshape(parts, 4, (const int64_t[]){s[0], s[1] / r, s[2] / r, s[3] * r * r});
}

/* ---- Fourier transforms ---- */

static lvn_tensor *transform(const char *name, lvn_tensor *x, const lvn_fft_attr *attr);

static lvn_fft_attr fft_back(const lvni_autograd_node *n)
{
    lvn_fft_attr attr = n->attr.fft;
    attr.inverse = !attr.inverse;
    return attr;
}

static lvn_status fft_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvn_fft_attr attr = fft_back(n);
    lvn_kernel_args a = {.in = {dy}, .attr = &attr};
    LVN_TRY(lvni_kernels_run(LVNI_OP_fft, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_status fft_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvn_fft_attr attr = fft_back(n);
    return lvni_autograd_grad_give_op(n, 0, transform(n->name, dy, &attr));
}

static lvn_tensor *transform(const char *name, lvn_tensor *x, const lvn_fft_attr *attr)
{
    if (!lvni_autograd_op_begin(LVNI_OP_fft, &x, 1, 0)) {
        return lvni_autograd_op_fail(name);
    }
    lvn_kernel_args args = {.in = {x}, .attr = attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_fft, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record("fft", fft_backward, y, &x, 1);
    if (node != NULL) {
        node->backward_ops = fft_backward_ops;
        node->attr.fft = *attr;
    }
    return y;
}

/* Numbers that one result sums over; 1 where the shape is wrong, which the rule refuses. */
static double length(const lvn_tensor *x, int axes)
{
    double n = 1.0;
    for (int i = 0; x != NULL && i < axes && x->ndim > axes; i++) {
        n *= (double)x->shape[x->ndim - 2 - i];
    }
    return n;
}

static lvn_tensor *with(const char *name, lvn_tensor *x, int axes, bool inverse,
                        const lvn_fft_options *options)
{
    lvn_fft_options o;
    if (lvni_core_options_copy(name, &o, sizeof o, options) != LVN_OK ||
        lvni_core_options_enum(name, "norm", (int)o.norm, LVN_FFT_FORWARD) != LVN_OK) {
        return lvni_autograd_op_fail(name);
    }
    const double n = length(x, axes);
    /* this direction is divided by n */
    const lvn_fft_norm divided = inverse ? LVN_FFT_BACKWARD : LVN_FFT_FORWARD;
    const double scale = o.norm == LVN_FFT_ORTHO ? 1.0 / sqrt(n)
                         : o.norm == divided     ? 1.0 / n
                                                 : 1.0;
    return transform(
        name, x,
        &(lvn_fft_attr){.axes = axes, .inverse = inverse, .centered = o.centered, .scale = scale});
}

lvn_tensor *lvn_fft_with(lvn_tensor *x, const lvn_fft_options *o)
{
    return with("fft", x, 1, false, o);
}

lvn_tensor *lvn_ifft_with(lvn_tensor *x, const lvn_fft_options *o)
{
    return with("ifft", x, 1, true, o);
}

lvn_tensor *lvn_fft2_with(lvn_tensor *x, const lvn_fft_options *o)
{
    return with("fft2", x, 2, false, o);
}

lvn_tensor *lvn_ifft2_with(lvn_tensor *x, const lvn_fft_options *o)
{
    return with("ifft2", x, 2, true, o);
}
