/* Shape rules of element-wise ops, broadcasting, reductions and matrix products. A rule looks at
 * types and shapes only, names both shapes in its error, and describes the
 * outputs. Called by lvni_kernels_run before each op. */
#include "kernels/shape_rules_impl.h"

static bool is_float(lvn_dtype dtype)
{
    return dtype == LVN_F32 || dtype == LVN_F64 || lvni_tensor_is_low(dtype);
}

lvn_status lvni_kernels_rule_float_params(const char *op, const lvn_kernel_args *a, unsigned data,
                                          unsigned params)
{
    int first_i = 0;
    while (first_i < LVN_KERNEL_INPUTS - 1 &&
           ((data & (1u << first_i)) == 0 || a->in[first_i] == NULL)) {
        first_i++;
    }
    const lvn_tensor *first = a->in[first_i];
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        const lvn_tensor *t = a->in[i];
        if (((data | params) & (1u << i)) == 0 || t == NULL) {
            continue;
        }
        if (!is_float(t->dtype)) {
            LVN_FAIL(LVN_ERR_DTYPE, "%s: input %d is %s, it must be f32, f64, bf16 or f16", op, i,
                     lvn_dtype_name(t->dtype));
        }
        const bool beside = (params & (1u << i)) != 0 && t->dtype == LVN_F32 && first != NULL &&
                            lvni_tensor_is_low(first->dtype);
        if (first != NULL && t->dtype != first->dtype && !beside) {
            LVN_FAIL(LVN_ERR_DTYPE, "%s: input %d is %s but input %d is %s; convert one of them",
                     op, first_i, lvn_dtype_name(first->dtype), i, lvn_dtype_name(t->dtype));
        }
    }
    return LVN_OK;
}

lvn_status lvni_kernels_rule_float(const char *op, const lvn_kernel_args *a, unsigned mask)
{
    return lvni_kernels_rule_float_params(op, a, mask, 0);
}

lvn_status lvni_kernels_rule_dtype(const char *op, const char *what, const lvn_tensor *t,
                                   lvn_dtype dtype)
{
    if (t->dtype != dtype) {
        LVN_FAIL(LVN_ERR_DTYPE, "%s: %s must be %s, not %s", op, what, lvn_dtype_name(dtype),
                 lvn_dtype_name(t->dtype));
    }
    return LVN_OK;
}

lvn_status lvni_kernels_rule_same(const char *op, const char *name_a, const lvn_tensor *a,
                                  const char *name_b, const lvn_tensor *b)
{
    if (!lvni_tensor_same_shape(a, b)) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: %s is %s but %s is %s; both must have one shape", op, name_a,
                 LVNI_SHAPE_TEXT(a), name_b, LVNI_SHAPE_TEXT(b));
    }
    return LVN_OK;
}

lvn_status lvni_kernels_rule_vector(const char *op, const char *what, const lvn_tensor *t,
                                    int64_t n, const char *unit, const lvn_tensor *x)
{
    if (t->ndim != 1 || t->shape[0] != n) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: %s is %s, but %s has %lld %ss: it must be (%lld)", op, what,
                 LVNI_SHAPE_TEXT(t), LVNI_SHAPE_TEXT(x), (long long)n, unit, (long long)n);
    }
    return LVN_OK;
}

/* ---- element-wise ---- */

lvn_status lvni_kernels_rule_broadcast(const char *op, const lvn_tensor *a, const lvn_tensor *b,
                                       lvni_tensor_desc *out)
{
    const int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    *out = (lvni_tensor_desc){.dtype = a->dtype, .ndim = ndim};
    for (int i = 0; i < ndim; i++) {
        const int ia = i - (ndim - a->ndim), ib = i - (ndim - b->ndim);
        const int64_t na = ia < 0 ? 1 : a->shape[ia], nb = ib < 0 ? 1 : b->shape[ib];
        if (na != nb && na != 1 && nb != 1) {
            LVN_FAIL(LVN_ERR_SHAPE,
                     "%s: %s and %s cannot be broadcast: axis %d from the end has %lld and %lld; "
                     "sizes must "
                     "be equal, or "
                     "one of them 1",
                     op, LVNI_SHAPE_TEXT(a), LVNI_SHAPE_TEXT(b), ndim - i, (long long)na,
                     (long long)nb);
        }
        out->shape[i] = na == 1 ? nb : na;
    }
    return LVN_OK;
}

