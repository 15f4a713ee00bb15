/* Shape rules of average pooling, resizing, windows and Fourier transforms (shape_rules_nn.c has
 * convolution and max pooling). */
#include "kernels/shape_rules_impl.h"

#include <limits.h>

/* The public op behind the kind. */
static const char *resample_name(lvn_resample_kind kind)
{
    return kind == LVN_RESAMPLE_AVG_POOL        ? "avg_pool2d"
           : kind == LVN_RESAMPLE_ADAPTIVE_POOL ? "adaptive_avg_pool2d"
                                                : "resize2d";
}

/* The last pixel of the result must be within the image: filters see something there. */
static lvn_status check_scale(const char *op, const lvn_resample_attr *attr, const int64_t from[2],
                              const int64_t to[2])
{
    static const char *const axis[2] = {"height", "width"};
    for (int i = 0; i < 2; i++) {
        const double scale = attr->scale[i];
        if (scale != 0.0 &&
            !(scale > 0.0 && scale <= 1e9 && (double)to[i] - 0.5 <= (double)from[i] * scale)) {
            LVN_FAIL(LVN_ERR_INVALID,
                     "%s: scale %g of the %s is not possible: it must be positive, and %lld pixels "
                     "of the result, each of 1 / scale, must lie within %lld of the image",
                     op, scale, axis[i], (long long)to[i], (long long)from[i]);
        }
    }
    return LVN_OK;
}

lvn_status lvni_kernels_shape_resample2d(const lvn_kernel_args *args,
                                         lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0];
    const lvn_resample_attr *attr = args->attr;
    const char *op = resample_name(attr->kind);
    LVN_TRY(lvni_kernels_rule_float(op, args, 1));
    LVN_TRY(lvni_kernels_rule_image(op, attr->transposed ? "dy" : "x", x));
    const int64_t *in = x->shape + 1;
    int64_t size[2] = {attr->size[0], attr->size[1]}, pooled[2] = {0, 0};
    if (attr->kind == LVN_RESAMPLE_AVG_POOL) {
        LVN_TRY(lvni_kernels_rule_pool(op, &attr->pool, attr->transposed ? size : in, pooled));
    }
    if (attr->kind == LVN_RESAMPLE_AVG_POOL && !attr->transposed) {
        size[0] = pooled[0];
        size[1] = pooled[1];
    }
    if (in[0] < 1 || in[1] < 1 || size[0] < 1 || size[1] < 1) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: from %s to height %lld and width %lld: both must be at least 1 on both sides",
                 op, LVNI_SHAPE_TEXT(x), (long long)size[0], (long long)size[1]);
    }
    if (attr->kind == LVN_RESAMPLE_AVG_POOL && attr->transposed &&
        (in[0] != pooled[0] || in[1] != pooled[1])) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: dy is %s but an image of %lld x %lld pools to %lld x %lld", op,
                 LVNI_SHAPE_TEXT(x), (long long)size[0], (long long)size[1], (long long)pooled[0],
                 (long long)pooled[1]);
    }
    LVN_TRY(check_scale(op, attr, attr->transposed ? size : in, attr->transposed ? in : size));
    out[0] = lvni_kernels_rule_make(x->dtype, 4,
                                    (const int64_t[]){x->shape[0], size[0], size[1], x->shape[3]});
    return LVN_OK;
}

/* How many windows of `attr` an image has. */
static lvn_status count_windows(const char *op, const lvn_window_attr *a, const int64_t in[2],
                                int64_t out[2])
{
    static const char *const axis[2] = {"height", "width"};
    for (int i = 0; i < 2; i++) {
        LVN_TRY(lvni_kernels_rule_window(op, axis[i], in[i], a->kernel[i], a->stride[i],
                                         a->padding[i], a->dilation[i], &out[i]));
    }
    return LVN_OK;
}

