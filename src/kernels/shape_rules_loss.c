/* Shape rules of losses, accuracy and lookups in tables (shape_rules.c has the others). */
#include "kernels/shape_rules_impl.h"

/* ---- losses over classes ---- */

/* One label for each row of the logits (..., K); at least one row, K >= 1. */
static lvn_status labelled_rows(const char *op, const lvn_tensor *logits, const lvn_tensor *labels)
{
    if (logits->ndim < 1) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: the logits are a single number, they must have classes in their last axis",
                 op);
    }
    LVN_TRY(lvni_kernels_rule_dtype(op, "the labels", labels, LVN_I64));
    const lvni_tensor_desc rows = lvni_kernels_rule_make(LVN_I64, logits->ndim - 1, logits->shape);
    bool same = labels->ndim == rows.ndim;
    for (int i = 0; same && i < rows.ndim; i++) {
        same = labels->shape[i] == rows.shape[i];
    }
    if (!same) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: the label tensor is %s, but the logits are %s: it must be %s",
                 op, LVNI_SHAPE_TEXT(labels), LVNI_SHAPE_TEXT(logits), LVNI_SHAPE_TEXT(&rows));
    }
    if (lvn_numel(labels) == 0 || logits->shape[logits->ndim - 1] == 0) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: the logits are %s; the mean needs at least one row and one class", op,
                 LVNI_SHAPE_TEXT(logits));
    }
    return LVN_OK;
}

/* Inputs w and w + 1, where given: a weight per class, a weight per row. */
static lvn_status class_and_row_weights(const char *op, const lvn_kernel_args *args, int w,
                                        const lvn_tensor *logits, const lvn_tensor *labels)
{
    if (args->in[w] != NULL) {
        const int64_t classes = logits->shape[logits->ndim - 1];
        if (args->in[w]->ndim != 1 || args->in[w]->shape[0] != classes) {
            LVN_FAIL(
                LVN_ERR_SHAPE,
                "%s: the tensor of class weights is %s, but %s has %lld classes: it must be (%lld)",
                op, LVNI_SHAPE_TEXT(args->in[w]), LVNI_SHAPE_TEXT(logits), (long long)classes,
                (long long)classes);
        }
    }
    return args->in[w + 1] == NULL ? LVN_OK
                                   : lvni_kernels_rule_same(op, "the tensor of sample weights",
                                                            args->in[w + 1], "labels", labels);
}

static lvn_status class_attribute(const char *op, const lvn_class_loss_attr *attr)
{
    LVN_ARG(attr->smoothing >= 0.0 && attr->smoothing <= 1.0,
            "%s: label_smoothing is %g, it must be between 0 and 1", op, attr->smoothing);
    return LVN_OK;
}

static lvn_status need_number(const char *op, const lvn_tensor *dloss)
{
    if (dloss->ndim != 0) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: the gradient of the loss is %s, it must be a single number ()",
                 op, LVNI_SHAPE_TEXT(dloss));
    }
    return LVN_OK;
}

lvn_status lvni_kernels_shape_cross_entropy(const lvn_kernel_args *args,
                                            lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "cross_entropy";
    const lvn_tensor *logits = args->in[0];
    LVN_TRY(lvni_kernels_rule_float_params(op, args, 1, 12));
    LVN_TRY(labelled_rows(op, logits, args->in[1]));
    LVN_TRY(class_and_row_weights(op, args, 2, logits, args->in[1]));
    LVN_TRY(class_attribute(op, args->attr));
    const lvn_dtype of_sums = lvni_kernels_rule_weight_dtype(logits);
    out[0] = lvni_kernels_rule_make(of_sums, 0, NULL);
    out[1] = lvni_kernels_rule_make(of_sums, 2, (const int64_t[]){lvn_numel(args->in[1]), 2});
    return LVN_OK;
}

