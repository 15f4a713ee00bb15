/* Maps of keypoints: where their maxima are, and maps to train with (ops_image.h). */
#include "autograd/tape.h"
#include "core/options_struct.h"

/* ---- soft-argmax: saved are the maps and what the kernel keeps of each ---- */

static lvn_status soft_argmax_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_kernel_args a = {.in = {dy, n->saved[0], n->saved[1]}, .attr = &n->attr.soft_argmax};
    LVN_TRY(lvni_kernels_run(LVNI_OP_soft_argmax2d_grad, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

lvn_tensor *lvn_soft_argmax2d_with(lvn_tensor *maps, int doublings,
                                   const lvn_soft_argmax2d_options *options)
{
    enum { DEFAULT_TEMPERATURE = 1000 };
    lvn_soft_argmax2d_options o;
    if (lvni_core_options_copy("soft_argmax2d", &o, sizeof o, options) != LVN_OK ||
        !lvni_autograd_op_begin(LVNI_OP_soft_argmax2d, &maps, 1, 0)) {
        return lvni_autograd_op_fail("soft_argmax2d");
    }
    const lvn_soft_argmax_attr attr = {
        .doublings = doublings,
        .temperature = o.temperature == 0.0 ? (double)DEFAULT_TEMPERATURE : o.temperature};
    lvn_kernel_args args = {.in = {maps}, .attr = &attr};
    const bool recorded = lvni_autograd_records(&maps, 1);
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_soft_argmax2d, &args, recorded ? 3 : 1);
    lvni_autograd_node *node =
        lvni_autograd_record("soft_argmax2d", soft_argmax_backward, y, &maps, 1);
    if (node != NULL) {
        node->attr.soft_argmax = attr;
        lvni_autograd_save(node, 0, maps);
        lvni_autograd_save(node, 1, args.out[1]);
    }
    return y;
}

/* ---- maps to train with ---- */

lvn_tensor *lvn_heatmap2d(lvn_tensor *points, lvn_tensor *kind, int64_t height, int64_t width,
                          double scale, double sigma)
{
    const lvn_heatmap_attr attr = {
        .height = height, .width = width, .scale = scale, .sigma = sigma};
    lvn_tensor *in[] = {points, kind};
    if (lvni_autograd_op_constant("heatmap2d", "points", points) != LVN_OK ||
        !lvni_autograd_op_begin(LVNI_OP_heatmap2d, in, 2, 0)) {
        return lvni_autograd_op_fail("heatmap2d");
    }
    lvn_kernel_args args = {.in = {in[0], in[1]}, .attr = &attr};
    return lvni_autograd_op_run(LVNI_OP_heatmap2d, &args, 1);
}
