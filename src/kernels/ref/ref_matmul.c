/* Reference kernels: matrix product and linear layer. */
#include "kernels/ref/ref_impl.h"

static void product(const double *a, const double *b, double *y, int64_t m, int64_t n,
                    int64_t terms, const lvn_matmul_attr *attr)
{
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < terms; k++) {
                sum += a[attr->trans_a ? k * m + i : i * terms + k] *
                       b[attr->trans_b ? j * terms + k : k * n + j];
            }
            y[i * n + j] = sum;
        }
    }
}

lvn_status lvni_ref_matmul(const lvn_kernel_args *args)
{
    const lvn_matmul_attr *attr = args->attr;
    const lvn_tensor *a = args->in[0], *y = args->out[0];
    const int row = a->ndim - 2, column = a->ndim - 1;
    const int64_t m = y->shape[row], n = y->shape[column],
                  terms = a->shape[attr->trans_a ? row : column];
    const int64_t batches = m * n == 0 ? 0 : lvn_numel(y) / (m * n);
    for (int64_t i = 0; i < batches; i++) {
        product(lvni_ref_in(args, 0) + i * m * terms, lvni_ref_in(args, 1) + i * terms * n,
                lvni_ref_out(args, 0) + i * m * n, m, n, terms, attr);
    }
    return LVN_OK;
}

/* y[n][o] = sum over i of x[n][i] w[o][i], plus b[o] */
lvn_status lvni_ref_linear(const lvn_kernel_args *args)
{
    const double *x = lvni_ref_in(args, 0), *w = lvni_ref_in(args, 1),
                 *bias = lvni_ref_optional_in(args, 2);
    double *y = lvni_ref_out(args, 0);
    const int64_t rows = args->in[0]->shape[0], features = args->in[0]->shape[1],
                  outputs = args->in[1]->shape[0];
    for (int64_t n = 0; n < rows; n++) {
        for (int64_t o = 0; o < outputs; o++) {
            double sum = bias == NULL ? 0.0 : bias[o];
            for (int64_t i = 0; i < features; i++) {
                sum += x[n * features + i] * w[o * features + i];
            }
            y[n * outputs + o] = sum;
        }
    }
    return LVN_OK;
}

/* dx[n][i] = sum over o of dy[n][o] w[o][i] */
lvn_status lvni_ref_linear_grad_input(const lvn_kernel_args *args)
{
    const lvn_tensor *dy = args->in[0], *w = args->in[1];
    product(lvni_ref_in(args, 0), lvni_ref_in(args, 1), lvni_ref_out(args, 0), dy->shape[0],
            w->shape[1], dy->shape[1], &(lvn_matmul_attr){.trans_a = false});
    return LVN_OK;
}

/* dw[o][i] = sum over n of dy[n][o] x[n][i]; db[o] = sum over n of dy[n][o] */
lvn_status lvni_ref_linear_grad_weight(const lvn_kernel_args *args)
{
    const double *dy = lvni_ref_in(args, 0), *x = lvni_ref_in(args, 1);
    double *dw = lvni_ref_out(args, 0), *db = lvni_ref_optional_out(args, 1);
    const int64_t rows = args->in[0]->shape[0], outputs = args->in[0]->shape[1],
                  features = args->in[1]->shape[1];
    for (int64_t o = 0; o < outputs; o++) {
        for (int64_t i = 0; i < features; i++) {
            double sum = 0.0;
            for (int64_t n = 0; n < rows; n++) {
                sum += dy[n * outputs + o] * x[n * features + i];
            }
            dw[o * features + i] = sum;
        }
        double sum = 0.0;
        for (int64_t n = 0; n < rows && db != NULL; n++) {
            sum += dy[n * outputs + o];
        }
        if (db != NULL) {
            db[o] = sum;
        }
    }
    return LVN_OK;
}