lvn_status lvni_kernels_shape_cross_entropy_grad(const lvn_kernel_args *args,
                                                 lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "cross_entropy_grad";
    const lvn_tensor *logits = args->in[1], *kept = args->in[2];
    LVN_TRY(lvni_kernels_rule_float_params(op, args, 2, 53));
    LVN_TRY(need_number(op, args->in[0]));
    LVN_TRY(labelled_rows(op, logits, args->in[3]));
    LVN_TRY(class_and_row_weights(op, args, 4, logits, args->in[3]));
    LVN_TRY(class_attribute(op, args->attr));
    if (kept->ndim != 2 || kept->shape[0] != lvn_numel(args->in[3]) || kept->shape[1] != 2) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: what the forward pass kept is %s, it must be a maximum and a log-sum for "
                 "each of %lld rows",
                 op, LVNI_SHAPE_TEXT(kept), (long long)lvn_numel(args->in[3]));
    }
    out[0] = lvni_tensor_get_desc(logits);
    return LVN_OK;
}

lvn_status lvni_kernels_shape_nll(const lvn_kernel_args *args,
                                  lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    LVN_TRY(lvni_kernels_rule_float("nll", args, 13));
    LVN_TRY(labelled_rows("nll", args->in[0], args->in[1]));
    LVN_TRY(class_and_row_weights("nll", args, 2, args->in[0], args->in[1]));
    out[0] = lvni_kernels_rule_make(args->in[0]->dtype, 0, NULL);
    return LVN_OK;
}

lvn_status lvni_kernels_shape_nll_grad(const lvn_kernel_args *args,
                                       lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "nll_grad";
    LVN_TRY(lvni_kernels_rule_float(op, args, 27));
    LVN_TRY(need_number(op, args->in[0]));
    LVN_TRY(labelled_rows(op, args->in[1], args->in[2]));
    LVN_TRY(class_and_row_weights(op, args, 3, args->in[1], args->in[2]));
    out[0] = lvni_tensor_get_desc(args->in[1]);
    return LVN_OK;
}

lvn_status lvni_kernels_shape_accuracy(const lvn_kernel_args *args,
                                       lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    LVN_TRY(lvni_kernels_rule_float("accuracy", args, 1));
    LVN_TRY(labelled_rows("accuracy", args->in[0], args->in[1]));
    out[0] = lvni_kernels_rule_make(lvni_kernels_rule_weight_dtype(args->in[0]), 0, NULL);
    return LVN_OK;
}

/* ---- losses element by element ---- */

/* Inputs first to first + 3: values, targets, weights (or NULL), positive weights (or NULL). */
static lvn_status pairs(const char *op, const lvn_kernel_args *args, int first)
{
    const lvn_point_loss_attr *attr = args->attr;
    const lvn_tensor *x = args->in[first], *weight = args->in[first + 2],
                     *positive = args->in[first + 3];
    LVN_TRY(lvni_kernels_rule_same(op, "the prediction", x, "the target", args->in[first + 1]));
    if (lvn_numel(x) == 0) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: the prediction is %s: a loss needs at least one value", op,
                 LVNI_SHAPE_TEXT(x));
    }
    if (weight != NULL) {
        LVN_TRY(lvni_kernels_rule_same(op, "the weight", weight, "the prediction", x));
    }
    if (positive != NULL && x->ndim < 1) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s: pos_weight has a value per class, the prediction is a single number", op);
    }
    LVN_ARG(attr->kind != LVN_LOSS_SMOOTH_L1 || attr->beta > 0.0,
            "%s: beta is %g, it must be above 0", op, attr->beta);
    return positive == NULL ? LVN_OK
                            : lvni_kernels_rule_vector(op, "pos_weight", positive,
                                                       x->shape[x->ndim - 1], "class", x);
}

lvn_status lvni_kernels_shape_point_loss(const lvn_kernel_args *args,
                                         lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    LVN_TRY(lvni_kernels_rule_float("point_loss", args, 15));
    LVN_TRY(pairs("point_loss", args, 0));
    out[0] = out[1] = lvni_kernels_rule_make(args->in[0]->dtype, 0, NULL);
    return LVN_OK;
}