static lvn_status broadcast(const char *op, const lvn_kernel_args *args,
                            lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    LVN_TRY(lvni_kernels_rule_float(op, args, 3));
    return lvni_kernels_rule_broadcast(op, args->in[0], args->in[1], &out[0]);
}

lvn_status lvni_kernels_rule_like_input(const char *op, const lvn_kernel_args *args,
                                        lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    LVN_TRY(lvni_kernels_rule_float(op, args, 1));
    out[0] = lvni_tensor_get_desc(args->in[0]);
    return LVN_OK;
}

lvn_status lvni_kernels_rule_like_pair(const char *op, const char *kept,
                                       const lvn_kernel_args *args,
                                       lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    LVN_TRY(lvni_kernels_rule_float(op, args, 3));
    LVN_TRY(lvni_kernels_rule_same(op, "dy", args->in[0], kept, args->in[1]));
    out[0] = lvni_tensor_get_desc(args->in[0]);
    return LVN_OK;
}

#define RULE(op, call)                                                                             \
    lvn_status lvni_kernels_shape_##op(const lvn_kernel_args *args,                                \
                                       lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])                   \
    {                                                                                              \
        return call;                                                                               \
    }
lvn_status lvni_kernels_shape_cast(const lvn_kernel_args *args,
                                   lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_cast_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float("cast", args, 1));
    LVN_ARG((int)attr->dtype >= 0 && attr->dtype < LVN_DTYPE_COUNT, "cast: unknown data type %d",
            (int)attr->dtype);
    if (!is_float(attr->dtype)) {
        LVN_FAIL(LVN_ERR_DTYPE, "cast: the result would be %s; it must be f32, f64, bf16 or f16",
                 lvn_dtype_name(attr->dtype));
    }
    out[0] = lvni_tensor_get_desc(args->in[0]);
    out[0].dtype = attr->dtype;
    return LVN_OK;
}

RULE(add, broadcast("add", args, out))
RULE(sub, broadcast("sub", args, out))
RULE(mul, broadcast("mul", args, out))
RULE(div, broadcast("div", args, out))
RULE(pow, broadcast("pow", args, out))
RULE(pow_grad_base, broadcast("pow_grad_base", args, out))
RULE(pow_grad_exponent, broadcast("pow_grad_exponent", args, out))
RULE(minimum, broadcast("minimum", args, out))
RULE(maximum, broadcast("maximum", args, out))
RULE(share, broadcast("share", args, out))
RULE(div_or_zero, lvni_kernels_rule_like_pair("div_or_zero", "the divisor", args, out))
RULE(scale, lvni_kernels_rule_like_input("scale", args, out))
RULE(exp, lvni_kernels_rule_like_input("exp", args, out))
RULE(log, lvni_kernels_rule_like_input("log", args, out))
RULE(square, lvni_kernels_rule_like_input("square", args, out))
RULE(sqrt, lvni_kernels_rule_like_input("sqrt", args, out))
RULE(relu, lvni_kernels_rule_like_input("relu", args, out))
RULE(square_grad, lvni_kernels_rule_like_pair("square_grad", "x", args, out))
RULE(sqrt_grad, lvni_kernels_rule_like_pair("sqrt_grad", "y", args, out))
RULE(relu_grad, lvni_kernels_rule_like_pair("relu_grad", "y", args, out))

lvn_status lvni_kernels_shape_dropout(const lvn_kernel_args *args,
                                      lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_dropout_attr *attr = args->attr;
    LVN_ARG(attr->p >= 0.0 && attr->p < 1.0, "dropout: p is %g, it must be at least 0 and below 1",
            attr->p);
    return lvni_kernels_rule_like_input("dropout", args, out);
}

