/* Reference kernels: losses. Of classes: cross entropy with label smoothing (Szegedy et al. 2016,
 * section 7), weights per class and per row, rows that count for nothing; negative log likelihood.
 * Element by element: squares, absolute values, smooth ones (Girshick 2015, eq. 3), binary cross
 * entropy of logits. */
#include "kernels/ref/ref_impl.h"

#include "core/math.h"

/* Inputs of a loss over classes. */
typedef struct classes {
    const char *op;
    const double *x, *class_weight, *row_weight; /* weights: NULL for ones */
    const int64_t *labels;
    int64_t rows, k;
    lvn_class_loss_attr attr;
} classes;

/* x, labels, class weights, row weights from input `first` on; `labels` one further when something
 * stands between. */
static classes describe(const char *op, const lvn_kernel_args *args, int x, int labels)
{
    const lvn_tensor *t = args->in[x];
    classes c = {.op = op,
                 .x = t->data,
                 .labels = args->in[labels]->data,
                 .class_weight = lvni_ref_optional_in(args, labels + 1),
                 .row_weight = lvni_ref_optional_in(args, labels + 2),
                 .k = t->shape[t->ndim - 1],
                 .attr = *(const lvn_class_loss_attr *)args->attr};
    c.rows = lvn_numel(t) / c.k;
    return c;
}

static lvn_status check_label(const classes *c, int64_t row)
{
    const int64_t label = c->labels[row];
    LVN_ARG(label == c->attr.ignore || (label >= 0 && label < c->k),
            "%s: the label of row %lld is %lld, but there are %lld classes (0 to %lld)", c->op,
            (long long)row, (long long)label, (long long)c->k, (long long)c->k - 1);
    return LVN_OK;
}

static double of_class(const classes *c, int64_t k)
{
    return c->class_weight == NULL ? 1.0 : c->class_weight[k];
}

/* 0 for a row that is ignored. */
static double of_row(const classes *c, int64_t row)
{
    return c->labels[row] == c->attr.ignore ? 0.0
           : c->row_weight == NULL          ? 1.0
                                            : c->row_weight[row];
}

/* What the sum over rows is divided by: the weights of the labels; 1 for a sum, and where all
 * weights are 0. */
static lvn_status divisor(const classes *c, double *d)
{
    double sum = 0.0;
    for (int64_t n = 0; n < c->rows; n++) {
        LVN_TRY(check_label(c, n));
        sum += of_row(c, n) == 0.0 ? 0.0 : of_row(c, n) * of_class(c, c->labels[n]);
    }
    *d = c->attr.sum || sum == 0.0 ? 1.0 : sum;
    return LVN_OK;
}

static void keep_sums(const double *x, int64_t k, double kept[2])
{
    double top = x[0], sum = 0.0;
    for (int64_t i = 1; i < k; i++) {
        top = x[i] > top || x[i] != x[i] ? x[i] : top;
    }
    for (int64_t i = 0; i < k; i++) {
        sum += lvni_core_exp(x[i] - top);
    }
    kept[0] = top;
    kept[1] = lvni_core_log(sum);
}

/* row weight * ((1 - s) w_label (-log p_label) + s / K sum_k w_k (-log p_k)) */
lvn_status lvni_ref_cross_entropy(const lvn_kernel_args *args)
{
    const classes c = describe("cross_entropy", args, 0, 1);
    double *kept = lvni_ref_out(args, 1), sum = 0.0, by;
    LVN_TRY(divisor(&c, &by));
    const double s = c.attr.smoothing;
    for (int64_t n = 0; n < c.rows; n++) {
        const double *x = c.x + n * c.k;
        keep_sums(x, c.k, kept + 2 * n);
        if (of_row(&c, n) == 0.0) {
            continue;
        }
        double all = 0.0;
        for (int64_t k = 0; k < c.k && s > 0.0; k++) {
            all -= of_class(&c, k) * (x[k] - kept[2 * n] - kept[2 * n + 1]);
        }
        const double label = -(x[c.labels[n]] - kept[2 * n] - kept[2 * n + 1]);
        sum +=
            of_row(&c, n) * ((1.0 - s) * of_class(&c, c.labels[n]) * label + s / (double)c.k * all);
    }
    *lvni_ref_out(args, 0) = sum / by;
    return LVN_OK;
}

/* in: dloss, logits, what the forward pass kept, labels, weights */
lvn_status lvni_ref_cross_entropy_grad(const lvn_kernel_args *args)
{
    const classes c = describe("cross_entropy_grad", args, 1, 3);
    const double *kept = lvni_ref_in(args, 2);
    double *dx = lvni_ref_out(args, 0), by;
    LVN_TRY(divisor(&c, &by));
    const double s = c.attr.smoothing;
    double all = 0.0; /* of the class weights */
    for (int64_t k = 0; k < c.k; k++) {
        all += of_class(&c, k);
    }
    for (int64_t n = 0; n < c.rows; n++) {
        const double factor =
            of_row(&c, n) == 0.0 ? 0.0 : *lvni_ref_in(args, 0) / by * of_row(&c, n);
        for (int64_t k = 0; k < c.k; k++) {
            const int64_t label = factor == 0.0 ? 0 : c.labels[n];
            const double p = lvni_core_exp(c.x[n * c.k + k] - kept[2 * n] - kept[2 * n + 1]);
            const double hard = of_class(&c, label) * (p - (k == label ? 1.0 : 0.0)),
                         soft = all * p - of_class(&c, k);
            dx[n * c.k + k] =
                factor == 0.0 ? 0.0 : factor * ((1.0 - s) * hard + s / (double)c.k * soft);
        }
    }
    return LVN_OK;
}

