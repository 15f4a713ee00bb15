/* Reference kernels: element-wise ops, with broadcasting where there are two operands, and
 * dropout. */
#include "kernels/ref/ref_impl.h"

#include "core/math.h"

typedef double (*binary)(double a, double b);
typedef double (*unary)(double x);

static lvn_status with_broadcast(const lvn_kernel_args *args, binary f)
{
    const double *a = lvni_ref_in(args, 0), *b = lvni_ref_in(args, 1);
    double *y = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->out[0]);
    for (int64_t e = 0; e < n; e++) {
        int64_t at[LVN_MAX_NDIM];
        const int ndim = args->out[0]->ndim;
        lvni_ref_coordinates(e, args->out[0], at);
        y[e] = f(a[lvni_ref_broadcast_index(args->in[0], ndim, at)],
                 b[lvni_ref_broadcast_index(args->in[1], ndim, at)]);
    }
    return LVN_OK;
}

static lvn_status one_operand(const lvn_kernel_args *args, unary f)
{
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->out[0]);
    for (int64_t e = 0; e < n; e++) {
        y[e] = f(x[e]);
    }
    return LVN_OK;
}

/* dy and a kept tensor of the same shape. */
static lvn_status two_operands(const lvn_kernel_args *args, binary f)
{
    const double *a = lvni_ref_in(args, 0), *b = lvni_ref_in(args, 1);
    double *y = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->out[0]);
    for (int64_t e = 0; e < n; e++) {
        y[e] = f(a[e], b[e]);
    }
    return LVN_OK;
}

static double add(double a, double b)
{
    return a + b;
}
static double sub(double a, double b)
{
    return a - b;
}
static double mul(double a, double b)
{
    return a * b;
}
static double divide(double a, double b)
{
    return a / b;
}
static double square(double x)
{
    return x * x;
}
static double square_grad(double dy, double x)
{
    return 2.0 * x * dy;
}
static double sqrt_grad(double dy, double y)
{
    return dy / (2.0 * y);
}
static double relu(double x)
{
    return x < 0.0 ? 0.0 : x;
} /* NaN is not below 0: it stays */
static double relu_grad(double dy, double y)
{
    return y > 0.0 ? dy : 0.0;
}

lvn_status lvni_ref_add(const lvn_kernel_args *args)
{
    return with_broadcast(args, add);
}
lvn_status lvni_ref_sub(const lvn_kernel_args *args)
{
    return with_broadcast(args, sub);
}
lvn_status lvni_ref_mul(const lvn_kernel_args *args)
{
    return with_broadcast(args, mul);
}
lvn_status lvni_ref_div(const lvn_kernel_args *args)
{
    return with_broadcast(args, divide);
}
lvn_status lvni_ref_exp(const lvn_kernel_args *args)
{
    return one_operand(args, lvni_core_exp);
}
lvn_status lvni_ref_log(const lvn_kernel_args *args)
{
    return one_operand(args, lvni_core_log);
}
lvn_status lvni_ref_square(const lvn_kernel_args *args)
{
    return one_operand(args, square);
}
lvn_status lvni_ref_square_grad(const lvn_kernel_args *args)
{
    return two_operands(args, square_grad);
}
lvn_status lvni_ref_sqrt(const lvn_kernel_args *args)
{
    return one_operand(args, lvni_core_sqrt);
}
lvn_status lvni_ref_sqrt_grad(const lvn_kernel_args *args)
{
    return two_operands(args, sqrt_grad);
}
lvn_status lvni_ref_relu(const lvn_kernel_args *args)
{
    return one_operand(args, relu);
}
lvn_status lvni_ref_relu_grad(const lvn_kernel_args *args)
{
    return two_operands(args, relu_grad);
}

lvn_status lvni_ref_scale(const lvn_kernel_args *args)
{
    const lvn_scale_attr *attr = args->attr;
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->out[0]);
    for (int64_t e = 0; e < n; e++) {
        y[e] = x[e] * attr->mul + attr->add;
    }
    return LVN_OK;
}

/* The draw and p are compared as f32, as every backend does: the kept set is the same
 * everywhere. */
lvn_status lvni_ref_dropout(const lvn_kernel_args *args)
{
    const lvn_dropout_attr *attr = args->attr;
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->out[0]);
    const lvni_core_rng rng = lvni_kernels_rng(&attr->rng);
    for (int64_t e = 0; e < n; e++) {
        const bool keep = lvni_core_rng_uniform(&rng, (uint64_t)e) >= (float)attr->p;
        y[e] = keep ? x[e] / (1.0 - attr->p) : 0.0;
    }
    return LVN_OK;
}