/* ---- broadcasting to a given shape, and back ---- */

/* Whether `small` broadcasts to `big`. */
static bool broadcasts_to(int small_ndim, const int64_t *small, int big_ndim, const int64_t *big)
{
    if (small_ndim > big_ndim) {
        return false;
    }
    for (int i = 0; i < small_ndim; i++) {
        const int64_t n = small[i];
        if (n != 1 && n != big[big_ndim - small_ndim + i]) {
            return false;
        }
    }
    return true;
}

static lvn_status check_target(const char *op, const lvn_shape_attr *attr)
{
    LVN_ARG(attr->ndim >= 0 && attr->ndim <= LVN_MAX_NDIM,
            "%s: the target has %d axes, tensors have 0 to %d", op, attr->ndim, LVN_MAX_NDIM);
    for (int i = 0; i < attr->ndim; i++) {
        LVN_ARG(attr->shape[i] >= 0, "%s: the target %s has a negative size", op,
                LVNI_SHAPE_TEXT(attr));
    }
    return LVN_OK;
}

lvn_status lvni_kernels_shape_sum_to(const lvn_kernel_args *args,
                                     lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0];
    const lvn_shape_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float("sum_to", args, 1));
    LVN_TRY(check_target("sum_to", attr));
    if (!broadcasts_to(attr->ndim, attr->shape, x->ndim, x->shape)) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "sum_to: %s cannot be summed to %s: the target must broadcast to the shape of x",
                 LVNI_SHAPE_TEXT(x), LVNI_SHAPE_TEXT(attr));
    }
    out[0] = lvni_kernels_rule_make(x->dtype, attr->ndim, attr->shape);
    return LVN_OK;
}

lvn_status lvni_kernels_shape_expand(const lvn_kernel_args *args,
                                     lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0];
    const lvn_shape_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float("expand", args, 1));
    LVN_TRY(check_target("expand", attr));
    if (!broadcasts_to(x->ndim, x->shape, attr->ndim, attr->shape)) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "expand: %s does not broadcast to %s: sizes must be equal or 1, counted from the "
                 "last axis",
                 LVNI_SHAPE_TEXT(x), LVNI_SHAPE_TEXT(attr));
    }
    out[0] = lvni_kernels_rule_make(x->dtype, attr->ndim, attr->shape);
    return LVN_OK;
}

/* ---- reductions ---- */

static lvn_status reduce(const char *op, const lvn_kernel_args *args, lvni_tensor_desc *out)
{
    const lvn_tensor *x = args->in[0];
    const lvn_axes_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float(op, args, 1));
    LVN_ARG(attr->mask >> x->ndim == 0, "%s: x is %s, the axes (bits 0x%x) must be below %d", op,
            LVNI_SHAPE_TEXT(x), attr->mask, x->ndim);
    *out = (lvni_tensor_desc){.dtype = x->dtype};
    for (int i = 0; i < x->ndim; i++) {
        const bool reduced = (attr->mask >> i & 1) != 0;
        if (!reduced || attr->keepdim) {
            out->shape[out->ndim++] = reduced ? 1 : x->shape[i];
        }
    }
    return LVN_OK;
}

static lvn_status no_empty_axis(const char *op, const lvn_tensor *x, uint32_t mask)
{
    for (int i = 0; i < x->ndim; i++) {
        if ((mask >> i & 1) != 0 && x->shape[i] == 0) {
            LVN_FAIL(LVN_ERR_SHAPE,
                     "%s: x is %s: there is no %s over axis %d, which has no elements", op,
                     LVNI_SHAPE_TEXT(x), op, i);
        }
    }
    return LVN_OK;
}

lvn_status lvni_kernels_shape_sum(const lvn_kernel_args *args,
                                  lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    return reduce("sum", args, &out[0]);
}

