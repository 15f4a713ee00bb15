/* Reference kernels: batch norm over all axes but the last, two passes (mean, then squared
 * distances); then perhaps a residual is added, then perhaps relu. */
#include "kernels/ref/ref_impl.h"

#include "core/math.h"

/* Of channel c: its mean, and the sum of squared distances to it. */
static double distances(const double *x, lvni_ref_rows r, int64_t c, double *mean)
{
    double sum = 0.0, squares = 0.0;
    for (int64_t n = 0; n < r.n; n++) {
        sum += x[n * r.k + c];
    }
    *mean = sum / (double)r.n;
    for (int64_t n = 0; n < r.n; n++) {
        const double d = x[n * r.k + c] - *mean;
        squares += d * d;
    }
    return squares;
}

/* What follows the norm: a residual (element e of it; NULL: none) and relu. */
static double finish(const lvn_norm_attr *attr, double value, const double *residual, int64_t e)
{
    if (residual != NULL) {
        value += residual[e];
    }
    return attr->relu && value < 0.0 ? 0.0 : value;
}

lvn_status lvni_ref_batch_norm_train(const lvn_kernel_args *args)
{
    const lvn_norm_attr *attr = args->attr;
    const double *x = lvni_ref_in(args, 0), *gamma = lvni_ref_in(args, 1),
                 *beta = lvni_ref_in(args, 2), *residual = lvni_ref_optional_in(args, 3);
    double *y = lvni_ref_out(args, 0), *mean = lvni_ref_out(args, 1), *rstd = lvni_ref_out(args, 2),
           *unbiased = lvni_ref_out(args, 3);
    const lvni_ref_rows r = lvni_ref_rows_of(args->in[0]);
    for (int64_t c = 0; c < r.k; c++) {
        const double squares = distances(x, r, c, &mean[c]);
        rstd[c] = 1.0 / lvni_core_sqrt(squares / (double)r.n + attr->eps);
        unbiased[c] = squares / (double)(r.n - 1);
        for (int64_t n = 0; n < r.n; n++) {
            const int64_t e = n * r.k + c;
            y[e] = finish(attr, (x[e] - mean[c]) * rstd[c] * gamma[c] + beta[c], residual, e);
        }
    }
    return LVN_OK;
}

lvn_status lvni_ref_batch_norm_eval(const lvn_kernel_args *args)
{
    const lvn_norm_attr *attr = args->attr;
    const double *x = lvni_ref_in(args, 0), *gamma = lvni_ref_in(args, 1),
                 *beta = lvni_ref_in(args, 2), *mean = lvni_ref_in(args, 3),
                 *variance = lvni_ref_in(args, 4), *residual = lvni_ref_optional_in(args, 5);
    double *y = lvni_ref_out(args, 0);
    const lvni_ref_rows r = lvni_ref_rows_of(args->in[0]);
    for (int64_t e = 0; e < r.n * r.k; e++) {
        const int64_t c = e % r.k;
        y[e] = finish(
            attr, (x[e] - mean[c]) / lvni_core_sqrt(variance[c] + attr->eps) * gamma[c] + beta[c],
            residual, e);
    }
    return LVN_OK;
}

/* The gradient behind relu: of y (or, when that is not given, of the value computed again) only the
 * sign counts. rstd is the channel's. */
static double behind_relu(const lvn_kernel_args *args, int place_of_y, int64_t e, int64_t c,
                          double rstd)
{
    const double *dy = lvni_ref_in(args, 0), *x = lvni_ref_in(args, 1),
                 *gamma = lvni_ref_in(args, 2), *mean = lvni_ref_in(args, 3),
                 *beta = lvni_ref_in(args, 5), *y = lvni_ref_optional_in(args, place_of_y);
    const lvn_norm_attr *attr = args->attr;
    const double value = y != NULL ? y[e] : (x[e] - mean[c]) * rstd * gamma[c] + beta[c];
    return !attr->relu || value > 0.0 ? dy[e] : 0.0;
}

/* With g the gradient behind relu and xhat = (x - mean) rstd: dbeta = sum g, dgamma = sum g xhat,
 * dresidual = g, and
 *   dx = gamma rstd (g - (dbeta + xhat dgamma) / n)   with the statistics of x,
 *   dx = gamma rstd g                                 with constant statistics. */
