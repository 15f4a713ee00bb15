/* Losses against probabilities and the logarithm of a sum of exponentials, made of other ops: one
 * kernel more per part than a fused one, and second derivatives without a line of their own. */
#include "autograd/tape.h"
#include "core/options_struct.h"

#include <math.h>

/* ---- log-sum-exp over the last axis: keeps x alone ---- */

static lvn_tensor *logsumexp_of_rows(lvn_tensor *x)
{
    lvn_tensor *top = lvn_max_axis(x, -1, true);
    /* of infinities: x - 0 */
    top = lvn_masked_fill(top, lvn_eq_scalar(lvn_abs(top), HUGE_VAL), 0.0);
    lvn_tensor *sum = lvn_sum_axes(lvn_exp(lvn_sub(x, top)), (const int[]){-1}, 1, true);
    lvn_tensor *y = lvn_add(lvn_log_e(sum), top);
    return y == NULL ? NULL : lvn_reshape(y, y->ndim - 1, y->shape);
}

static lvn_tensor *logsumexp_forward(lvn_function_call *call, lvn_tensor *const *in)
{
    if (lvn_scope_open() != LVN_OK) {
        return NULL;
    }
    lvn_tensor *y = lvn_keep(logsumexp_of_rows(in[0]));
    if (lvn_scope_close() != LVN_OK) { /* what it took but y goes */
        lvn_release(y);
        return NULL;
    }
    call->saved[0] = in[0];
    return lvni_autograd_adopt(y);
}

/* dx = dy softmax(x) */
static lvn_status logsumexp_backward(lvn_function_call *call, lvn_tensor *dy, lvn_tensor **dx)
{
    lvn_tensor *x = call->saved[0];
    int64_t shape[LVN_MAX_NDIM];
    for (int i = 0; i < x->ndim; i++) {
        shape[i] = i < x->ndim - 1 ? x->shape[i] : 1;
    }
    dx[0] = lvn_mul(lvn_softmax(x), lvn_reshape(dy, x->ndim, shape));
    return lvn_scope_status();
}

lvn_tensor *lvn_logsumexp(lvn_tensor *x, int axis)
{
    static const lvn_function rows = {.name = "logsumexp",
                                      .forward = logsumexp_forward,
                                      .backward = logsumexp_backward,
                                      .differentiable = true};
    lvn_tensor *last = lvn_transpose(x, axis, -1);
    lvn_tensor *y = last == NULL ? NULL : lvn_apply(&rows, &last, 1, NULL);
    /* the axis that was the last one is in the place of the one that went */
    const int from = y == NULL ? 0 : axis < 0 ? axis + y->ndim + 1 : axis;
    if (y == NULL || from >= y->ndim - 1) {
        return y;
    }
    int axes[LVN_MAX_NDIM];
    for (int i = 0; i < y->ndim; i++) {
        axes[i] = i < from ? i : i == y->ndim - 1 ? from : i + 1;
    }
    return lvn_permute(y, axes, y->ndim);
}

/* ---- losses ---- */

static lvn_status check_pair(const char *op, const lvn_tensor *x, const lvn_tensor *target)
{
    char a[96], b[96];
    if (!lvni_tensor_same_shape(x, target)) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: x is %s but the target is %s; both must have one shape", op,
                 lvni_tensor_shape_string(x->ndim, x->shape, a),
                 lvni_tensor_shape_string(target->ndim, target->shape, b));
    }
    if (x->ndim == 0) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: x has no axes; the last one is that of the classes", op);
    }
    return LVN_OK;
}

/* The sum of all elements over a number of terms, 1 where there are none. */
static lvn_tensor *sum_over(lvn_tensor *x, int64_t terms)
{
    lvn_tensor *sum = lvn_sum(x);
    return terms <= 1 ? sum : lvn_mul_scalar(sum, 1.0 / (double)terms);
}

static lvn_status read_soft_options(const lvn_soft_loss_options *given, lvn_soft_loss_options *o,
                                    const lvn_tensor *logits, const lvn_tensor *target)
{
    LVN_TRY(lvni_core_options_copy("soft_cross_entropy", o, sizeof *o, given));
    LVN_TRY(lvni_core_options_enum("soft_cross_entropy", "reduction", (int)o->reduction,
                                   LVN_REDUCTION_SUM));
    LVN_TRY(check_pair("soft_cross_entropy", logits, target));
    const lvn_tensor *w = o->class_weight;
    const int64_t classes = logits->shape[logits->ndim - 1];
    LVN_ARG(w == NULL || (w->ndim == 1 && w->shape[0] == classes),
            "soft_cross_entropy: class_weight must be (%lld), one for each class",
            (long long)classes);
    return lvni_autograd_op_constant("soft_cross_entropy", "class_weight", o->class_weight);
}

lvn_tensor *lvn_soft_cross_entropy_with(lvn_tensor *logits, lvn_tensor *target,
                                        const lvn_soft_loss_options *options)
{
    lvn_soft_loss_options o;
    if (logits == NULL || target == NULL || lvni_autograd_scope_failed() ||
        read_soft_options(options, &o, logits, target) != LVN_OK) {
        return lvni_autograd_op_fail("soft_cross_entropy");
    }
    const int64_t classes = logits->shape[logits->ndim - 1],
                  rows = classes == 0 ? 0 : lvn_numel(logits) / classes;
    lvn_tensor *weighted = o.class_weight == NULL ? target : lvn_mul(target, o.class_weight);
    lvn_tensor *terms = lvn_mul(lvn_log_softmax(logits), weighted);
    return lvn_neg(sum_over(terms, o.reduction == LVN_REDUCTION_SUM ? 1 : rows));
}

/* t (log t - x); of t = 0 the slope in t counts as that of t = 1, less 1 */
static lvn_tensor *divergence(lvn_tensor *x, lvn_tensor *t, bool log_target)
{
    if (log_target) {
        return lvn_mul(lvn_exp(t), lvn_sub(t, x));
    }
    lvn_tensor *logs = lvn_log_e(lvn_masked_fill(t, lvn_eq_scalar(t, 0.0), 1.0));
    return lvn_mul(t, lvn_sub(logs, x));
}

lvn_tensor *lvn_kl_div_with(lvn_tensor *x, lvn_tensor *target, const lvn_kl_div_options *options)
{
    lvn_kl_div_options o;
    if (x == NULL || target == NULL || lvni_autograd_scope_failed() ||
        lvni_core_options_copy("kl_div", &o, sizeof o, options) != LVN_OK ||
        lvni_core_options_enum("kl_div", "reduction", (int)o.reduction, LVN_REDUCTION_SUM) !=
            LVN_OK ||
        check_pair("kl_div", x, target) != LVN_OK) {
        return lvni_autograd_op_fail("kl_div");
    }
    const int64_t terms = o.reduction == LVN_REDUCTION_SUM ? 1 : x->shape[0];
    return sum_over(divergence(x, target, o.log_target), terms);
}