lvn_status lvni_kernels_shape_mean(const lvn_kernel_args *args,
                                   lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    LVN_TRY(reduce("mean", args, &out[0]));
    return no_empty_axis("mean", args->in[0], ((const lvn_axes_attr *)args->attr)->mask);
}

lvn_status lvni_kernels_shape_norm(const lvn_kernel_args *args,
                                   lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    return reduce("norm", args, &out[0]);
}

lvn_status lvni_kernels_shape_var(const lvn_kernel_args *args,
                                  lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_var_attr *attr = args->attr;
    const lvn_tensor *x = args->in[0];
    const lvn_axes_attr axes = {.mask = attr->mask, .keepdim = attr->keepdim};
    LVN_TRY(reduce("var", &(lvn_kernel_args){.in = {x}, .attr = &axes}, &out[0]));
    int64_t terms = 1;
    for (int i = 0; i < x->ndim; i++) {
        terms *= (attr->mask >> i & 1) != 0 ? x->shape[i] : 1;
    }
    if (terms <= attr->correction || attr->correction < 0) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "var: x is %s: %lld terms are too few to divide by terms - %d; with correction 0 "
                 "one term is enough",
                 LVNI_SHAPE_TEXT(x), (long long)terms, attr->correction);
    }
    return LVN_OK;
}

lvn_status lvni_kernels_shape_max(const lvn_kernel_args *args,
                                  lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const uint32_t mask = ((const lvn_axes_attr *)args->attr)->mask;
    LVN_TRY(reduce("max", args, &out[0]));
    LVN_ARG(mask != 0 && (mask & (mask - 1)) == 0, "max: works over one axis, got the bits 0x%x",
            mask);
    LVN_TRY(no_empty_axis("max", args->in[0], mask));
    out[1] = out[0];
    out[1].dtype = LVN_I64;
    return LVN_OK;
}

lvn_status lvni_kernels_shape_max_grad(const lvn_kernel_args *args,
                                       lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *dy = args->in[0], *index = args->in[1];
    const lvn_shape_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float("max_grad", args, 1));
    LVN_TRY(lvni_kernels_rule_dtype("max_grad", "the index", index, LVN_I64));
    LVN_TRY(lvni_kernels_rule_same("max_grad", "dy", dy, "index", index));
    LVN_TRY(check_target("max_grad", attr));
    int reduced = 0;
    bool fits = dy->ndim == attr->ndim;
    for (int i = 0; fits && i < dy->ndim; i++) {
        if (dy->shape[i] != attr->shape[i]) {
            fits = dy->shape[i] == 1;
            reduced++;
        }
    }
    if (!fits || reduced > 1) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "max_grad: dy is %s and x is %s: dy must have size 1 in the reduced axis and "
                 "agree in all "
                 "others",
                 LVNI_SHAPE_TEXT(dy), LVNI_SHAPE_TEXT(attr));
    }
    out[0] = lvni_kernels_rule_make(dy->dtype, attr->ndim, attr->shape);
    return LVN_OK;
}

/* ---- products ---- */

static lvn_status need_ndim(const char *op, const char *what, const lvn_tensor *t, int ndim,
                            const char *axes)
{
    if (t->ndim != ndim) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: %s is %s, it must have %d axes %s", op, what,
                 LVNI_SHAPE_TEXT(t), ndim, axes);
    }
    return LVN_OK;
}

