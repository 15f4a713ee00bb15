/* Matrix products, the linear layer, scaled dot-product attention, and rows of a table by their
 * numbers (embedding). */
#include "ops/attention.h"

#include "autograd/tape.h"
#include "core/math.h"
#include "core/options_struct.h"

#include <string.h>

/* ---- matrix products ---- */

/* matmul of two tensors with transposes, owned by the caller. */
static lvn_tensor *product(const lvn_tensor *a, bool ta, const lvn_tensor *b, bool tb,
                           lvn_tensor *dest)
{
    const lvn_matmul_attr attr = {.trans_a = ta, .trans_b = tb};
    lvn_kernel_args args = {.in = {a, b}, .out = {dest}, .attr = &attr};
    if (lvni_kernels_run(LVNI_OP_matmul, &args, 1) == LVN_OK) {
        return args.out[0];
    }
    lvn_release(dest);
    return NULL;
}

/* With op(.) the transpose asked for, Y = op(A) op(B): dop(A) = dY op(B)^T, dop(B) = op(A)^T dY. */
static lvn_status matmul_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvn_matmul_attr t = n->attr.matmul;
    const lvn_tensor *a = n->saved[0], *b = n->saved[1];
    if (lvni_autograd_grad_wanted(n, 0)) {
        lvn_tensor *dest = lvni_autograd_grad_dest(n, 0);
        LVN_TRY(lvni_autograd_grad_give(n, 0,
                                        t.trans_a ? product(b, t.trans_b, dy, true, dest)
                                                  : product(dy, false, b, !t.trans_b, dest)));
    }
    if (lvni_autograd_grad_wanted(n, 1)) {
        lvn_tensor *dest = lvni_autograd_grad_dest(n, 1);
        LVN_TRY(lvni_autograd_grad_give(n, 1,
                                        t.trans_b ? product(dy, true, a, t.trans_a, dest)
                                                  : product(a, !t.trans_a, dy, false, dest)));
    }
    return LVN_OK;
}

static lvn_tensor *matmul(lvn_tensor *a, bool ta, lvn_tensor *b, bool tb)
{
    return lvn_matmul(a, b, .trans_a = ta, .trans_b = tb);
}

static lvn_status matmul_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    const lvn_matmul_attr t = n->attr.matmul;
    lvn_tensor *a = n->saved[0], *b = n->saved[1];
    if (lvni_autograd_grad_wanted(n, 0)) {
        LVN_TRY(lvni_autograd_grad_give_op(
            n, 0, t.trans_a ? matmul(b, t.trans_b, dy, true) : matmul(dy, false, b, !t.trans_b)));
    }
    if (lvni_autograd_grad_wanted(n, 1)) {
        LVN_TRY(lvni_autograd_grad_give_op(
            n, 1, t.trans_b ? matmul(dy, true, a, t.trans_a) : matmul(a, !t.trans_a, dy, false)));
    }
    return LVN_OK;
}

/* Equal sizes in front; types as the table asks. */
static lvn_tensor *matmul_equal(lvn_tensor *const *in, const lvn_matmul_attr *attr)
{
    lvn_kernel_args args = {.in = {in[0], in[1]}, .attr = attr};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_matmul, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record("matmul", matmul_backward, y, in, 2);
    if (node != NULL) {
        node->backward_ops = matmul_backward_ops;
        node->attr.matmul = *attr;
        lvni_autograd_save(node, 0, in[0]);
        lvni_autograd_save(node, 1, in[1]);
    }
    return y;
}

/* (.., columns) as (rows, columns), and a result (rows, columns) with the axes of `like` in front.
 * Both share memory. */
static lvn_tensor *as_rows(lvn_tensor *x)
{
    int64_t rows = 1;
    for (int i = 0; i < x->ndim - 1; i++) {
        rows *= x->shape[i];
    }
    return lvn_reshape(x, 2, (const int64_t[]){rows, x->shape[x->ndim - 1]});
}

static lvn_tensor *with_axes_of(lvn_tensor *rows, const lvn_tensor *like)
{
    int64_t shape[LVN_MAX_NDIM];
    if (rows == NULL) {
        return NULL;
    }
    memcpy(shape, like->shape, sizeof shape);
    shape[like->ndim - 1] = rows->shape[1];
    return lvn_reshape(rows, like->ndim, shape);
}