static void norm_grad_channel(const lvn_kernel_args *args, const lvni_ref_rows *r, int64_t c,
                              double rstd, bool constant)
{
    const double *x = lvni_ref_in(args, 1), *gamma = lvni_ref_in(args, 2),
                 *mean = lvni_ref_in(args, 3);
    double *dx = lvni_ref_out(args, 0), *dgamma = lvni_ref_optional_out(args, 1),
           *dbeta = lvni_ref_optional_out(args, 2), *dresidual = lvni_ref_optional_out(args, 3);
    double of_gamma = 0.0, of_beta = 0.0;
    for (int64_t n = 0; n < r->n; n++) {
        const int64_t e = n * r->k + c;
        const double g = behind_relu(args, 6, e, c, rstd);
        of_gamma += g * (x[e] - mean[c]) * rstd;
        of_beta += g;
        if (dresidual != NULL) {
            dresidual[e] = g;
        }
    }
    for (int64_t n = 0; n < r->n; n++) {
        const int64_t e = n * r->k + c;
        const double moved =
            constant ? 0.0 : (of_beta + (x[e] - mean[c]) * rstd * of_gamma) / (double)r->n;
        dx[e] = gamma[c] * rstd * (behind_relu(args, 6, e, c, rstd) - moved);
    }
    if (dgamma != NULL) {
        dgamma[c] = of_gamma;
    }
    if (dbeta != NULL) {
        dbeta[c] = of_beta;
    }
}

lvn_status lvni_ref_batch_norm_train_grad(const lvn_kernel_args *args)
{
    const double *rstd = lvni_ref_in(args, 4);
    const lvni_ref_rows r = lvni_ref_rows_of(args->in[1]);
    for (int64_t c = 0; c < r.k; c++) {
        norm_grad_channel(args, &r, c, rstd[c], false);
    }
    return LVN_OK;
}

lvn_status lvni_ref_batch_norm_eval_grad(const lvn_kernel_args *args)
{
    const lvn_norm_attr *attr = args->attr;
    const double *variance = lvni_ref_in(args, 4);
    const lvni_ref_rows r = lvni_ref_rows_of(args->in[1]);
    for (int64_t c = 0; c < r.k; c++) {
        norm_grad_channel(args, &r, c, 1.0 / lvni_core_sqrt(variance[c] + attr->eps), true);
    }
    return LVN_OK;
}

/* ---- in parts, for statistics of several micro-batches together ---- */

lvn_status lvni_ref_batch_norm_moments(const lvn_kernel_args *args)
{
    const double *x = lvni_ref_in(args, 0);
    double *mean = lvni_ref_out(args, 0);
    const lvni_ref_rows r = lvni_ref_rows_of(args->in[0]);
    double *variance = mean + r.k;
    for (int64_t c = 0; c < r.k; c++) {
        const double squares = distances(x, r, c, &mean[c]);
        variance[c] = squares / (double)r.n;
    }
    return LVN_OK;
}

lvn_status lvni_ref_batch_norm_sums(const lvn_kernel_args *args)
{
    const lvn_norm_attr *attr = args->attr;
    const double *x = lvni_ref_in(args, 1), *mean = lvni_ref_in(args, 3),
                 *variance = lvni_ref_in(args, 4);
    double *of_g = lvni_ref_out(args, 0), *kept = lvni_ref_optional_out(args, 1);
    const lvni_ref_rows r = lvni_ref_rows_of(args->in[1]);
    double *of_gx = of_g + r.k;
    for (int64_t c = 0; c < r.k; c++) {
        const double rstd = 1.0 / lvni_core_sqrt(variance[c] + attr->eps);
        of_g[c] = of_gx[c] = 0.0;
        for (int64_t n = 0; n < r.n; n++) {
            const int64_t e = n * r.k + c;
            const double g = behind_relu(args, 6, e, c, rstd);
            of_g[c] += g;
            of_gx[c] += g * (x[e] - mean[c]) * rstd;
            if (kept != NULL) {
                kept[e] = g;
            }
        }
    }
    return LVN_OK;
}

/* dx = gamma rstd (g - share of g - xhat share of g xhat) */
lvn_status lvni_ref_batch_norm_group_grad(const lvn_kernel_args *args)
{
    const lvn_norm_attr *attr = args->attr;
    const double *x = lvni_ref_in(args, 1), *gamma = lvni_ref_in(args, 2),
                 *mean = lvni_ref_in(args, 3), *variance = lvni_ref_in(args, 4),
                 *share = lvni_ref_in(args, 6);
    double *dx = lvni_ref_out(args, 0);
    const lvni_ref_rows r = lvni_ref_rows_of(args->in[1]);
    for (int64_t e = 0; e < r.n * r.k; e++) {
        const int64_t c = e % r.k;
        const double rstd = 1.0 / lvni_core_sqrt(variance[c] + attr->eps);
        const double moved = share[c] + (x[e] - mean[c]) * rstd * share[r.k + c];
        dx[e] = gamma[c] * rstd * (behind_relu(args, 7, e, c, rstd) - moved);
    }
    return LVN_OK;
}
