/* Reference kernels: functions of one element beyond arithmetic, and their gradients as in the
 * textbook. */
#include "kernels/ref/ref_impl.h"

#include "core/math.h"

#include <math.h>

static const double ROOT_HALF = 0.70710678118654752440, TWO_OVER_PI = 0.63661977236758134308;

static double sigmoid(double x)
{
    return 1.0 / (1.0 + lvni_core_exp(-x));
}

/* The normal distribution and its density. */
static double cdf(double x)
{
    return 0.5 * lvni_core_erfc(-x * ROOT_HALF);
}
static double pdf(double x)
{
    return lvni_core_exp(-0.5 * x * x) * 0.39894228040143267794;
}

/* u of gelu_tanh and du / dx */
static double inner(double x)
{
    return lvni_core_sqrt(TWO_OVER_PI) * (x + 0.044715 * x * x * x);
}
static double inner_slope(double x)
{
    return lvni_core_sqrt(TWO_OVER_PI) * (1.0 + 3.0 * 0.044715 * x * x);
}

static double sign(double x)
{
    return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x;
}

/* log(1 + e^x), e^-|x| never rounded away beside the 1 */
static double softplus(double x)
{
    const double rest = lvni_core_log1p(lvni_core_exp(-fabs(x)));
    return (x > 0.0 ? x : x != x ? x : 0.0) + rest;
}

static double gelu_tanh_slope(double x)
{
    const double t = lvni_core_tanh(inner(x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope(x);
}

/* One op per line: of x and its attribute; gradients of dy and k, what the forward kept. */
#define OF_X(op, attr_type, expression)                                                            \
    lvn_status lvni_ref_##op(const lvn_kernel_args *args)                                          \
    {                                                                                              \
        const attr_type *attr = args->attr;                                                        \
        (void)attr;                                                                                \
        const double *in = lvni_ref_in(args, 0);                                                   \
        double *y = lvni_ref_out(args, 0);                                                         \
        const int64_t n = lvn_numel(args->out[0]);                                                 \
        for (int64_t e = 0; e < n; e++) {                                                          \
            const double x = in[e];                                                                \
            y[e] = (expression);                                                                   \
        }                                                                                          \
        return LVN_OK;                                                                             \
    }
#define OF_PAIR(op, attr_type, expression)                                                         \
    lvn_status lvni_ref_##op(const lvn_kernel_args *args)                                          \
    {                                                                                              \
        const attr_type *attr = args->attr;                                                        \
        (void)attr;                                                                                \
        const double *a = lvni_ref_in(args, 0), *b = lvni_ref_in(args, 1);                         \
        double *y = lvni_ref_out(args, 0);                                                         \
        const int64_t n = lvn_numel(args->out[0]);                                                 \
        for (int64_t e = 0; e < n; e++) {                                                          \
            const double dy = a[e], k = b[e];                                                      \
            y[e] = (expression);                                                                   \
        }                                                                                          \
        return LVN_OK;                                                                             \
    }

OF_X(rsqrt, lvn_no_attr, 1.0 / lvni_core_sqrt(x))
OF_X(reciprocal, lvn_no_attr, 1.0 / x)
OF_X(abs, lvn_no_attr, fabs(x))
OF_X(sign, lvn_no_attr, sign(x))
OF_X(clamp, lvn_range_attr, x<attr->min ? attr->min : x> attr->max ? attr->max : x)
OF_X(round, lvn_no_attr, rint(x))
OF_X(floor, lvn_no_attr, floor(x))
OF_X(ceil, lvn_no_attr, ceil(x))
OF_X(sin, lvn_no_attr, lvni_core_sin(x))
OF_X(cos, lvn_no_attr, lvni_core_cos(x))
OF_X(pow_scalar, lvn_number_attr, lvni_core_pow(x, attr->value))
OF_X(leaky_relu, lvn_number_attr, x < 0.0 ? attr->value * x : x)
OF_X(gelu, lvn_no_attr, x *cdf(x))
OF_X(gelu_tanh, lvn_no_attr, 0.5 * x * (1.0 + lvni_core_tanh(inner(x))))
OF_X(silu, lvn_no_attr, x *sigmoid(x))
OF_X(sigmoid, lvn_no_attr, sigmoid(x))
OF_X(tanh, lvn_no_attr, lvni_core_tanh(x))
OF_X(softplus, lvn_no_attr, softplus(x))
OF_X(erf, lvn_no_attr, lvni_core_erf(x))

OF_PAIR(rsqrt_grad, lvn_no_attr, -0.5 * dy * k * k * k)
OF_PAIR(reciprocal_grad, lvn_no_attr, -dy *k *k)
OF_PAIR(abs_grad, lvn_no_attr, dy *sign(k))
OF_PAIR(clamp_grad, lvn_range_attr, k >= attr->min && k <= attr->max ? dy : 0.0)
OF_PAIR(sin_grad, lvn_no_attr, dy *lvni_core_cos(k))
OF_PAIR(cos_grad, lvn_no_attr, -dy *lvni_core_sin(k))
OF_PAIR(pow_scalar_grad, lvn_number_attr,
        attr->value == 0.0 ? 0.0 : dy * attr->value * lvni_core_pow(k, attr->value - 1.0))
OF_PAIR(leaky_relu_grad, lvn_number_attr, k > 0.0 ? dy : attr->value * dy)
OF_PAIR(gelu_grad, lvn_no_attr, dy *(cdf(k) + k * pdf(k)))
OF_PAIR(gelu_tanh_grad, lvn_no_attr, dy *gelu_tanh_slope(k))
OF_PAIR(silu_grad, lvn_no_attr, dy *sigmoid(k) * (1.0 + k * (1.0 - sigmoid(k))))
OF_PAIR(sigmoid_grad, lvn_no_attr, dy *k *(1.0 - k))
OF_PAIR(tanh_grad, lvn_no_attr, dy *(1.0 - k * k))
OF_PAIR(softplus_grad, lvn_no_attr, dy *sigmoid(k))
OF_PAIR(erf_grad, lvn_no_attr,
        dy * 2.0 * lvni_core_sqrt(1.0 / 3.14159265358979323846) * lvni_core_exp(-k * k))

/* ---- a slope that is learned: element e of x has slope e % slopes ---- */

lvn_status lvni_ref_prelu(const lvn_kernel_args *args)
{
    const double *x = lvni_ref_in(args, 0), *slope = lvni_ref_in(args, 1);
    double *y = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->out[0]), slopes = lvn_numel(args->in[1]);
    for (int64_t e = 0; e < n; e++) {
        y[e] = x[e] < 0.0 ? slope[e % slopes] * x[e] : x[e];
    }
    return LVN_OK;
}

lvn_status lvni_ref_prelu_grad(const lvn_kernel_args *args)
{
    const double *dy = lvni_ref_in(args, 0), *x = lvni_ref_in(args, 1);
    const double *slope = lvni_ref_in(args, 2);
    double *dx = lvni_ref_out(args, 0), *dslope = lvni_ref_optional_out(args, 1);
    const int64_t n = lvn_numel(args->out[0]), slopes = lvn_numel(args->in[2]);
    for (int64_t c = 0; c < slopes && dslope != NULL; c++) {
        dslope[c] = 0.0;
    }
    for (int64_t e = 0; e < n; e++) {
        const bool above = x[e] > 0.0;
        dx[e] = above ? dy[e] : slope[e % slopes] * dy[e];
        if (dslope != NULL && !above) {
            dslope[e % slopes] += x[e] * dy[e];
        }
    }
    return LVN_OK;
}
