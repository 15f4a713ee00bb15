/* Shape rules of functions of one element and their gradients: the shape of the input. Called by lvni_run before each op. */
#include "kernels/shape_rules_impl.h"

#define CURVE(op, kept)                                                                \
    lvn_status lvni_shape_##op(const lvni_args *args, lvni_desc out[LVNI_MAX_OUT])     \
    {                                                                                  \
        return lvni_rule_like_input(#op, args, out);                                   \
    }                                                                                  \
    lvn_status lvni_shape_##op##_grad(const lvni_args *args, lvni_desc out[LVNI_MAX_OUT]) \
    {                                                                                  \
        return lvni_rule_like_pair(#op "_grad", kept, args, out);                      \
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

lvn_status lvni_shape_sign(const lvni_args *args, lvni_desc out[LVNI_MAX_OUT])
{
    return lvni_rule_like_input("sign", args, out);
}

lvn_status lvni_shape_clamp(const lvni_args *args, lvni_desc out[LVNI_MAX_OUT])
{
    const lvni_range_attr *attr = args->attr;
    LVN_ARG(attr->min <= attr->max, "clamp: min is %g and max is %g; min must not be above max", attr->min, attr->max);
    return lvni_rule_like_input("clamp", args, out);
}

lvn_status lvni_shape_clamp_grad(const lvni_args *args, lvni_desc out[LVNI_MAX_OUT])
{
    return lvni_rule_like_pair("clamp_grad", "x", args, out);
}
