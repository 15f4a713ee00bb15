/* Shape rules of functions of one element and their gradients, of comparisons and choices. Called
 * by lvni_kernels_run before each op. */
#include "kernels/shape_rules_impl.h"

#define CURVE(op, kept)                                                                            \
    lvn_status lvni_kernels_shape_##op(const lvn_kernel_args *args,                                \
                                       lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])                   \
    {                                                                                              \
        return lvni_kernels_rule_like_input(#op, args, out);                                       \
    }                                                                                              \
    lvn_status lvni_kernels_shape_##op##_grad(const lvn_kernel_args *args,                         \
                                              lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])            \
    {                                                                                              \
        return lvni_kernels_rule_like_pair(#op "_grad", kept, args, out);                          \
    }

CURVE(rsqrt, "y")
CURVE(reciprocal, "y")
CURVE(abs, "x")
CURVE(pow_scalar, "x")
CURVE(leaky_relu, "x")
CURVE(gelu, "x")
CURVE(gelu_tanh, "x")
CURVE(silu, "x")
CURVE(sigmoid, "y")
CURVE(tanh, "y")
CURVE(softplus, "x")
CURVE(erf, "x")
CURVE(sin, "x")
CURVE(cos, "x")

#define LIKE_X(op)                                                                                 \
    lvn_status lvni_kernels_shape_##op(const lvn_kernel_args *args,                                \
                                       lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])                   \
    {                                                                                              \
        return lvni_kernels_rule_like_input(#op, args, out);                                       \
    }
LIKE_X(sign)
LIKE_X(round)
LIKE_X(floor)
LIKE_X(ceil)

lvn_status lvni_kernels_shape_clamp(const lvn_kernel_args *args,
                                    lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_range_attr *attr = args->attr;
    LVN_ARG(attr->min <= attr->max, "clamp: min is %g and max is %g; min must not be above max",
            attr->min, attr->max);
    return lvni_kernels_rule_like_input("clamp", args, out);
}

lvn_status lvni_kernels_shape_clamp_grad(const lvn_kernel_args *args,
                                         lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    return lvni_kernels_rule_like_pair("clamp_grad", "x", args, out);
}

/* ---- a slope that is learned ---- */

/* Input k beside x: one for all, or one for each number of the last axis. */
static lvn_status one_or_channels(const char *op, const lvn_kernel_args *args, int k,
                                  const lvn_tensor *x)
{
    const lvn_tensor *slope = args->in[k];
    const int64_t channels = x->ndim > 0 ? x->shape[x->ndim - 1] : 1;
    if (slope->ndim > 1 || (lvn_numel(slope) != 1 && lvn_numel(slope) != channels)) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: the slope is %s, but x is %s: it must be (1), or (%lld) with one for each "
                 "number of the last axis",
                 op, LVNI_SHAPE_TEXT(slope), LVNI_SHAPE_TEXT(x), (long long)channels);
    }
    return LVN_OK;
}

lvn_status lvni_kernels_shape_prelu(const lvn_kernel_args *args,
                                    lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    LVN_TRY(lvni_kernels_rule_float_params("prelu", args, 1, 2));
    LVN_TRY(one_or_channels("prelu", args, 1, args->in[0]));
    out[0] = lvni_tensor_get_desc(args->in[0]);
    return LVN_OK;
}

lvn_status lvni_kernels_shape_prelu_grad(const lvn_kernel_args *args,
                                         lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    LVN_TRY(lvni_kernels_rule_float_params("prelu_grad", args, 3, 4));
    LVN_TRY(lvni_kernels_rule_same("prelu_grad", "dy", args->in[0], "x", args->in[1]));
    LVN_TRY(one_or_channels("prelu_grad", args, 2, args->in[1]));
    out[0] = lvni_tensor_get_desc(args->in[1]);
    out[1] = lvni_tensor_get_desc(args->in[2]);
    return LVN_OK;
}

/* ---- comparisons and choice ---- */

static lvn_status compare(const char *op, const lvn_kernel_args *args,
                          lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *a = args->in[0], *b = args->in[1];
    if (a->dtype != LVN_I64 || b->dtype != LVN_I64) {
        LVN_TRY(lvni_kernels_rule_float(op, args, 3));
    }
    LVN_TRY(lvni_kernels_rule_broadcast(op, a, b, &out[0]));
    out[0].dtype = LVN_BOOL;
    return LVN_OK;
}

#define COMPARE(op)                                                                                \
    lvn_status lvni_kernels_shape_##op(const lvn_kernel_args *args,                                \
                                       lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])                   \
    {                                                                                              \
        return compare(#op, args, out);                                                            \
    }
COMPARE(eq)
COMPARE(ne)
COMPARE(lt)
COMPARE(le)
COMPARE(gt)
COMPARE(ge)

lvn_status lvni_kernels_shape_where(const lvn_kernel_args *args,
                                    lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    const lvn_tensor *a = args->in[1], *b = args->in[2];
    LVN_TRY(lvni_kernels_rule_dtype("where", "the condition", args->in[0], LVN_BOOL));
    if (a->dtype != b->dtype) {
        LVN_FAIL(LVN_ERR_DTYPE, "where: a is %s but b is %s; convert one of them",
                 lvn_dtype_name(a->dtype), lvn_dtype_name(b->dtype));
    }
    LVN_TRY(lvni_kernels_rule_broadcast("where", a, b, &out[0]));
    const lvn_tensor both = {.dtype = a->dtype,
                             .ndim = out[0].ndim,
                             .shape = {out[0].shape[0], out[0].shape[1], out[0].shape[2],
                                       out[0].shape[3], out[0].shape[4], out[0].shape[5]}};
    return lvni_kernels_rule_broadcast("where", &both, args->in[0], &out[0]);
}
