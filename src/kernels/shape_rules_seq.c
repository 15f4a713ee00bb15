/* Shape rules of layer and group norm and of attention (shape_rules.c has the others). */
#include "kernels/shape_rules_impl.h"

/* ---- norms over parts of a sample ---- */

/* gamma and beta of layer norm, unless NULL, have the shape of x's last axes. */
static lvn_status like_last_axes(const char *op, const char *what, const lvn_tensor *t,
                                 const lvn_tensor *x, int axes)
{
    bool same = t == NULL || t->ndim == axes;
    for (int i = 0; t != NULL && same && i < axes; i++) {
        same = t->shape[i] == x->shape[x->ndim - axes + i];
    }
    if (!same) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: %s is %s; it must have the shape of the last %d axis/axes of x, which is %s",
                 op, what, LVNI_SHAPE_TEXT(t), axes, LVNI_SHAPE_TEXT(x));
    }
    return LVN_OK;
}

static lvn_status layer_rows(const char *op, const lvn_tensor *x, const lvn_layer_norm_attr *attr,
                             lvni_tensor_desc *rows)
{
    LVN_ARG(attr->eps >= 0.0, "%s: eps is %g, it must not be negative", op, attr->eps);
    if (attr->axes < 1 || attr->axes > x->ndim) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: %d axes are to be normalised, x is %s and has %d", op,
                 attr->axes, LVNI_SHAPE_TEXT(x), x->ndim);
    }
    for (int i = x->ndim - attr->axes; i < x->ndim; i++) {
        if (x->shape[i] == 0) {
            LVN_FAIL(LVN_ERR_SHAPE, "%s: x is %s: a row without values has no mean", op,
                     LVNI_SHAPE_TEXT(x));
        }
    }
    *rows =
        lvni_kernels_rule_make(lvni_kernels_rule_weight_dtype(x), x->ndim - attr->axes, x->shape);
    return LVN_OK;
}

lvn_status lvni_kernels_shape_layer_norm(const lvn_kernel_args *args,
                                         lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "layer_norm";
    const lvn_layer_norm_attr *attr = args->attr;
    const lvn_tensor *x = args->in[0];
    LVN_TRY(lvni_kernels_rule_float_params(op, args, 1, 6));
    LVN_TRY(layer_rows(op, x, attr, &out[1]));
    LVN_TRY(like_last_axes(op, "gamma", args->in[1], x, attr->axes));
    LVN_TRY(like_last_axes(op, "beta", args->in[2], x, attr->axes));
    out[0] = lvni_tensor_get_desc(x);
    out[2] = out[1];
    return LVN_OK;
}

/* What a forward kernel kept has the shape that its rule gave. */
static lvn_status kept(const char *op, const char *what, const lvn_tensor *t,
                       const lvni_tensor_desc *d)
{
    bool same = t->ndim == d->ndim;
    for (int i = 0; same && i < d->ndim; i++) {
        same = t->shape[i] == d->shape[i];
    }
    if (!same) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: %s is %s, but the forward pass keeps %s", op, what,
                 LVNI_SHAPE_TEXT(t), LVNI_SHAPE_TEXT(d));
    }
    return LVN_OK;
}

/* Inputs dy, x, mean, rstd, gamma of either norm; `statistic`: the shape of mean and rstd. */
static lvn_status norm_grad_inputs(const char *op, const lvn_kernel_args *args,
                                   const lvni_tensor_desc *statistic)
{
    LVN_TRY(lvni_kernels_rule_float_params(op, args, 3, 28));
    LVN_TRY(lvni_kernels_rule_same(op, "dy", args->in[0], "x", args->in[1]));
    LVN_TRY(kept(op, "the mean", args->in[2], statistic));
    return kept(op, "1/sqrt(var + eps)", args->in[3], statistic);
}