/* The axes in front of both matrices broadcast against each other, as far as they can be. */
static void broadcast_front(lvn_tensor *in[2])
{
    const int ndim = in[0]->ndim > in[1]->ndim ? in[0]->ndim : in[1]->ndim;
    int64_t shape[2][LVN_MAX_NDIM] = {{0}};
    for (int i = 0; i < ndim; i++) {
        const int at[2] = {i - (ndim - in[0]->ndim), i - (ndim - in[1]->ndim)};
        const int64_t size[2] = {at[0] < 0 ? 1 : in[0]->shape[at[0]],
                                 at[1] < 0 ? 1 : in[1]->shape[at[1]]};
        const int64_t common = size[0] == 1 ? size[1] : size[0];
        for (int k = 0; k < 2; k++) {
            if (i < ndim - 2 && size[k] != 1 && size[k] != common) {
                return; /* the shape rule names both */
            }
            shape[k][i] = i < ndim - 2 ? common : size[k];
        }
    }
    for (int k = 0; k < 2; k++) {
        in[k] = lvn_expand(in[k], ndim, shape[k]);
    }
}

lvn_tensor *lvn_matmul_with(lvn_tensor *a, lvn_tensor *b, const lvn_matmul_options *options)
{
    lvn_matmul_options o;
    lvn_tensor *in[] = {a, b};
    if (lvni_core_options_copy("matmul", &o, sizeof o, options) != LVN_OK ||
        !lvni_autograd_op_begin(LVNI_OP_matmul, in, 2, 0)) {
        return lvni_autograd_op_fail("matmul");
    }
    const lvn_matmul_attr attr = {.trans_a = o.trans_a, .trans_b = o.trans_b};
    if (in[0]->ndim > 2 && in[1]->ndim == 2 && !o.trans_a) { /* one product of all rows */
        lvn_tensor *const flat[] = {as_rows(in[0]), in[1]};
        return flat[0] == NULL ? NULL : with_axes_of(matmul_equal(flat, &attr), in[0]);
    }
    if (in[0]->ndim >= 2 && in[1]->ndim >= 2 && (in[0]->ndim > 2 || in[1]->ndim > 2)) {
        broadcast_front(in);
    }
    return in[0] == NULL || in[1] == NULL ? NULL : matmul_equal(in, &attr);
}

/* ---- linear ---- */

/* y = x w^T + b: dx = dy w, dw = dy^T x, db = column sums of dy */
static lvn_status linear_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    if (lvni_autograd_grad_wanted(n, 0)) {
        lvn_kernel_args a = {.in = {dy, n->saved[1]}};
        LVN_TRY(lvni_kernels_run(LVNI_OP_linear_grad_input, &a, 1));
        LVN_TRY(lvni_autograd_grad_give(n, 0, a.out[0]));
    }
    return lvni_autograd_grad_weight_and_bias(n, LVNI_OP_linear_grad_weight,
                                              &(lvn_kernel_args){.in = {dy, n->saved[0]}});
}

static lvn_status linear_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    if (lvni_autograd_grad_wanted(n, 0)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, 0, matmul(dy, false, n->saved[1], false)));
    }
    if (lvni_autograd_grad_wanted(n, 1)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, 1, matmul(dy, true, n->saved[0], false)));
    }
    return lvni_autograd_grad_wanted(n, 2)
               ? lvni_autograd_grad_give_op(n, 2, lvn_sum_axes(dy, (const int[]){0}, 1, false))
               : LVN_OK;
}

static lvn_tensor *linear_rows(lvn_tensor *const *in)
{
    lvn_kernel_args args = {.in = {in[0], in[1], in[2]}};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_linear, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record("linear", linear_backward, y, in, 3);
    if (node != NULL) {
        node->backward_ops = linear_backward_ops;
        lvni_autograd_save(node, 0, in[0]);
        lvni_autograd_save(node, 1, in[1]);
    }
    return y;
}

lvn_tensor *lvn_linear(lvn_tensor *x, lvn_tensor *w, lvn_tensor *b)
{
    lvn_tensor *in[] = {x, w, b};
    if (!lvni_autograd_op_begin(LVNI_OP_linear, in, 3, 4)) {
        return lvni_autograd_op_fail("linear");
    }
    if (in[0]->ndim == 2 || in[0]->ndim == 0) {
        return linear_rows(in);
    }
    lvn_tensor *const flat[] = {as_rows(in[0]), in[1], in[2]};
    return flat[0] == NULL ? NULL : with_axes_of(linear_rows(flat), in[0]);
}

