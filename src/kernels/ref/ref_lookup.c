/* Reference kernels: rows looked up in a table, plus the row of their position; and the gradient, a
 * sum per row. */
#include "kernels/ref/ref_impl.h"

static lvn_status check_id(const char *op, const lvn_tensor *ids, int64_t i, int64_t rows)
{
    const int64_t id = ((const int64_t *)ids->data)[i];
    LVN_ARG(id >= 0 && id < rows,
            "%s: id %lld at place %lld is not a row of the table, which has %lld (0 to %lld)", op,
            (long long)id, (long long)i, (long long)rows, (long long)rows - 1);
    return LVN_OK;
}

static int64_t length_of(const lvn_tensor *ids)
{
    return ids->ndim == 0 ? 1 : ids->shape[ids->ndim - 1];
}

lvn_status lvni_ref_embedding(const lvn_kernel_args *args)
{
    const lvn_tensor *weight = args->in[0], *ids = args->in[1];
    const double *w = weight->data, *positions = lvni_ref_optional_in(args, 2);
    double *y = lvni_ref_out(args, 0);
    const int64_t features = weight->shape[1], length = length_of(ids);
    for (int64_t i = 0; i < lvn_numel(ids); i++) {
        LVN_TRY(check_id("embedding", ids, i, weight->shape[0]));
        const int64_t id = ((const int64_t *)ids->data)[i];
        for (int64_t f = 0; f < features; f++) {
            y[i * features + f] = w[id * features + f] +
                                  (positions == NULL ? 0.0 : positions[i % length * features + f]);
        }
    }
    return LVN_OK;
}

static void clear(lvn_tensor *t)
{
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        ((double *)t->data)[e] = 0.0;
    }
}

lvn_status lvni_ref_embedding_grad(const lvn_kernel_args *args)
{
    const lvn_lookup_attr *attr = args->attr;
    const lvn_tensor *ids = args->in[1];
    const double *dy = lvni_ref_in(args, 0);
    double *dw = lvni_ref_out(args, 0), *dpositions = lvni_ref_optional_out(args, 1);
    const int64_t features = args->out[0]->shape[1], length = length_of(ids);
    if (!attr->add) {
        clear(args->out[0]);
    }
    if (dpositions != NULL) {
        clear(args->out[1]);
    }
    for (int64_t i = 0; i < lvn_numel(ids); i++) {
        LVN_TRY(check_id("embedding_grad", ids, i, attr->rows));
        const int64_t id = ((const int64_t *)ids->data)[i];
        for (int64_t f = 0; f < features; f++) {
            dw[id * features + f] += dy[i * features + f];
            if (dpositions != NULL) {
                dpositions[i % length * features + f] += dy[i * features + f];
            }
        }
    }
    return LVN_OK;
}
