/* Powers of two operands, the smaller and the larger, comparisons, and choice by a condition. */
#include "core/error.h"
#include "ops/binary.h"
#include "tensor/device.h"

#include <math.h>

/* ---- pow ---- */

/* d(a^b): b a^(b - 1) and a^b log a */
static lvn_status pow_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    static const lvni_kernels_op slopes[] = {LVNI_OP_pow_grad_base, LVNI_OP_pow_grad_exponent};
    for (int i = 0; i < 2; i++) {
        if (lvni_autograd_grad_wanted(n, i)) {
            lvn_tensor *slope = lvni_ops_new(slopes[i], n->saved[0], n->saved[1]);
            lvn_tensor *g = lvni_ops_new(LVNI_OP_mul, dy, slope);
            lvn_release(slope);
            LVN_TRY(lvni_ops_give_summed(n, i, g, i == 0 ? &n->in_desc : &n->attr.desc));
        }
    }
    return LVN_OK;
}

static lvn_status pow_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_tensor *a = n->saved[0], *b = n->saved[1];
    if (lvni_autograd_grad_wanted(n, 0)) {
        /* d(a^0)/da = 0, at a = 0, too */
        lvn_tensor *zero = lvn_eq_scalar(b, 0.0),
                   *one = lvn_add_scalar(lvn_mul_scalar(b, 0.0), 1.0);
        lvn_tensor *slope = lvn_mul(b, lvn_pow(a, lvn_sub(lvn_where(zero, one, b), one)));
        LVN_TRY(lvni_autograd_grad_give_op(n, 0, lvni_ops_summed(lvn_mul(dy, slope), &n->in_desc)));
    }
    if (lvni_autograd_grad_wanted(n, 1)) {
        /* 0^b log 0 counts as 0 */
        lvn_tensor *zero = lvn_eq_scalar(a, 0.0),
                   *one = lvn_add_scalar(lvn_mul_scalar(a, 0.0), 1.0);
        lvn_tensor *slope = lvn_mul(lvn_pow(a, b), lvn_log_e(lvn_where(zero, one, a)));
        LVN_TRY(
            lvni_autograd_grad_give_op(n, 1, lvni_ops_summed(lvn_mul(dy, slope), &n->attr.desc)));
    }
    return LVN_OK;
}

lvn_tensor *lvn_pow(lvn_tensor *base, lvn_tensor *exponent)
{
    return lvni_ops_binary(LVNI_OP_pow, pow_backward, pow_backward_ops, base, exponent, true);
}

lvn_tensor *lvn_lerp(lvn_tensor *a, lvn_tensor *b, lvn_tensor *t)
{
    return lvn_add(a, lvn_mul(t, lvn_sub(b, a)));
}

/* ---- the smaller and the larger: dy goes to the one that won, half to each where they are equal
 * ---- */

/* The part of dy for input i; owned by the caller. */
static lvn_tensor *part(const lvni_autograd_node *n, int i, bool maximum)
{
    const int first = maximum ? i : 1 - i;
    return lvni_ops_new(LVNI_OP_share, n->saved[first], n->saved[1 - first]);
}

static lvn_status extremum_backward(lvni_autograd_node *n, lvn_tensor *dy, bool maximum)
{
    for (int i = 0; i < 2; i++) {
        if (lvni_autograd_grad_wanted(n, i)) {
            lvn_tensor *share = part(n, i, maximum);
            lvn_tensor *g = lvni_ops_new(LVNI_OP_mul, dy, share);
            lvn_release(share);
            LVN_TRY(lvni_ops_give_summed(n, i, g, i == 0 ? &n->in_desc : &n->attr.desc));
        }
    }
    return LVN_OK;
}

