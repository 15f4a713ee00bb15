/* Reference kernels: powers of two operands, the smaller and the larger, comparisons, choice by a
 * condition; with broadcasting. */
#include "kernels/ref/ref_impl.h"

#include "core/math.h"

/* The elements of both inputs (from input `first` on) that broadcasting shows at element e of the
 * result. */
static void operands(const lvn_kernel_args *args, int first, int64_t e, double *a, double *b)
{
    int64_t at[LVN_MAX_NDIM];
    const int ndim = args->out[0]->ndim;
    lvni_ref_coordinates(e, args->out[0], at);
    *a = lvni_ref_in(args, first)[lvni_ref_broadcast_index(args->in[first], ndim, at)];
    *b = lvni_ref_in(args, first + 1)[lvni_ref_broadcast_index(args->in[first + 1], ndim, at)];
}

#define OF_TWO(op, type, expression)                                                               \
    lvn_status lvni_ref_##op(const lvn_kernel_args *args)                                          \
    {                                                                                              \
        type *y = args->out[0]->data;                                                              \
        const int64_t n = lvn_numel(args->out[0]);                                                 \
        for (int64_t e = 0; e < n; e++) {                                                          \
            double a, b;                                                                           \
            operands(args, 0, e, &a, &b);                                                          \
            y[e] = (expression);                                                                   \
        }                                                                                          \
        return LVN_OK;                                                                             \
    }

OF_TWO(pow, double, lvni_core_pow(a, b))
OF_TWO(pow_grad_base, double, b == 0.0 ? 0.0 : b * lvni_core_pow(a, b - 1.0))
OF_TWO(pow_grad_exponent, double,
       a == 0.0 && b >= 0.0 ? 0.0 : lvni_core_pow(a, b) * lvni_core_log(a))
OF_TWO(minimum, double, a != a || a < b ? a : b)
OF_TWO(maximum, double, a != a || a > b ? a : b)
OF_TWO(share, double, a < b ? 0.0 : a == b ? 0.5 : 1.0) /* with a NaN: 1 */
OF_TWO(div_or_zero, double, b == 0.0 ? 0.0 : a / b)
OF_TWO(eq, uint8_t, a == b)
OF_TWO(ne, uint8_t, a != b)
OF_TWO(lt, uint8_t, a < b)
OF_TWO(le, uint8_t, a <= b)
OF_TWO(gt, uint8_t, a > b)
OF_TWO(ge, uint8_t, a >= b)

lvn_status lvni_ref_where(const lvn_kernel_args *args)
{
    const uint8_t *condition = args->in[0]->data;
    double *y = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(args->out[0]);
    for (int64_t e = 0; e < n; e++) {
        int64_t at[LVN_MAX_NDIM];
        double a, b;
        lvni_ref_coordinates(e, args->out[0], at);
        operands(args, 1, e, &a, &b);
        y[e] =
            condition[lvni_ref_broadcast_index(args->in[0], args->out[0]->ndim, at)] != 0 ? a : b;
    }
    return LVN_OK;
}