lvn_status lvni_kernels_shape_matmul(const lvn_kernel_args *args,
                                     lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *a = args->in[0], *b = args->in[1];
    const lvn_matmul_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float_params("matmul", args, 1, 2));
    const int row = a->ndim - 2, column = a->ndim - 1;
    bool batches = a->ndim == b->ndim && a->ndim >= 2;
    for (int i = 0; batches && i < row; i++) {
        batches = a->shape[i] == b->shape[i];
    }
    if (!batches) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "matmul: a is %s and b is %s; both must have the axes (.., M, K) and (.., K, N) "
                 "with equal sizes in front",
                 LVNI_SHAPE_TEXT(a), LVNI_SHAPE_TEXT(b));
    }
    const int64_t ka = a->shape[attr->trans_a ? row : column],
                  kb = b->shape[attr->trans_b ? column : row];
    if (ka != kb) {
        LVN_FAIL(LVN_ERR_SHAPE, "matmul: a is %s%s and b is %s%s: a brings %lld terms, b %lld",
                 LVNI_SHAPE_TEXT(a), attr->trans_a ? " transposed" : "", LVNI_SHAPE_TEXT(b),
                 attr->trans_b ? " transposed" : "", (long long)ka, (long long)kb);
    }
    out[0] = lvni_tensor_get_desc(a);
    out[0].shape[row] = a->shape[attr->trans_a ? column : row];
    out[0].shape[column] = b->shape[attr->trans_b ? row : column];
    return LVN_OK;
}

lvn_status lvni_kernels_shape_linear(const lvn_kernel_args *args,
                                     lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *x = args->in[0], *w = args->in[1], *b = args->in[2];
    LVN_TRY(lvni_kernels_rule_float_params("linear", args, 1, 6));
    LVN_TRY(need_ndim("linear", "x", x, 2, "(batch, features)"));
    LVN_TRY(need_ndim("linear", "w", w, 2, "(outputs, features)"));
    if (x->shape[1] != w->shape[1]) {
        LVN_FAIL(LVN_ERR_SHAPE, "linear: x is %s but w %s takes %lld features", LVNI_SHAPE_TEXT(x),
                 LVNI_SHAPE_TEXT(w), (long long)w->shape[1]);
    }
    if (b != NULL) {
        LVN_TRY(lvni_kernels_rule_vector("linear", "the bias", b, w->shape[0], "output", w));
    }
    out[0] = lvni_kernels_rule_make(x->dtype, 2, (const int64_t[]){x->shape[0], w->shape[0]});
    return LVN_OK;
}

lvn_status lvni_kernels_shape_linear_grad_input(const lvn_kernel_args *args,
                                                lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *dy = args->in[0], *w = args->in[1];
    LVN_TRY(lvni_kernels_rule_float_params("linear_grad_input", args, 1, 2));
    LVN_TRY(need_ndim("linear_grad_input", "dy", dy, 2, "(batch, outputs)"));
    LVN_TRY(need_ndim("linear_grad_input", "w", w, 2, "(outputs, features)"));
    if (dy->shape[1] != w->shape[0]) {
        LVN_FAIL(LVN_ERR_SHAPE, "linear_grad_input: dy is %s but w %s has %lld outputs",
                 LVNI_SHAPE_TEXT(dy), LVNI_SHAPE_TEXT(w), (long long)w->shape[0]);
    }
    out[0] = lvni_kernels_rule_make(dy->dtype, 2, (const int64_t[]){dy->shape[0], w->shape[1]});
    return LVN_OK;
}

lvn_status lvni_kernels_shape_linear_grad_weight(const lvn_kernel_args *args,
                                                 lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *dy = args->in[0], *x = args->in[1];
    LVN_TRY(lvni_kernels_rule_float("linear_grad_weight", args, 3));
    LVN_TRY(need_ndim("linear_grad_weight", "dy", dy, 2, "(batch, outputs)"));
    LVN_TRY(need_ndim("linear_grad_weight", "x", x, 2, "(batch, features)"));
    if (dy->shape[0] != x->shape[0]) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "linear_grad_weight: dy is %s but x is %s; both must have one batch size",
                 LVNI_SHAPE_TEXT(dy), LVNI_SHAPE_TEXT(x));
    }
    const lvn_dtype dtype = lvni_kernels_rule_weight_dtype(dy);
    out[0] = lvni_kernels_rule_make(dtype, 2, (const int64_t[]){dy->shape[1], x->shape[1]});
    out[1] = lvni_kernels_rule_make(dtype, 1, (const int64_t[]){dy->shape[1]});
    return LVN_OK;
}