lvn_status lvni_kernels_shape_point_loss_grad(const lvn_kernel_args *args,
                                              lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    LVN_TRY(lvni_kernels_rule_float("point_loss_grad", args, 63));
    LVN_TRY(need_number("point_loss_grad", args->in[0]));
    LVN_TRY(pairs("point_loss_grad", args, 2));
    out[0] = out[1] = lvni_tensor_get_desc(args->in[2]);
    return LVN_OK;
}

/* ---- lookups ---- */

static lvn_status need_table(const char *op, const char *what, const lvn_tensor *t)
{
    if (t->ndim != 2) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: %s is %s, it must have 2 axes (rows, features)", op, what,
                 LVNI_SHAPE_TEXT(t));
    }
    return LVN_OK;
}

lvn_status lvni_kernels_shape_embedding(const lvn_kernel_args *args,
                                        lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "embedding";
    const lvn_tensor *weight = args->in[0], *ids = args->in[1], *positions = args->in[2];
    LVN_TRY(lvni_kernels_rule_float(op, args, 5));
    LVN_TRY(lvni_kernels_rule_dtype(op, "the tensor of ids", ids, LVN_I64));
    LVN_TRY(need_table(op, "the weight", weight));
    if (ids->ndim >= LVN_MAX_NDIM) {
        LVN_FAIL(LVN_ERR_SHAPE, "%s: ids %s have %d axes; with features that is more than %d", op,
                 LVNI_SHAPE_TEXT(ids), ids->ndim, LVN_MAX_NDIM);
    }
    if (positions != NULL) {
        LVN_TRY(need_table(op, "the table of positions", positions));
        const int64_t length = ids->ndim == 0 ? 1 : ids->shape[ids->ndim - 1];
        if (positions->shape[1] != weight->shape[1] || positions->shape[0] < length) {
            LVN_FAIL(LVN_ERR_SHAPE,
                     "%s: the table of positions is %s; for ids %s and a weight %s it must be at "
                     "least (%lld, %lld)",
                     op, LVNI_SHAPE_TEXT(positions), LVNI_SHAPE_TEXT(ids), LVNI_SHAPE_TEXT(weight),
                     (long long)length, (long long)weight->shape[1]);
        }
    }
    out[0] = lvni_kernels_rule_make(weight->dtype, ids->ndim, ids->shape);
    out[0].shape[out[0].ndim++] = weight->shape[1];
    return LVN_OK;
}

lvn_status lvni_kernels_shape_embedding_grad(const lvn_kernel_args *args,
                                             lvni_tensor_desc out[LVN_KERNEL_OUTPUTS])
{
    static const char op[] = "embedding_grad";
    const lvn_tensor *dy = args->in[0], *ids = args->in[1];
    const lvn_lookup_attr *attr = args->attr;
    LVN_TRY(lvni_kernels_rule_float(op, args, 1));
    LVN_TRY(lvni_kernels_rule_dtype(op, "the tensor of ids", ids, LVN_I64));
    bool same = dy->ndim == ids->ndim + 1;
    for (int i = 0; same && i < ids->ndim; i++) {
        same = dy->shape[i] == ids->shape[i];
    }
    if (!same) {
        LVN_FAIL(
            LVN_ERR_SHAPE,
            "%s: dy is %s but the ids are %s; dy must have their shape and one axis of features",
            op, LVNI_SHAPE_TEXT(dy), LVNI_SHAPE_TEXT(ids));
    }
    const int64_t features = dy->shape[dy->ndim - 1];
    out[0] = lvni_kernels_rule_make(lvni_kernels_rule_weight_dtype(dy), 2,
                                    (const int64_t[]){attr->rows, features});
    out[1] = lvni_kernels_rule_make(lvni_kernels_rule_weight_dtype(dy), 2,
                                    (const int64_t[]){attr->positions, features});
    return LVN_OK;
}