/* ---- attention: of three tensors, or of one that holds queries, keys and values side by side, as
 * the linear layer before it writes them (nothing is copied or permuted) ---- */

/* 1 / sqrt(features) unless the caller wants another. */
static lvn_attention_attr attention_attributes(const lvn_attention_options *o, int64_t features)
{
    const double usual = features > 0 ? 1.0 / lvni_core_sqrt((double)features) : 1.0;
    return (lvn_attention_attr){.scale = o->scale == 0.0 ? usual : o->scale, .causal = o->causal};
}

/* saved: q, k, v, y, log-sums */
static lvn_status attention_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_kernel_args a = {
        .in = {dy, n->saved[0], n->saved[1], n->saved[2], n->saved[3], n->saved[4]},
        .attr = &n->attr.attention};
    unsigned want = 1;
    for (int i = 0; i < 3; i++) {
        want |= lvni_autograd_grad_wanted(n, i) ? 1u << i : 0u;
    }
    LVN_TRY(lvni_kernels_run(LVNI_OP_attention_grad, &a, want));
    return lvni_autograd_grad_give_all(n, a.out, 3, want);
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
    const lvn_attention_attr attr =
        attention_attributes(&o, in[0]->ndim == 0 ? 0 : in[0]->shape[in[0]->ndim - 1]);
    if (o.mask != NULL || o.dropout != 0.0) {
        return lvni_ops_attention_of_products(in, &attr, o.mask, o.dropout);
    }
    lvn_kernel_args args = {.in = {in[0], in[1], in[2]}, .attr = &attr};
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
    lvn_kernel_args a = {.in = {dy, n->saved[0], n->saved[1], n->saved[2]},
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
    const lvn_attention_attr attr =
        attention_attributes(&o, qkv->ndim == 0 ? 0 : qkv->shape[qkv->ndim - 1]);
    if (o.mask != NULL || o.dropout != 0.0) {
        return lvni_ops_attention_qkv_of_products(qkv, &attr, o.mask, o.dropout);
    }
    lvn_kernel_args args = {.in = {qkv}, .attr = &attr};
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

/* ---- embedding ---- */

/* saved: ids. The weight's gradient goes on top of the one that is there already (a head that
 * shares the table), where possible. */
static lvn_status embedding_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_lookup_attr attr = n->attr.lookup;
    lvn_kernel_args a = {.in = {dy, n->saved[0]}, .attr = &attr};
    a.out[0] = lvni_autograd_grad_written(n, 0);
    attr.add = a.out[0] != NULL;
    if (a.out[0] == NULL && lvni_autograd_grad_wanted(n, 0)) {
        a.out[0] = lvni_autograd_grad_dest(n, 0);
    }
    a.out[1] = lvni_autograd_grad_wanted(n, 1) ? lvni_autograd_grad_dest(n, 1) : NULL;
    LVN_TRY(lvni_autograd_grad_run(LVNI_OP_embedding_grad, &a,
                                   lvni_autograd_grad_wanted(n, 1) ? 3u : 1u));
    return lvni_autograd_grad_give_all(n, a.out, 2, 3);
}

lvn_tensor *lvn_embedding_with(lvn_tensor *weight, lvn_tensor *ids,
                               const lvn_embedding_options *options)
{
    lvn_embedding_options o;
    if (lvni_core_options_copy("embedding", &o, sizeof o, options) != LVN_OK) {
        return lvni_autograd_op_fail("embedding");
    }
    lvn_tensor *in[] = {weight, ids, o.positions};
    if (!lvni_autograd_op_begin(LVNI_OP_embedding, in, 3, 4)) {
        return lvni_autograd_op_fail("embedding");
    }
    lvn_kernel_args args = {.in = {in[0], in[1], in[2]}};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_embedding, &args, 1);
    lvni_autograd_node *node =
        lvni_autograd_record("embedding", embedding_backward, y, (lvn_tensor *[]){in[0], in[2]}, 2);
    if (node != NULL) {
        node->attr.lookup = (lvn_lookup_attr){.rows = in[0]->shape[0],
                                              .positions = in[2] == NULL ? 0 : in[2]->shape[0]};
        lvni_autograd_save(node, 0, in[1]);
    }
    return y;
}
