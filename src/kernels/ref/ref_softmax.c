/* Reference kernels: softmax and log-softmax over the last axis, accuracy. */
#include "kernels/ref/ref_impl.h"

#include "core/math.h"

/* The first maximum; NaN is the greatest. k >= 1. */
static int64_t argmax(const double *x, int64_t k)
{
    int64_t best = 0;
    for (int64_t i = 1; i < k; i++) {
        if (x[i] > x[best] || (x[i] != x[i] && x[best] == x[best])) {
            best = i;
        }
    }
    return best;
}

static void softmax_row(const double *x, double *y, int64_t k)
{
    const double top = x[argmax(x, k)];
    double sum = 0.0;
    for (int64_t i = 0; i < k; i++) {
        y[i] = lvni_core_exp(x[i] - top);
        sum += y[i];
    }
    for (int64_t i = 0; i < k; i++) {
        y[i] /= sum;
    }
}

static void log_softmax_row(const double *x, double *y, int64_t k)
{
    const double top = x[argmax(x, k)];
    double sum = 0.0;
    for (int64_t i = 0; i < k; i++) {
        sum += lvni_core_exp(x[i] - top);
    }
    const double log_sum = lvni_core_log(sum);
    for (int64_t i = 0; i < k; i++) {
        y[i] = x[i] - top - log_sum;
    }
}

lvn_status lvni_ref_softmax(const lvn_kernel_args *args)
{
    const lvni_ref_rows r = lvni_ref_rows_of(args->in[0]);
    for (int64_t n = 0; n < r.n && r.k > 0; n++) {
        softmax_row(lvni_ref_in(args, 0) + n * r.k, lvni_ref_out(args, 0) + n * r.k, r.k);
    }
    return LVN_OK;
}

lvn_status lvni_ref_log_softmax(const lvn_kernel_args *args)
{
    const lvni_ref_rows r = lvni_ref_rows_of(args->in[0]);
    for (int64_t n = 0; n < r.n && r.k > 0; n++) {
        log_softmax_row(lvni_ref_in(args, 0) + n * r.k, lvni_ref_out(args, 0) + n * r.k, r.k);
    }
    return LVN_OK;
}

lvn_status lvni_ref_softmax_grad(const lvn_kernel_args *args)
{
    const double *dy = lvni_ref_in(args, 0), *y = lvni_ref_in(args, 1);
    double *dx = lvni_ref_out(args, 0);
    const lvni_ref_rows r = lvni_ref_rows_of(args->in[0]);
    for (int64_t n = 0; n < r.n; n++) {
        double sum = 0.0;
        for (int64_t i = n * r.k; i < (n + 1) * r.k; i++) {
            sum += dy[i] * y[i];
        }
        for (int64_t i = n * r.k; i < (n + 1) * r.k; i++) {
            dx[i] = y[i] * (dy[i] - sum);
        }
    }
    return LVN_OK;
}

lvn_status lvni_ref_log_softmax_grad(const lvn_kernel_args *args)
{
    const double *dy = lvni_ref_in(args, 0), *y = lvni_ref_in(args, 1);
    double *dx = lvni_ref_out(args, 0);
    const lvni_ref_rows r = lvni_ref_rows_of(args->in[0]);
    for (int64_t n = 0; n < r.n; n++) {
        double sum = 0.0;
        for (int64_t i = n * r.k; i < (n + 1) * r.k; i++) {
            sum += dy[i];
        }
        for (int64_t i = n * r.k; i < (n + 1) * r.k; i++) {
            dx[i] = dy[i] - lvni_core_exp(y[i]) * sum;
        }
    }
    return LVN_OK;
}

/* ---- accuracy ---- */

lvn_status lvni_ref_accuracy(const lvn_kernel_args *args)
{
    const double *x = lvni_ref_in(args, 0);
    const int64_t *labels = args->in[1]->data;
    const lvni_ref_rows r = lvni_ref_rows_of(args->in[0]);
    int64_t right = 0;
    for (int64_t n = 0; n < r.n; n++) {
        right += argmax(x + n * r.k, r.k) == labels[n] ? 1 : 0;
    }
    *lvni_ref_out(args, 0) = (double)right / (double)r.n;
    return LVN_OK;
}
