/* Average pooling and resizing of images (N, H, W, C): linear maps, so the gradient is the
 * transposed map, and the gradient's gradient the map itself. */
#include "autograd/tape.h"
#include "core/options_struct.h"

static lvn_tensor *resample(const char *name, lvn_tensor *x,
                            const lvni_kernels_resample_attr *attr);

/* The map that leads back to the input of `n`. */
static lvni_kernels_resample_attr back(const lvni_autograd_node *n)
{
    lvni_kernels_resample_attr attr = n->attr.resample;
    attr.transposed = !attr.transposed;
    attr.size[0] = n->in_desc.shape[1];
    attr.size[1] = n->in_desc.shape[2];
    return attr;
}

static lvn_status resample_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvni_kernels_resample_attr attr = back(n);
    lvni_kernels_args a = {.in = {dy}, .attr = &attr};
    LVN_TRY(lvni_kernels_run(LVNI_OP_resample2d, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_status resample_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvni_kernels_resample_attr attr = back(n);
    return lvni_autograd_grad_give_op(n, 0, resample(n->name, dy, &attr));
}

static lvn_tensor *resample(const char *name, lvn_tensor *x, const lvni_kernels_resample_attr *attr)
{
    if (!lvni_autograd_op_begin(LVNI_OP_resample2d, &x, 1, 0)) {
        return lvni_autograd_op_fail(name);
    }
    lvni_kernels_args args = {.in = {x}, .attr = attr};
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
    const int stride = o.stride == 0 ? kernel : o.stride;
    const lvni_kernels_resample_attr attr = {.kind = LVNI_AVG_POOL,
                                             .pool = {.kernel = {kernel, kernel},
                                                      .stride = {stride, stride},
                                                      .padding = {o.padding, o.padding}},
                                             .exclude_padding = o.exclude_padding};
    return resample("avg_pool2d", x, &attr);
}

lvn_tensor *lvn_adaptive_avg_pool2d(lvn_tensor *x, int64_t height, int64_t width)
{
    return resample(
        "adaptive_avg_pool2d", x,
        &(lvni_kernels_resample_attr){.kind = LVNI_ADAPTIVE_POOL, .size = {height, width}});
}

static lvn_status read_resize(const lvn_resize2d_options *given, lvn_resize2d_options *o)
{
    LVN_TRY(lvni_core_options_copy("resize2d", o, sizeof *o, given));
    LVN_TRY(lvni_core_options_enum("resize2d", "mode", (int)o->mode, LVN_RESIZE_BICUBIC));
    LVN_ARG(!o->align_corners || o->mode != LVN_RESIZE_NEAREST,
            "resize2d: align_corners is for bilinear and bicubic; nearest has no corners to align");
    return LVN_OK;
}

lvn_tensor *lvn_resize2d_with(lvn_tensor *x, int64_t height, int64_t width,
                              const lvn_resize2d_options *options)
{
    static const lvni_kernels_resample_kind kind[] = {[LVN_RESIZE_NEAREST] = LVNI_NEAREST,
                                                      [LVN_RESIZE_BILINEAR] = LVNI_BILINEAR,
                                                      [LVN_RESIZE_BICUBIC] = LVNI_BICUBIC};
    lvn_resize2d_options o;
    if (read_resize(options, &o) != LVN_OK) {
        return lvni_autograd_op_fail("resize2d");
    }
    return resample("resize2d", x,
                    &(lvni_kernels_resample_attr){.kind = kind[o.mode],
                                                  .size = {height, width},
                                                  .align_corners = o.align_corners});
}