static lvn_status extremum_backward_ops(lvni_autograd_node *n, lvn_tensor *dy, bool maximum)
{
    for (int i = 0; i < 2; i++) {
        if (lvni_autograd_grad_wanted(n, i)) {
            lvn_tensor *share = part(n, i, maximum);
            /* constant: the slope is 0 in a and b */
            share = share == NULL ? lvni_autograd_op_fail("share") : lvni_autograd_adopt(share);
            LVN_TRY(lvni_autograd_grad_give_op(
                n, i, lvni_ops_summed(lvn_mul(dy, share), i == 0 ? &n->in_desc : &n->attr.desc)));
        }
    }
    return LVN_OK;
}

static lvn_status minimum_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return extremum_backward(n, dy, false);
}

static lvn_status minimum_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return extremum_backward_ops(n, dy, false);
}

static lvn_status maximum_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return extremum_backward(n, dy, true);
}

static lvn_status maximum_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return extremum_backward_ops(n, dy, true);
}

lvn_tensor *lvn_minimum(lvn_tensor *a, lvn_tensor *b)
{
    return lvni_ops_binary(LVNI_OP_minimum, minimum_backward, minimum_backward_ops, a, b, true);
}

lvn_tensor *lvn_maximum(lvn_tensor *a, lvn_tensor *b)
{
    return lvni_ops_binary(LVNI_OP_maximum, maximum_backward, maximum_backward_ops, a, b, true);
}

/* ---- comparisons ---- */

/* For whole numbers x the comparison with any number is one with a whole number: x < 0.5 is x < 1,
 * x == 0.5 never true (as far as x reaches). NaN stands below nothing: lt .. ge false, ne true,
 * which the ends of i64 give, too. */
static double whole_number(lvni_kernels_op op, double value)
{
    const double most = 9223372036854774784.0; /* the largest double below 2^63 */
    const bool never =
        value != value || (value != floor(value) && (op == LVNI_OP_eq || op == LVNI_OP_ne));
    if (never) {
        /* x of that size aside */
        return op == LVNI_OP_gt || op == LVNI_OP_ge ? most : -9223372036854775808.0;
    }
    const double whole = op == LVNI_OP_lt || op == LVNI_OP_ge ? ceil(value) : floor(value);
    return whole > most ? most : whole < -9223372036854775808.0 ? -9223372036854775808.0 : whole;
}

/* A number of the type of x, where x lies; owned by the caller. */
static lvn_tensor *number_like(const lvn_tensor *x, double value)
{
    const lvni_tensor_desc d = {.dtype = x->dtype};
    return lvni_tensor_number(&d, value, lvni_tensor_device_of(x->data));
}

static lvn_tensor *compare(lvni_kernels_op op, lvn_tensor *a, lvn_tensor *b)
{
    lvn_tensor *in[] = {a, b};
    if (!lvni_autograd_op_begin(op, in, 2, 0)) {
        return lvni_autograd_op_fail(lvni_kernels_ops[op].name);
    }
    lvn_kernel_args args = {.in = {in[0], in[1]}};
    return lvni_autograd_op_run(op, &args, 1);
}

static lvn_tensor *compare_scalar(lvni_kernels_op op, lvn_tensor *x, double value)
{
    if (x == NULL || lvni_autograd_scope_failed()) {
        return lvni_autograd_op_fail(lvni_kernels_ops[op].name);
    }
    if (x->dtype != LVN_F32 && x->dtype != LVN_F64 && x->dtype != LVN_I64 &&
        !lvni_tensor_is_low(x->dtype)) {
        return compare(op, x, x); /* refused by the shape rule */
    }
    lvn_tensor *c = number_like(x, x->dtype == LVN_I64 ? whole_number(op, value) : value);
    return c == NULL ? lvni_autograd_op_fail(lvni_kernels_ops[op].name)
                     : compare(op, x, lvni_autograd_adopt(c));
}