lvn_status lvni_kernels_shape_unfold(const lvn_kernel_args *args,
                                     lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0];
    const lvn_window_attr *a = args->attr;
    int64_t n[2];
    LVN_TRY(lvni_kernels_rule_float("unfold", args, 1));
    LVN_TRY(lvni_kernels_rule_image("unfold", "x", x));
    LVN_TRY(count_windows("unfold", a, x->shape + 1, n));
    out[0] = lvni_kernels_rule_make(
        x->dtype, 4,
        (const int64_t[]){x->shape[0], n[0], n[1],
                          (int64_t)a->kernel[0] * a->kernel[1] * x->shape[3]});
    return LVN_OK;
}

lvn_status lvni_kernels_shape_fold(const lvn_kernel_args *args,
                                   lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0];
    const lvn_window_attr *a = args->attr;
    int64_t n[2];
    LVN_TRY(lvni_kernels_rule_float("fold", args, 1));
    if (x->ndim != 4) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "fold: x is %s, it must have 4 axes (batch, windows along the height, windows "
                 "along the width, a window's numbers)",
                 LVNI_SHAPE_TEXT(x));
    }
    LVN_TRY(count_windows("fold", a, (const int64_t[]){a->in_h, a->in_w}, n));
    const int64_t places = (int64_t)a->kernel[0] * a->kernel[1];
    if (x->shape[1] != n[0] || x->shape[2] != n[1] || x->shape[3] % places != 0) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "fold: x is %s, but an image of %lld x %lld has %lld x %lld windows of %d x %d "
                 "pixels: the last axis must be a multiple of %lld",
                 LVNI_SHAPE_TEXT(x), (long long)a->in_h, (long long)a->in_w, (long long)n[0],
                 (long long)n[1], a->kernel[0], a->kernel[1], (long long)places);
    }
    out[0] = lvni_kernels_rule_make(
        x->dtype, 4, (const int64_t[]){x->shape[0], a->in_h, a->in_w, x->shape[3] / places});
    return LVN_OK;
}

/* ---- sampling ---- */

lvn_status lvni_kernels_shape_affine_grid(const lvn_kernel_args *args,
                                          lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0];
    const lvn_affine_attr *a = args->attr;
    const int64_t n = x->ndim > 0 ? x->shape[0] : 0;
    const lvni_tensor_desc theta = lvni_kernels_rule_make(x->dtype, 3, (const int64_t[]){n, 2, 3}),
                           grid = lvni_kernels_rule_make(
                               x->dtype, 4, (const int64_t[]){n, a->height, a->width, 2});
    const lvni_tensor_desc *need = a->transposed ? &grid : &theta;
    LVN_TRY(lvni_kernels_rule_float("affine_grid", args, 1));
    LVN_ARG(a->height >= 1 && a->width >= 1,
            "affine_grid: a grid of %lld x %lld positions: both must be at least 1",
            (long long)a->height, (long long)a->width);
    bool same = x->ndim == need->ndim;
    for (int i = 0; i < need->ndim && same; i++) {
        same = x->shape[i] == need->shape[i];
    }
    if (!same) {
        LVN_FAIL(LVN_ERR_SHAPE, "affine_grid: %s is %s, it must be %s",
                 a->transposed ? "dy" : "theta", LVNI_SHAPE_TEXT(x), LVNI_SHAPE_TEXT(need));
    }
    out[0] = a->transposed ? theta : grid;
    return LVN_OK;
}

/* An image (or dy) and the positions (N, H, W, 2) of its samples. */
static lvn_status need_positions(const char *op, const char *what, const lvn_tensor *x,
                                 const lvn_tensor *grid)
{
    LVN_TRY(lvni_kernels_rule_image(op, what, x));
    if (grid->ndim != 4 || grid->shape[3] != 2 || grid->shape[0] != x->shape[0]) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: the grid is %s, for %s %s it must be (%lld, height, width, 2): x and y of "
                 "each position",
                 op, LVNI_SHAPE_TEXT(grid), what, LVNI_SHAPE_TEXT(x), (long long)x->shape[0]);
    }
    return LVN_OK;
}