lvn_status lvni_ref_nll(const lvn_kernel_args *args)
{
    const classes c = describe("nll", args, 0, 1);
    double sum = 0.0, by;
    LVN_TRY(divisor(&c, &by));
    for (int64_t n = 0; n < c.rows; n++) {
        sum -= of_row(&c, n) == 0.0
                   ? 0.0
                   : of_row(&c, n) * of_class(&c, c.labels[n]) * c.x[n * c.k + c.labels[n]];
    }
    *lvni_ref_out(args, 0) = sum / by;
    return LVN_OK;
}

/* in: dloss, log-probabilities, labels, weights */
lvn_status lvni_ref_nll_grad(const lvn_kernel_args *args)
{
    const classes c = describe("nll_grad", args, 1, 2);
    double *dx = lvni_ref_out(args, 0), by;
    LVN_TRY(divisor(&c, &by));
    for (int64_t n = 0; n < c.rows; n++) {
        for (int64_t k = 0; k < c.k; k++) {
            const bool counts = of_row(&c, n) != 0.0 && k == c.labels[n];
            dx[n * c.k + k] =
                counts ? -*lvni_ref_in(args, 0) / by * of_row(&c, n) * of_class(&c, k) : 0.0;
        }
    }
    return LVN_OK;
}

/* ---- element by element ---- */

static double value(const lvn_point_loss_attr *a, double x, double t, double positive)
{
    const double d = x - t, size = d < 0.0 ? -d : d, low = x < 0.0 ? -x : 0.0;
    switch (a->kind) {
    case LVN_LOSS_SQUARE: return d * d;
    case LVN_LOSS_ABSOLUTE: return size;
    case LVN_LOSS_SMOOTH_L1: return size < a->beta ? 0.5 * d * d / a->beta : size - 0.5 * a->beta;
    case LVN_LOSS_BINARY: /* -positive t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)) */
        return (1.0 - t) * x + (1.0 + (positive - 1.0) * t) *
                                   (lvni_core_log1p(lvni_core_exp(x < 0.0 ? x : -x)) + low);
    }
    return 0.0;
}

/* d value / dx */
static double slope(const lvn_point_loss_attr *a, double x, double t, double positive)
{
    const double d = x - t;
    switch (a->kind) {
    case LVN_LOSS_SQUARE: return 2.0 * d;
    case LVN_LOSS_ABSOLUTE: return (d > 0.0) - (d < 0.0);
    case LVN_LOSS_SMOOTH_L1: return d >= a->beta ? 1.0 : d <= -a->beta ? -1.0 : d / a->beta;
    case LVN_LOSS_BINARY:
        return (1.0 - t) - (1.0 + (positive - 1.0) * t) / (1.0 + lvni_core_exp(x));
    }
    return 0.0;
}

lvn_status lvni_ref_point_loss(const lvn_kernel_args *args)
{
    const lvn_point_loss_attr *attr = args->attr;
    const double *x = lvni_ref_in(args, 0), *t = lvni_ref_in(args, 1),
                 *weight = lvni_ref_optional_in(args, 2), *positive = lvni_ref_optional_in(args, 3);
    const int64_t n = lvn_numel(args->in[0]),
                  k = args->in[0]->ndim == 0 ? 1 : args->in[0]->shape[args->in[0]->ndim - 1];
    double sum = 0.0, weights = 0.0;
    for (int64_t e = 0; e < n; e++) {
        const double w = weight == NULL ? 1.0 : weight[e];
        sum += w * value(attr, x[e], t[e], positive == NULL ? 1.0 : positive[e % k]);
        weights += attr->kind == LVN_LOSS_BINARY ? 1.0 : w;
    }
    const double by = attr->sum || weights == 0.0 ? 1.0 : weights;
    *lvni_ref_out(args, 0) = sum / by;
    *lvni_ref_out(args, 1) = by;
    return LVN_OK;
}

/* in: dloss, divisor, x, targets, weights, positive weights -> dx, dtargets (not of binary cross
 * entropy) */
lvn_status lvni_ref_point_loss_grad(const lvn_kernel_args *args)
{
    const lvn_point_loss_attr *attr = args->attr;
    const double *x = lvni_ref_in(args, 2), *t = lvni_ref_in(args, 3),
                 *weight = lvni_ref_optional_in(args, 4), *positive = lvni_ref_optional_in(args, 5);
    const int64_t n = lvn_numel(args->in[2]),
                  k = args->in[2]->ndim == 0 ? 1 : args->in[2]->shape[args->in[2]->ndim - 1];
    double *dx = lvni_ref_out(args, 0), *dt = lvni_ref_optional_out(args, 1);
    for (int64_t e = 0; e < n; e++) {
        const double factor =
            *lvni_ref_in(args, 0) / *lvni_ref_in(args, 1) * (weight == NULL ? 1.0 : weight[e]);
        dx[e] = factor * slope(attr, x[e], t[e], positive == NULL ? 1.0 : positive[e % k]);
        if (dt != NULL) {
            dt[e] = -dx[e];
        }
    }
    return LVN_OK;
}