#define COMPARE(op)                                                                                \
    lvn_tensor *lvn_##op(lvn_tensor *a, lvn_tensor *b)                                             \
    {                                                                                              \
        return compare(LVNI_OP_##op, a, b);                                                        \
    }                                                                                              \
    lvn_tensor *lvn_##op##_scalar(lvn_tensor *x, double value)                                     \
    {                                                                                              \
        return compare_scalar(LVNI_OP_##op, x, value);                                             \
    }
COMPARE(eq)
COMPARE(ne)
COMPARE(lt)
COMPARE(le)
COMPARE(gt)
COMPARE(ge)

/* ---- choice: inputs a and b; saved[0] is the condition ---- */

static lvn_status where_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_tensor *zero = number_like(dy, 0.0);
    lvn_status s;
    LVNI_TRY_DONE(s, zero == NULL ? lvn_last_error()->code : LVN_OK);
    for (int i = 0; i < 2; i++) {
        if (lvni_autograd_grad_wanted(n, i)) {
            lvn_kernel_args a = {.in = {n->saved[0], i == 0 ? dy : zero, i == 0 ? zero : dy}};
            LVNI_TRY_DONE(s, lvni_kernels_run(LVNI_OP_where, &a, 1));
            LVNI_TRY_DONE(
                s, lvni_ops_give_summed(n, i, a.out[0], i == 0 ? &n->in_desc : &n->attr.desc));
        }
    }
done:
    lvn_release(zero);
    return s;
}

static lvn_status where_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    for (int i = 0; i < 2; i++) {
        if (lvni_autograd_grad_wanted(n, i)) {
            lvn_tensor *zero = number_like(dy, 0.0);
            zero = zero == NULL ? lvni_autograd_op_fail("where") : lvni_autograd_adopt(zero);
            lvn_tensor *g = lvn_where(n->saved[0], i == 0 ? dy : zero, i == 0 ? zero : dy);
            LVN_TRY(lvni_autograd_grad_give_op(
                n, i, lvni_ops_summed(g, i == 0 ? &n->in_desc : &n->attr.desc)));
        }
    }
    return LVN_OK;
}

lvn_tensor *lvn_where(lvn_tensor *condition, lvn_tensor *a, lvn_tensor *b)
{
    lvn_tensor *in[] = {condition, a, b};
    if (!lvni_autograd_op_begin(LVNI_OP_where, in, 3, 0)) {
        return lvni_autograd_op_fail("where");
    }
    lvn_kernel_args args = {.in = {in[0], in[1], in[2]}};
    lvn_tensor *y = lvni_autograd_op_run(LVNI_OP_where, &args, 1);
    lvni_autograd_node *node = lvni_autograd_record("where", where_backward, y, &in[1], 2);
    if (node != NULL) {
        node->backward_ops = where_backward_ops;
        node->attr.desc = lvni_tensor_get_desc(in[2]);
        lvni_autograd_save(node, 0, in[0]);
    }
    return y;
}

/* Broadcasting may not make the result larger than x. */
static lvn_status check_mask(const lvn_tensor *x, const lvn_tensor *mask)
{
    bool fits = mask->ndim <= x->ndim;
    for (int i = 0; fits && i < mask->ndim; i++) {
        const int64_t size = x->shape[x->ndim - mask->ndim + i];
        fits = mask->shape[i] == 1 || mask->shape[i] == size;
    }
    if (!fits) {
        char a[96], b[96];
        LVN_FAIL(LVN_ERR_SHAPE,
                 "masked_fill: the mask is %s, which cannot be broadcast to x, which is %s",
                 lvni_tensor_shape_string(mask->ndim, mask->shape, a),
                 lvni_tensor_shape_string(x->ndim, x->shape, b));
    }
    return LVN_OK;
}

lvn_tensor *lvn_masked_fill(lvn_tensor *x, lvn_tensor *mask, double value)
{
    if (x == NULL || mask == NULL || lvni_autograd_scope_failed() ||
        check_mask(x, mask) != LVN_OK) {
        return lvni_autograd_op_fail("masked_fill");
    }
    lvn_tensor *number = number_like(x, value);
    return number == NULL ? lvni_autograd_op_fail("masked_fill")
                          : lvn_where(mask, lvni_autograd_adopt(number), x);
}