static lvn_status need_pixels(const char *op, int64_t h, int64_t w)
{
    LVN_ARG(h >= 1 && w >= 1, "%s: an image of %lld x %lld: it must have a pixel", op, (long long)h,
            (long long)w);
    return LVN_OK;
}

/* dy is what the forward pass gives for these positions. */
static lvn_status need_dy(const char *op, const lvn_tensor *dy, const lvn_tensor *grid)
{
    LVN_TRY(need_positions(op, "dy", dy, grid));
    if (dy->shape[1] != grid->shape[1] || dy->shape[2] != grid->shape[2]) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: dy is %s but the grid is %s: one value for each position", op,
                 LVNI_SHAPE_TEXT(dy), LVNI_SHAPE_TEXT(grid));
    }
    return LVN_OK;
}

lvn_status lvni_kernels_shape_grid_sample(const lvn_kernel_args *args,
                                          lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0], *grid = args->in[1];
    LVN_TRY(lvni_kernels_rule_float("grid_sample", args, 3));
    LVN_TRY(need_positions("grid_sample", "x", x, grid));
    LVN_TRY(need_pixels("grid_sample", x->shape[1], x->shape[2]));
    out[0] = lvni_kernels_rule_make(
        x->dtype, 4, (const int64_t[]){x->shape[0], grid->shape[1], grid->shape[2], x->shape[3]});
    return LVN_OK;
}

lvn_status lvni_kernels_shape_grid_sample_grad_input(const lvn_kernel_args *args,
                                                     lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "grid_sample_grad_input";
    const lvn_tensor *dy = args->in[0];
    const lvn_sample_attr *a = args->attr;
    LVN_TRY(lvni_kernels_rule_float(op, args, 3));
    LVN_TRY(need_dy(op, dy, args->in[1]));
    LVN_TRY(need_pixels(op, a->in_h, a->in_w));
    out[0] = lvni_kernels_rule_make(
        dy->dtype, 4, (const int64_t[]){dy->shape[0], a->in_h, a->in_w, dy->shape[3]});
    return LVN_OK;
}

lvn_status lvni_kernels_shape_grid_sample_grad_grid(const lvn_kernel_args *args,
                                                    lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "grid_sample_grad_grid";
    const lvn_tensor *dy = args->in[0], *x = args->in[1], *grid = args->in[2];
    LVN_TRY(lvni_kernels_rule_float(op, args, 7));
    LVN_TRY(need_positions(op, "x", x, grid));
    LVN_TRY(need_pixels(op, x->shape[1], x->shape[2]));
    LVN_TRY(need_dy(op, dy, grid));
    if (dy->shape[3] != x->shape[3]) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: dy is %s but x is %s: both must have the same channels", op,
                 LVNI_SHAPE_TEXT(dy), LVNI_SHAPE_TEXT(x));
    }
    out[0] = lvni_tensor_get_desc(grid);
    return LVN_OK;
}

/* ---- maps of keypoints ---- */

enum { MOST_DOUBLINGS = 4, OF_MAP = 3, KEPT = 5 };

static lvn_status need_maps(const char *op, const lvn_tensor *x, const lvn_soft_argmax_attr *a)
{
    if (x->ndim != 4 || x->shape[1] < 1 || x->shape[2] < 1) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: maps are %s, they must be (batch, height, width, keypoints) "
                 "with at least one pixel",
                 op, LVNI_SHAPE_TEXT(x));
    }
    LVN_ARG(a->doublings >= 0 && a->doublings <= MOST_DOUBLINGS,
            "%s: doublings is %d, it must be 0 to %d", op, a->doublings, MOST_DOUBLINGS);
    LVN_ARG(a->temperature > 0.0, "%s: temperature is %g, it must be positive", op, a->temperature);
    return LVN_OK;
}

