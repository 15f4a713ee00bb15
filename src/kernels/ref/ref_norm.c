/* Reference kernels: batch norm over all axes but the last, two passes (mean, then squared distances). */
#include "kernels/ref/ref_impl.h"

#include "core/math.h"

typedef struct rows {
    int64_t n, c; /* values per channel, channels */
} rows;

static rows make_rows(const lvn_tensor *x)
{
    rows r = {1, x->shape[x->ndim - 1]};
    for (int i = 0; i < x->ndim - 1; i++) {
        r.n *= x->shape[i];
    }
    return r;
}

lvn_status lvni_ref_batch_norm_train(const lvni_args *args)
{
    const lvni_norm_attr *attr = args->attr;
    const double *x = ref_in(args, 0), *gamma = ref_in(args, 1), *beta = ref_in(args, 2);
    double *y = ref_out(args, 0), *mean = ref_out(args, 1), *rstd = ref_out(args, 2),
           *unbiased = ref_out(args, 3);
    const rows r = make_rows(args->in[0]);
    for (int64_t c = 0; c < r.c; c++) {
        double sum = 0.0, squares = 0.0;
        for (int64_t n = 0; n < r.n; n++) {
            sum += x[n * r.c + c];
        }
        mean[c] = sum / (double)r.n;
        for (int64_t n = 0; n < r.n; n++) {
            const double d = x[n * r.c + c] - mean[c];
            squares += d * d;
        }
        rstd[c] = 1.0 / lvni_sqrt(squares / (double)r.n + attr->eps);
        unbiased[c] = squares / (double)(r.n - 1);
        for (int64_t n = 0; n < r.n; n++) {
            y[n * r.c + c] = (x[n * r.c + c] - mean[c]) * rstd[c] * gamma[c] + beta[c];
        }
    }
    return LVN_OK;
}

/* With xhat = (x - mean) rstd:  dbeta = sum dy,  dgamma = sum dy xhat,  dx = gamma rstd (dy - (dbeta + xhat
 * dgamma) / n) */
lvn_status lvni_ref_batch_norm_train_grad(const lvni_args *args)
{
    const double *dy = ref_in(args, 0), *x = ref_in(args, 1), *gamma = ref_in(args, 2),
                 *mean = ref_in(args, 3), *rstd = ref_in(args, 4);
    double *dx = ref_out(args, 0), *dgamma = ref_out(args, 1), *dbeta = ref_out(args, 2);
    const rows r = make_rows(args->in[1]);
    for (int64_t c = 0; c < r.c; c++) {
        dgamma[c] = 0.0;
        dbeta[c] = 0.0;
        for (int64_t n = 0; n < r.n; n++) {
            dgamma[c] += dy[n * r.c + c] * (x[n * r.c + c] - mean[c]) * rstd[c];
            dbeta[c] += dy[n * r.c + c];
        }
        for (int64_t n = 0; n < r.n; n++) {
            const double xhat = (x[n * r.c + c] - mean[c]) * rstd[c];
            dx[n * r.c + c] =
                gamma[c] * rstd[c] * (dy[n * r.c + c] - (dbeta[c] + xhat * dgamma[c]) / (double)r.n);
        }
    }
    return LVN_OK;
}

lvn_status lvni_ref_batch_norm_eval(const lvni_args *args)
{
    const lvni_norm_attr *attr = args->attr;
    const double *x = ref_in(args, 0), *gamma = ref_in(args, 1), *beta = ref_in(args, 2),
                 *mean = ref_in(args, 3), *variance = ref_in(args, 4);
    double *y = ref_out(args, 0);
    const rows r = make_rows(args->in[0]);
    for (int64_t e = 0; e < r.n * r.c; e++) {
        const int64_t c = e % r.c;
        y[e] = (x[e] - mean[c]) / lvni_sqrt(variance[c] + attr->eps) * gamma[c] + beta[c];
    }
    return LVN_OK;
}

/* Here mean and variance are constants. */
lvn_status lvni_ref_batch_norm_eval_grad(const lvni_args *args)
{
    const lvni_norm_attr *attr = args->attr;
    const double *dy = ref_in(args, 0), *x = ref_in(args, 1), *gamma = ref_in(args, 2),
                 *mean = ref_in(args, 3), *variance = ref_in(args, 4);
    double *dx = ref_out(args, 0), *dgamma = ref_out(args, 1), *dbeta = ref_out(args, 2);
    const rows r = make_rows(args->in[1]);
    for (int64_t c = 0; c < r.c; c++) {
        const double rstd = 1.0 / lvni_sqrt(variance[c] + attr->eps);
        dgamma[c] = 0.0;
        dbeta[c] = 0.0;
        for (int64_t n = 0; n < r.n; n++) {
            dgamma[c] += dy[n * r.c + c] * (x[n * r.c + c] - mean[c]) * rstd;
            dbeta[c] += dy[n * r.c + c];
            dx[n * r.c + c] = dy[n * r.c + c] * gamma[c] * rstd;
        }
    }
    return LVN_OK;
}
