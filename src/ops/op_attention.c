/* Scaled dot-product attention: of three tensors, or of one that holds queries, keys and values
 * side by side, as the linear layer before it writes them (nothing is copied or permuted). */
#include "autograd/tape.h"
#include "core/math.h"
#include "core/options_struct.h"

/* 1 / sqrt(features) unless the caller wants another. */
static lvni_kernels_attention_attr attributes(const lvn_attention_options *o, int64_t features)
{
    const double usual = features > 0 ? 1.0 / lvni_core_sqrt((double)features) : 1.0;
    return (lvni_kernels_attention_attr){.scale = o->scale == 0.0 ? usual : o->scale,
                                         .causal = o->causal};
}

/* saved: q, k, v, y, log-sums */
static lvn_status attention_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvni_kernels_args a = {
        .in = {dy, n->saved[0], n->saved[1], n->saved[2], n->saved[3], n->saved[4]},
        .attr = &n->attr.attention};
    unsigned want = 1;
    for (int i = 0; i < 3; i++) {
        want |= lvni_autograd_grad_wanted(n, i) ? 1u << i : 0u;
    }
    LVN_TRY(lvni_kernels_run(LVNI_OP_attention_grad, &a, want));
    lvn_status s = LVN_OK;
    for (int i = 0; i < 3; i++) {
        if (s == LVN_OK && lvni_autograd_grad_wanted(n, i)) {
            s = lvni_autograd_grad_give(n, i, a.out[i]);
        } else {
            lvn_release(a.out[i]);
        }
    }
    return s;
}

lvn_tensor *lvn_attention_with(lvn_tensor *q, lvn_tensor *k, lvn_tensor *v,
                               const lvn_attention_options *options)
{
    lvn_attention_options o;
    lvn_tensor *in[] = {q, k, v};
    if (lvni_core_options_copy("attention", &o, sizeof o, options) != LVN_OK ||
        !lvni_autograd_op_begin(LVNI_OP_attention, in, 3, 0)) {
        return lvni_autograd_op_fail("attention");
    }
    const lvni_kernels_attention_attr attr =
        attributes(&o, in[0]->ndim == 0 ? 0 : in[0]->shape[in[0]->ndim - 1]);
    lvni_kernels_args args = {.in = {in[0], in[1], in[2]}, .attr = &attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_attention, &args, 3);
    lvni_autograd_node *node = lvni_autograd_record("attention", attention_backward, y, in, 3);
    if (node != NULL) {
        node->attr.attention = attr;
        for (int i = 0; i < 3; i++) {
            lvni_autograd_save(node, i, in[i]);
        }
        lvni_autograd_save(node, 3, y);
        lvni_autograd_save(node, 4, args.out[1]);
    }
    return y;
}

/* saved: qkv, y, log-sums */
static lvn_status attention_qkv_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvni_kernels_args a = {.in = {dy, n->saved[0], n->saved[1], n->saved[2]},
                           .attr = &n->attr.attention};
    LVN_TRY(lvni_kernels_run(LVNI_OP_attention_qkv_grad, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

lvn_tensor *lvn_attention_qkv_with(lvn_tensor *qkv, const lvn_attention_options *options)
{
    lvn_attention_options o;
    if (lvni_core_options_copy("attention_qkv", &o, sizeof o, options) != LVN_OK ||
        !lvni_autograd_op_begin(LVNI_OP_attention_qkv, &qkv, 1, 0)) {
        return lvni_autograd_op_fail("attention_qkv");
    }
    const lvni_kernels_attention_attr attr =
        attributes(&o, qkv->ndim == 0 ? 0 : qkv->shape[qkv->ndim - 1]);
    lvni_kernels_args args = {.in = {qkv}, .attr = &attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_attention_qkv, &args, 3);
    lvni_autograd_node *node =
        lvni_autograd_record("attention_qkv", attention_qkv_backward, y, (lvn_tensor *[]){qkv}, 1);
    if (node != NULL) {
        node->attr.attention = attr;
        lvni_autograd_save(node, 0, qkv);
        lvni_autograd_save(node, 1, y);
        lvni_autograd_save(node, 2, args.out[1]);
    }
    return y;
}