lvn_status lvni_kernels_shape_layer_norm_grad(const lvn_kernel_args *args,
                                              lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "layer_norm_grad";
    const lvn_layer_norm_attr *attr = args->attr;
    const lvn_tensor *x = args->in[1];
    lvni_tensor_desc rows;
    LVN_TRY(layer_rows(op, x, attr, &rows));
    LVN_TRY(norm_grad_inputs(op, args, &rows));
    LVN_TRY(like_last_axes(op, "gamma", args->in[4], x, attr->axes));
    out[0] = lvni_tensor_get_desc(x);
    out[1] = out[2] = lvni_kernels_rule_make(lvni_kernels_rule_weight_dtype(x), attr->axes,
                                             x->shape + x->ndim - attr->axes);
    return LVN_OK;
}

static lvn_status group_sizes(const char *op, const lvn_tensor *x, const lvn_group_norm_attr *attr,
                              lvni_tensor_desc *statistic)
{
    LVN_ARG(attr->eps >= 0.0, "%s: eps is %g, it must not be negative", op, attr->eps);
    if (x->ndim < 2) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: x is %s, it must have a first axis of samples and a last one of channels", op,
                 LVNI_SHAPE_TEXT(x));
    }
    const int64_t channels = x->shape[x->ndim - 1];
    LVN_ARG(attr->groups >= 1 && channels % attr->groups == 0,
            "%s: %d groups do not divide the %lld channels of x %s", op, attr->groups,
            (long long)channels, LVNI_SHAPE_TEXT(x));
    int64_t values = channels / attr->groups;
    for (int i = 1; i < x->ndim - 1; i++) {
        values *= x->shape[i];
    }
    if (values < 2) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: x is %s: %d groups leave %lld value(s) to each, a norm needs two; use fewer "
                 "groups or larger images",
                 op, LVNI_SHAPE_TEXT(x), attr->groups, (long long)values);
    }
    *statistic = lvni_kernels_rule_make(lvni_kernels_rule_weight_dtype(x), 2,
                                        (const int64_t[]){x->shape[0], attr->groups});
    return LVN_OK;
}

static lvn_status channels_or_null(const char *op, const char *what, const lvn_tensor *t,
                                   const lvn_tensor *x)
{
    return t == NULL ? LVN_OK
                     : lvni_kernels_rule_vector(op, what, t, x->shape[x->ndim - 1], "channel", x);
}

lvn_status lvni_kernels_shape_group_norm(const lvn_kernel_args *args,
                                         lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "group_norm";
    const lvn_tensor *x = args->in[0];
    LVN_TRY(lvni_kernels_rule_float_params(op, args, 1, 6));
    LVN_TRY(group_sizes(op, x, args->attr, &out[1]));
    LVN_TRY(channels_or_null(op, "gamma", args->in[1], x));
    LVN_TRY(channels_or_null(op, "beta", args->in[2], x));
    out[0] = lvni_tensor_get_desc(x);
    out[2] = out[1];
    return LVN_OK;
}

lvn_status lvni_kernels_shape_group_norm_grad(const lvn_kernel_args *args,
                                              lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "group_norm_grad";
    const lvn_tensor *x = args->in[1];
    lvni_tensor_desc statistic;
    LVN_TRY(group_sizes(op, x, args->attr, &statistic));
    LVN_TRY(norm_grad_inputs(op, args, &statistic));
    LVN_TRY(channels_or_null(op, "gamma", args->in[4], x));
    out[0] = lvni_tensor_get_desc(x);
    out[1] = out[2] =
        lvni_kernels_rule_make(lvni_kernels_rule_weight_dtype(x), 1, x->shape + x->ndim - 1);
    return LVN_OK;
}

/* ---- attention ---- */

static lvn_status need_heads(const char *op, const char *what, const lvn_tensor *t)
{
    if (t->ndim != 4) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: %s is %s, it must have 4 axes (batch, positions, heads, features)", op, what,
                 LVNI_SHAPE_TEXT(t));
    }
    return LVN_OK;
}