lvn_status lvni_kernels_shape_soft_argmax2d(const lvn_kernel_args *args,
                                            lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0];
    LVN_TRY(lvni_kernels_rule_float("soft_argmax2d", args, 1));
    LVN_TRY(need_maps("soft_argmax2d", x, args->attr));
    out[0] =
        lvni_kernels_rule_make(x->dtype, 3, (const int64_t[]){x->shape[0], x->shape[3], OF_MAP});
    out[1] = lvni_kernels_rule_make(x->dtype, 3, (const int64_t[]){x->shape[0], x->shape[3], KEPT});
    return LVN_OK;
}

lvn_status lvni_kernels_shape_soft_argmax2d_grad(const lvn_kernel_args *args,
                                                 lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "soft_argmax2d_grad";
    const lvn_tensor *dy = args->in[0], *x = args->in[1], *kept = args->in[2];
    LVN_TRY(lvni_kernels_rule_float(op, args, 7));
    LVN_TRY(need_maps(op, x, args->attr));
    for (int i = 0; i < 2; i++) {
        const lvn_tensor *t = i == 0 ? dy : kept;
        const int64_t each = i == 0 ? OF_MAP : KEPT;
        if (t->ndim != 3 || t->shape[0] != x->shape[0] || t->shape[1] != x->shape[3] ||
            t->shape[2] != each) {
            LVN_FAIL(LVN_ERR_SHAPE, "%s: %s is %s, for maps %s it must be (%lld, %lld, %lld)", op,
                     i == 0 ? "dy" : "what was kept", LVNI_SHAPE_TEXT(t), LVNI_SHAPE_TEXT(x),
                     (long long)x->shape[0], (long long)x->shape[3], (long long)each);
        }
    }
    out[0] = lvni_tensor_get_desc(x);
    return LVN_OK;
}

lvn_status lvni_kernels_shape_heatmap2d(const lvn_kernel_args *args,
                                        lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *points = args->in[0], *kind = args->in[1];
    const lvn_heatmap_attr *a = args->attr;
    LVN_TRY(lvni_kernels_rule_float("heatmap2d", args, 3));
    if (points->ndim != 3 || points->shape[2] != 2 || kind->ndim != 2 ||
        kind->shape[0] != points->shape[0] || kind->shape[1] != points->shape[1]) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "heatmap2d: points are %s and kind is %s; they must be (batch, keypoints, 2), x "
                 "and y, and (batch, keypoints)",
                 LVNI_SHAPE_TEXT(points), LVNI_SHAPE_TEXT(kind));
    }
    LVN_ARG(a->height >= 1 && a->width >= 1,
            "heatmap2d: maps of %lld x %lld: they must have a pixel", (long long)a->height,
            (long long)a->width);
    LVN_ARG(a->scale > 0.0 && a->sigma > 0.0,
            "heatmap2d: scale is %g and sigma %g, both must be positive", a->scale, a->sigma);
    out[0] = lvni_kernels_rule_make(
        points->dtype, 4,
        (const int64_t[]){points->shape[0], a->height, a->width, points->shape[1]});
    return LVN_OK;
}

/* ---- Fourier transforms ---- */

lvn_status lvni_kernels_shape_fft(const lvn_kernel_args *args,
                                  lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0];
    const lvn_fft_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float("fft", args, 1));
    LVN_ARG(attr->axes == 1 || attr->axes == 2, "fft: over %d axes, it must be 1 or 2", attr->axes);
    if (x->ndim <= attr->axes || x->shape[x->ndim - 1] != 2) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "fft: x is %s; complex numbers have their real and imaginary part in a last axis "
                 "of size 2, with %d axes before it",
                 LVNI_SHAPE_TEXT(x), attr->axes);
    }
    for (int i = x->ndim - 1 - attr->axes; i < x->ndim - 1; i++) {
        if (x->shape[i] < 1 || x->shape[i] > INT_MAX / 4) {
            LVN_FAIL(LVN_ERR_SHAPE, "fft: x is %s; a transformed axis must have 1 to %d numbers",
                     LVNI_SHAPE_TEXT(x), INT_MAX / 4);
        }
    }
    out[0] = lvni_tensor_get_desc(x);
    return LVN_OK;
}
