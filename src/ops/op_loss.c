/* Soft-max, its logarithm, accuracy; losses over classes, and losses element by element. */
#include "autograd/tape.h"
#include "core/options_struct.h"
#include "ops/binary.h"

/* ---- soft-max ---- */

static lvn_status by_output(lvni_autograd_node *n, lvn_tensor *dy, lvni_kernels_op op)
{
    lvn_kernel_args a = {.in = {dy, n->saved[0]}};
    LVN_TRY(lvni_kernels_run(op, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_status softmax_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return by_output(n, dy, LVNI_OP_softmax_grad);
}

static lvn_status log_softmax_backward(lvni_autograd_node *n, lvn_tensor *dy)
{
    return by_output(n, dy, LVNI_OP_log_softmax_grad);
}

static lvn_tensor *sum_of_rows(lvn_tensor *x)
{
    return lvn_sum_axes(x, (const int[]){-1}, 1, true);
}

/* dx = y (dy - sum(dy y)) */
static lvn_status softmax_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    lvn_tensor *y = n->saved[0];
    return lvni_autograd_grad_give_op(n, 0, lvn_mul(y, lvn_sub(dy, sum_of_rows(lvn_mul(dy, y)))));
}

/* dx = dy - e^y sum(dy) */
static lvn_status log_softmax_backward_ops(lvni_autograd_node *n, lvn_tensor *dy)
{
    return lvni_autograd_grad_give_op(n, 0,
                                      lvn_sub(dy, lvn_mul(lvn_exp(n->saved[0]), sum_of_rows(dy))));
}

lvn_tensor *lvn_softmax(lvn_tensor *x)
{
    return lvni_ops_unary(LVNI_OP_softmax, softmax_backward, softmax_backward_ops, x, true);
}

lvn_tensor *lvn_log_softmax(lvn_tensor *x)
{
    return lvni_ops_unary(LVNI_OP_log_softmax, log_softmax_backward, log_softmax_backward_ops, x,
                          true);
}

/* ---- losses over classes ---- */

enum { IGNORED = -100 }; /* unless the caller names another label: PyTorch's default */
enum { LOGITS, LABELS, CLASS_WEIGHT, SAMPLE_WEIGHT, N_IN };
enum { OF_LOGITS, OF_LABELS, OF_CLASS_WEIGHT, OF_SAMPLE_WEIGHT, OF_KEPT };

static lvn_class_loss_attr attributes(const lvn_class_loss_options *o)
{
    return (lvn_class_loss_attr){.smoothing = o->label_smoothing,
                                 .ignore = o->ignores ? o->ignore_index : IGNORED,
                                 .sum = o->reduction == LVN_REDUCTION_SUM};
}

static lvn_status cross_entropy_backward(lvni_autograd_node *n, lvn_tensor *dloss)
{
    lvn_tensor *const *saved = n->saved;
    lvn_kernel_args a = {.in = {dloss, saved[OF_LOGITS], saved[OF_KEPT], saved[OF_LABELS],
                                saved[OF_CLASS_WEIGHT], saved[OF_SAMPLE_WEIGHT]},
                         .attr = &n->attr.class_loss};
    LVN_TRY(lvni_kernels_run(LVNI_OP_cross_entropy_grad, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_status nll_backward(lvni_autograd_node *n, lvn_tensor *dloss)
{
    lvn_tensor *const *saved = n->saved;
    lvn_kernel_args a = {.in = {dloss, saved[OF_LOGITS], saved[OF_LABELS], saved[OF_CLASS_WEIGHT],
                                saved[OF_SAMPLE_WEIGHT]},
                         .attr = &n->attr.class_loss};
    LVN_TRY(lvni_kernels_run(LVNI_OP_nll_grad, &a, 1));
    return lvni_autograd_grad_give(n, 0, a.out[0]);
}

static lvn_status read_options(lvni_kernels_op op, const lvn_class_loss_options *given,
                               lvn_class_loss_options *o)
{
    const bool nll = op == LVNI_OP_nll;
    const char *call = nll ? "nll_loss" : "cross_entropy";
    LVN_TRY(lvni_core_options_copy(call, o, sizeof *o, given));
    LVN_TRY(lvni_core_options_enum(call, "reduction", (int)o->reduction, LVN_REDUCTION_SUM));
    LVN_TRY(lvni_autograd_op_constant(call, "class_weight", o->class_weight));
    LVN_TRY(lvni_autograd_op_constant(call, "sample_weight", o->sample_weight));
    LVN_ARG(!nll || o->label_smoothing == 0.0,
            "nll_loss: label_smoothing is for cross_entropy; take lvn_cross_entropy of the logits");
    return LVN_OK;
}

static lvn_tensor *class_loss(lvni_kernels_op op, lvni_autograd_backward_rule rule,
                              lvn_tensor *logits, lvn_tensor *labels,
                              const lvn_class_loss_options *options)
{
    lvn_class_loss_options o;
    if (read_options(op, options, &o) != LVN_OK) {
        return lvni_autograd_op_fail(lvni_kernels_ops[op].name);
    }
    lvn_tensor *in[N_IN] = {logits, labels, o.class_weight, o.sample_weight};
    if (!lvni_autograd_op_begin(op, in, N_IN, 1u << CLASS_WEIGHT | 1u << SAMPLE_WEIGHT)) {
        return lvni_autograd_op_fail(lvni_kernels_ops[op].name);
    }
    const lvn_class_loss_attr attr = attributes(&o);
    lvn_kernel_args args = {.in = {in[LOGITS], in[LABELS], in[CLASS_WEIGHT], in[SAMPLE_WEIGHT]},
                            .attr = &attr};
    lvn_tensor *loss = lvni_autograd_op_run(op, &args, lvni_kernels_ops[op].n_out == 2 ? 3u : 1u);
    lvni_autograd_node *node = lvni_autograd_record(lvni_kernels_ops[op].name, rule, loss, in, 1);
    if (node != NULL) {
        node->attr.class_loss = attr;
        for (int i = LOGITS; i < N_IN; i++) {
            lvni_autograd_save(node, i, in[i]);
        }
        lvni_autograd_save(node, OF_KEPT, args.out[1]);
    }
    return loss;
}

lvn_tensor *lvn_cross_entropy_with(lvn_tensor *logits, lvn_tensor *labels,
                                   const lvn_class_loss_options *o)
{
    return class_loss(LVNI_OP_cross_entropy, cross_entropy_backward, logits, labels, o);
}

lvn_tensor *lvn_nll_loss_with(lvn_tensor *log_probabilities, lvn_tensor *labels,
                              const lvn_class_loss_options *o)
{
    return class_loss(LVNI_OP_nll, nll_backward, log_probabilities, labels, o);
}

lvn_tensor *lvn_accuracy(lvn_tensor *logits, lvn_tensor *labels)
{
    lvn_tensor *in[] = {logits, labels};
    if (!lvni_autograd_op_begin(LVNI_OP_accuracy, in, 2, 0)) {
        return lvni_autograd_op_fail("accuracy");
    }
    lvn_kernel_args args = {.in = {in[0], in[1]}};
    return lvni_autograd_op_run(LVNI_OP_accuracy, &args, 1);
}

/* ---- losses element by element: one kernel with four formulas ---- */

enum { X, TARGET, WEIGHT, POS_WEIGHT, N_POINT_IN };
enum { OF_DIVISOR = N_POINT_IN };

/* Gradients of the prediction and, unless binary cross entropy, of the target, for a gradient
 * `dloss` of the loss. */
static lvn_status gradients(const lvni_autograd_node *n, const lvn_tensor *dloss,
                            lvn_kernel_args *a)
{
    const bool target = lvni_autograd_grad_wanted(n, TARGET);
    *a = (lvn_kernel_args){.in = {dloss, n->saved[OF_DIVISOR], n->saved[X], n->saved[TARGET],
                                  n->saved[WEIGHT], n->saved[POS_WEIGHT]},
                           .attr = &n->attr.point_loss};
    return lvni_kernels_run(LVNI_OP_point_loss_grad, a, target ? 3u : 1u);
}

static lvn_status point_loss_backward(lvni_autograd_node *n, lvn_tensor *dloss)
{
    lvn_kernel_args a;
    LVN_TRY(gradients(n, dloss, &a));
    return lvni_autograd_grad_give_all(n, a.out, WEIGHT, 1u << X | 1u << TARGET);
}

/* ---- the same written with ops, without the division by the divisor ---- */

/* Absolute values have slopes that do not change: computed once, for a gradient of the loss of
 * 1. */
static lvn_tensor *absolute_slope(const lvni_autograd_node *n)
{
    const lvn_tensor *one = lvn_add_scalar(lvn_mul_scalar(n->saved[OF_DIVISOR], 0.0), 1.0);
    lvn_kernel_args a = {
        .in = {one, one, n->saved[X], n->saved[TARGET], n->saved[WEIGHT], n->saved[POS_WEIGHT]},
        .attr = &n->attr.point_loss};
    return one == NULL ? NULL : lvni_autograd_op_run(LVNI_OP_point_loss_grad, &a, 1);
}

/* d / beta for |d| < beta, else the sign of d: bent nowhere, so that the second derivative is
 * 1 / beta or 0 (at |d| = beta, too, as in PyTorch). */
static lvn_tensor *smooth_slope(const lvni_autograd_node *n)
{
    const double beta = n->attr.point_loss.beta;
    lvn_tensor *d = lvn_sub(n->saved[X], n->saved[TARGET]);
    return lvn_where(lvn_lt_scalar(lvn_abs(d), beta), lvn_mul_scalar(d, 1.0 / beta), lvn_sign(d));
}

static lvn_tensor *weighted(lvn_tensor *slope, lvn_tensor *weight)
{
    return weight == NULL ? slope : lvn_mul(slope, weight);
}

/* (1 - t) - (1 + (positive - 1) t) sigmoid(-x) */
static lvn_tensor *binary_slope(const lvni_autograd_node *n)
{
    lvn_tensor *t = n->saved[TARGET], *positive = n->saved[POS_WEIGHT];
    lvn_tensor *factor = lvn_add_scalar(
        positive == NULL ? lvn_mul_scalar(t, 0.0) : lvn_mul(t, lvn_add_scalar(positive, -1.0)),
        1.0);
    lvn_tensor *rest = lvn_mul(factor, lvn_sigmoid(lvn_neg(n->saved[X])));
    return lvn_sub(lvn_add_scalar(lvn_neg(t), 1.0), rest);
}

static lvn_status point_loss_backward_ops(lvni_autograd_node *n, lvn_tensor *dloss)
{
    lvn_tensor *slope;
    switch (n->attr.point_loss.kind) {
    case LVN_LOSS_SQUARE:
        slope =
            weighted(lvn_mul_scalar(lvn_sub(n->saved[X], n->saved[TARGET]), 2.0), n->saved[WEIGHT]);
        break;
    case LVN_LOSS_BINARY: slope = weighted(binary_slope(n), n->saved[WEIGHT]); break;
    case LVN_LOSS_SMOOTH_L1: slope = weighted(smooth_slope(n), n->saved[WEIGHT]); break;
    default: slope = absolute_slope(n); break;
    }
    lvn_tensor *dx = lvn_mul(slope, lvn_div(dloss, n->saved[OF_DIVISOR]));
    if (lvni_autograd_grad_wanted(n, X)) {
        LVN_TRY(lvni_autograd_grad_give_op(n, X, dx));
    }
    return lvni_autograd_grad_wanted(n, TARGET) ? lvni_autograd_grad_give_op(n, TARGET, lvn_neg(dx))
                                                : LVN_OK;
}

static lvn_status read_point_options(const char *name, lvn_point_loss_kind kind,
                                     const lvn_point_loss_options *given, lvn_point_loss_options *o)
{
    LVN_TRY(lvni_core_options_copy(name, o, sizeof *o, given));
    LVN_TRY(lvni_core_options_enum(name, "reduction", (int)o->reduction, LVN_REDUCTION_SUM));
    LVN_TRY(lvni_autograd_op_constant(name, "weight", o->weight));
    LVN_TRY(lvni_autograd_op_constant(name, "pos_weight", o->pos_weight));
    LVN_ARG(kind == LVN_LOSS_BINARY || o->pos_weight == NULL,
            "%s: pos_weight is for bce_with_logits; use weight", name);
    return LVN_OK;
}

static lvn_tensor *point_loss(const char *name, lvn_point_loss_kind kind, double beta,
                              lvn_tensor *x, lvn_tensor *target,
                              const lvn_point_loss_options *options)
{
    lvn_point_loss_options o;
    if (read_point_options(name, kind, options, &o) != LVN_OK ||
        (kind == LVN_LOSS_BINARY && lvni_autograd_op_constant(name, "target", target) != LVN_OK)) {
        return lvni_autograd_op_fail(name);
    }
    lvn_tensor *in[N_POINT_IN] = {x, target, o.weight, o.pos_weight};
    if (!lvni_autograd_op_begin(LVNI_OP_point_loss, in, N_POINT_IN,
                                1u << WEIGHT | 1u << POS_WEIGHT)) {
        return lvni_autograd_op_fail(name);
    }
    const lvn_point_loss_attr attr = {
        .kind = kind, .beta = beta, .sum = o.reduction == LVN_REDUCTION_SUM};
    lvn_kernel_args args = {.in = {in[X], in[TARGET], in[WEIGHT], in[POS_WEIGHT]}, .attr = &attr};
    lvn_tensor *loss = lvni_autograd_op_run(LVNI_OP_point_loss, &args, 3);
    lvni_autograd_node *node =
        lvni_autograd_record(name, point_loss_backward, loss, in, kind == LVN_LOSS_BINARY ? 1 : 2);
    if (node != NULL) {
        node->backward_ops = point_loss_backward_ops;
        node->attr.point_loss = attr;
        for (int i = X; i < N_POINT_IN; i++) {
            lvni_autograd_save(node, i, in[i]);
        }
        lvni_autograd_save(node, OF_DIVISOR, args.out[1]);
    }
    return loss;
}

lvn_tensor *lvn_mse_loss_with(lvn_tensor *x, lvn_tensor *target, const lvn_point_loss_options *o)
{
    return point_loss("mse_loss", LVN_LOSS_SQUARE, 0.0, x, target, o);
}

lvn_tensor *lvn_l1_loss_with(lvn_tensor *x, lvn_tensor *target, const lvn_point_loss_options *o)
{
    return point_loss("l1_loss", LVN_LOSS_ABSOLUTE, 0.0, x, target, o);
}

lvn_tensor *lvn_smooth_l1_loss_with(lvn_tensor *x, lvn_tensor *target, double beta,
                                    const lvn_point_loss_options *o)
{
    return point_loss("smooth_l1_loss", LVN_LOSS_SMOOTH_L1, beta, x, target, o);
}

lvn_tensor *lvn_bce_with_logits_with(lvn_tensor *logits, lvn_tensor *target,
                                     const lvn_point_loss_options *o)
{
    return point_loss("bce_with_logits", LVN_LOSS_BINARY, 0.0, logits, target, o);
}