/* q, k, v are inputs first, first + 1, first + 2. */
static lvn_status heads(const char *op, const lvn_kernel_args *args, int first, lvni_tensor_desc *y,
                        lvni_tensor_desc *log_sums)
{
    const lvn_attention_attr *attr = args->attr;
    const lvn_tensor *q = args->in[first], *k = args->in[first + 1], *v = args->in[first + 2];
    LVN_TRY(need_heads(op, "q", q));
    LVN_TRY(need_heads(op, "k", k));
    LVN_TRY(need_heads(op, "v", v));
    if (q->shape[0] != k->shape[0] || q->shape[2] != k->shape[2] || q->shape[3] != k->shape[3]) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: q is %s but k is %s; batch, heads and features must be equal",
                 op, LVNI_SHAPE_TEXT(q), LVNI_SHAPE_TEXT(k));
    }
    if (k->shape[0] != v->shape[0] || k->shape[1] != v->shape[1] || k->shape[2] != v->shape[2]) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: k is %s but v is %s; batch, positions and heads must be equal",
                 op, LVNI_SHAPE_TEXT(k), LVNI_SHAPE_TEXT(v));
    }
    if (k->shape[1] == 0) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: k is %s: there is no position to attend to", op,
                 LVNI_SHAPE_TEXT(k));
    }
    if (attr->causal && q->shape[1] != k->shape[1]) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: causal attention needs as many queries as keys, q is %s and k is %s", op,
                 LVNI_SHAPE_TEXT(q), LVNI_SHAPE_TEXT(k));
    }
    *y = lvni_kernels_rule_make(
        q->dtype, 4, (const int64_t[]){q->shape[0], q->shape[1], q->shape[2], v->shape[3]});
    *log_sums = lvni_kernels_rule_make(lvni_kernels_rule_weight_dtype(q), 3,
                                       (const int64_t[]){q->shape[0], q->shape[2], q->shape[1]});
    return LVN_OK;
}

lvn_status lvni_kernels_shape_attention(const lvn_kernel_args *args,
                                        lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    LVN_TRY(lvni_kernels_rule_float("attention", args, 7));
    return heads("attention", args, 0, &out[0], &out[1]);
}

lvn_status lvni_kernels_shape_attention_grad(const lvn_kernel_args *args,
                                             lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "attention_grad";
    lvni_tensor_desc y, log_sums;
    LVN_TRY(lvni_kernels_rule_float_params(op, args, 31, 32));
    LVN_TRY(heads(op, args, 1, &y, &log_sums));
    LVN_TRY(kept(op, "dy", args->in[0], &y));
    LVN_TRY(kept(op, "y", args->in[4], &y));
    LVN_TRY(kept(op, "the tensor of log-sums", args->in[5], &log_sums));
    for (int i = 0; i < 3; i++) {
        out[i] = lvni_tensor_get_desc(args->in[1 + i]);
    }
    return LVN_OK;
}

static lvn_status packed_heads(const char *op, const lvn_tensor *qkv, lvni_tensor_desc *y,
                               lvni_tensor_desc *log_sums)
{
    if (qkv->ndim != 5 || qkv->shape[2] != 3) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: qkv is %s, it must be (batch, positions, 3, heads, features)",
                 op, LVNI_SHAPE_TEXT(qkv));
    }
    const int64_t *s = qkv->shape;
    *y = lvni_kernels_rule_make(qkv->dtype, 4, (const int64_t[]){s[0], s[1], s[3], s[4]});
    *log_sums = lvni_kernels_rule_make(lvni_kernels_rule_weight_dtype(qkv), 3,
                                       (const int64_t[]){s[0], s[3], s[1]});
    return LVN_OK;
}

lvn_status lvni_kernels_shape_attention_qkv(const lvn_kernel_args *args,
                                            lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    LVN_TRY(lvni_kernels_rule_float("attention_qkv", args, 1));
    return packed_heads("attention_qkv", args->in[0], &out[0], &out[1]);
}

lvn_status lvni_kernels_shape_attention_qkv_grad(const lvn_kernel_args *args,
                                                 lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "attention_qkv_grad";
    lvni_tensor_desc y, log_sums;
    LVN_TRY(lvni_kernels_rule_float_params(op, args, 7, 8));
    LVN_TRY(packed_heads(op, args->in[1], &y, &log_sums));
    LVN_TRY(kept(op, "dy", args->in[0], &y));
    LVN_TRY(kept(op, "y", args->in[2], &y));
    LVN_TRY(kept(op, "the tensor of log-sums", args->in[3], &log_sums));
    out[0] = lvni_tensor_get_desc(args->in[1]);
    return LVN_OK;
}
