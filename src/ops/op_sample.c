/* Positions from affine maps and images sampled at positions: spatial transformers (Jaderberg et
 * al. 2015). */
#include "autograd/tape.h"
#include "core/options_struct.h"

/* ---- affine maps: linear in theta; the gradient is the transposed map ---- */

static lvn_tensor *affine(lvn_tensor *x, const lvn_affine_attr *attr);

static lvn_affine_attr affine_back(const lvni_autograd_node *n)
{
    lvn_affine_attr attr = n->attr.affine;
    attr.transposed = !attr.transposed;
    return attr;
}

static lvn_status affine_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvn_affine_attr attr = affine_back(n);
    lvn_kernel_args a = {.in = {dy}, .attr = &attr};
    LVN_TRY(lvni_kernels_run(LVNI_OP_affine_grid, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_status affine_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvn_affine_attr attr = affine_back(n);
    return lvni_autograd_grad_give_op(n, 0, affine(dy, &attr));
}

static lvn_tensor *affine(lvn_tensor *x, const lvn_affine_attr *attr)
{
    if (!lvni_autograd_op_begin(LVNI_OP_affine_grid, &x, 1, 0)) {
        return lvni_autograd_op_fail("affine_grid");
    }
    lvn_kernel_args args = {.in = {x}, .attr = attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_affine_grid, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record("affine_grid", affine_backward, y, &x, 1);
    if (node != NULL) {
        node->backward_ops = affine_backward_ops;
        node->attr.affine = *attr;
    }
    return y;
}

lvn_tensor *lvn_affine_grid_with(lvn_tensor *theta, int64_t height, int64_t width,
                                 const lvn_affine_grid_options *options)
{
    lvn_affine_grid_options o;
    if (lvni_core_options_copy("affine_grid", &o, sizeof o, options) != LVN_OK) {
        return lvni_autograd_op_fail("affine_grid");
    }
    return affine(theta, &(lvn_affine_attr){
                             .height = height, .width = width, .align_corners = o.align_corners});
}

/* ---- sampling: saved are x and the grid ---- */

static lvn_status grid_sample_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_sample_attr attr = n->attr.sample;
    lvn_tensor *x = n->saved[0], *grid = n->saved[1];
    attr.in_h = x->shape[1];
    attr.in_w = x->shape[2];
    if (lvni_autograd_grad_wanted(n, 0)) {
        lvn_kernel_args a = {.in = {dy, grid}, .attr = &attr};
        LVN_TRY(lvni_kernels_run(LVNI_OP_grid_sample_grad_input, &a, 1));
        LVN_TRY(lvni_autograd_grad_give(n, 0, a.out[0]));
    }
    if (lvni_autograd_grad_wanted(n, 1)) {
        lvn_kernel_args a = {.in = {dy, x, grid}, .attr = &attr};
        LVN_TRY(lvni_kernels_run(LVNI_OP_grid_sample_grad_grid, &a, 1));
        LVN_TRY(lvni_autograd_grad_give(n, 1, a.out[0]));
    }
    return LVN_OK;
}

static lvn_status read_sample(const lvn_grid_sample_options *given, lvn_sample_attr *attr)
{
    lvn_grid_sample_options o;
    LVN_TRY(lvni_core_options_copy("grid_sample", &o, sizeof o, given));
    static const lvn_outside_kind outside[] = {[LVN_SAMPLE_ZEROS] = LVN_OUTSIDE_ZEROS,
                                               [LVN_SAMPLE_BORDER] = LVN_OUTSIDE_BORDER,
                                               [LVN_SAMPLE_REFLECTION] = LVN_OUTSIDE_REFLECTION};
    LVN_TRY(lvni_core_options_enum("grid_sample", "mode", (int)o.mode, LVN_SAMPLE_NEAREST));
    LVN_TRY(
        lvni_core_options_enum("grid_sample", "padding", (int)o.padding, LVN_SAMPLE_REFLECTION));
    *attr = (lvn_sample_attr){.nearest = o.mode == LVN_SAMPLE_NEAREST,
                              .align_corners = o.align_corners,
                              .outside = outside[o.padding]};
    return LVN_OK;
}

lvn_tensor *lvn_grid_sample_with(lvn_tensor *x, lvn_tensor *grid,
                                 const lvn_grid_sample_options *options)
{
    lvn_sample_attr attr;
    lvn_tensor *in[] = {x, grid};
    if (read_sample(options, &attr) != LVN_OK ||
        !lvni_autograd_op_begin(LVNI_OP_grid_sample, in, 2, 0)) {
        return lvni_autograd_op_fail("grid_sample");
    }
    lvn_kernel_args args = {.in = {in[0], in[1]}, .attr = &attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_grid_sample, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record("grid_sample", grid_sample_backward, y, in, 2);
    if (node != NULL) {
        node->attr.sample = attr;
        lvni_autograd_save(node, 0, in[0]);
        lvni_autograd_save(node, 1, in[1]);
    }
    return y;
}
