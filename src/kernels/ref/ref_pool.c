/* Reference kernels: max pooling. Padding is minus infinity: it is never chosen, since every window
 * holds a pixel. */
#include "kernels/ref/ref_impl.h"

/* The image element under place k of the window of output element e; -1 in the padding. */
static int64_t under(int64_t e, int64_t k, const lvn_tensor *y, int64_t h, int64_t w,
                     const lvn_pool_attr *a)
{
    int64_t at[LVN_MAX_NDIM] = {0}; /* n, oh, ow, c */
    lvni_ref_coordinates(e, y, at);
    const int64_t row = at[1] * a->stride[0] - a->padding[0] + k / a->kernel[1];
    const int64_t column = at[2] * a->stride[1] - a->padding[1] + k % a->kernel[1];
    if (row < 0 || row >= h || column < 0 || column >= w) {
        return -1;
    }
    return ((at[0] * h + row) * w + column) * y->shape[3] + at[3];
}

lvn_status lvni_ref_max_pool2d(const lvn_kernel_args *args)
{
    const lvn_pool_attr *attr = args->attr;
    const lvn_tensor *in = args->in[0], *out = args->out[0];
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    uint8_t *place = args->out[1] == NULL ? NULL : args->out[1]->data;
    const int64_t n = lvn_numel(out), places = (int64_t)attr->kernel[0] * attr->kernel[1];
    for (int64_t e = 0; e < n; e++) {
        int64_t best = -1;
        for (int64_t k = 0; k < places; k++) {
            const int64_t p = under(e, k, out, in->shape[1], in->shape[2], attr);
            if (p < 0) {
                continue;
            }
            if (best < 0 || x[p] > y[e] ||
                (x[p] != x[p] && y[e] == y[e])) { /* NaN is the greatest, the first wins */
                best = k;
                y[e] = x[p];
            }
        }
        if (place != NULL) {
            place[e] = (uint8_t)best;
        }
    }
    return LVN_OK;
}

lvn_status lvni_ref_max_pool2d_grad(const lvn_kernel_args *args)
{
    const lvn_pool_attr *attr = args->attr;
    const lvn_tensor *in = args->in[0];
    const double *dy = lvni_ref_in(args, 0);
    const uint8_t *place = args->in[1]->data;
    double *dx = lvni_ref_out(args, 0);
    const int64_t n = lvn_numel(in), n_dx = lvn_numel(args->out[0]);
    for (int64_t e = 0; e < n_dx; e++) {
        dx[e] = 0.0;
    }
    for (int64_t e = 0; e < n; e++) {
        const int64_t p = under(e, place[e], in, attr->in_h, attr->in_w, attr);
        LVN_ARG(p >= 0, "max_pool2d_grad: place %d of element %lld is in the padding", place[e],
                (long long)e);
        dx[p] += dy[e];
    }
    return LVN_OK;
}
