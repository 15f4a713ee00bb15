/* Reference kernels: the windows of an image as rows of numbers, and back. Both visit the same
 * pairs of a window's number and a pixel, y[n][oh][ow][(kh KW + kw) C + c]  and  x[n][oh * stride -
 * padding + kh * dilation][..][c] (torch.nn.functional.unfold and fold, whose numbers are in the
 * order (c KH + kh) KW + kw). */
#include "kernels/ref/ref_impl.h"

/* The element of the image `x` under element e of the windows `y`; -1 in the padding. */
static int64_t under(int64_t e, const lvn_tensor *y, const lvn_tensor *x, const lvn_window_attr *a)
{
    const int64_t h = x->shape[1], w = x->shape[2], c = x->shape[3];
    int64_t at[LVN_MAX_NDIM] = {0}; /* n, oh, ow, number */
    lvni_ref_coordinates(e, y, at);
    const int64_t kh = at[3] / c / a->kernel[1], kw = at[3] / c % a->kernel[1];
    const int64_t row = at[1] * a->stride[0] - a->padding[0] + kh * a->dilation[0];
    const int64_t column = at[2] * a->stride[1] - a->padding[1] + kw * a->dilation[1];
    if (row < 0 || row >= h || column < 0 || column >= w) {
        return -1;
    }
    return ((at[0] * h + row) * w + column) * c + at[3] % c;
}

lvn_status lvni_ref_unfold(const lvn_kernel_args *args)
{
    const double *x = lvni_ref_in(args, 0);
    double *y = lvni_ref_out(args, 0);
    for (int64_t e = 0; e < lvn_numel(args->out[0]); e++) {
        const int64_t p = under(e, args->out[0], args->in[0], args->attr);
        y[e] = p < 0 ? 0.0 : x[p];
    }
    return LVN_OK;
}

lvn_status lvni_ref_fold(const lvn_kernel_args *args)
{
    const double *y = lvni_ref_in(args, 0);
    double *x = lvni_ref_out(args, 0);
    for (int64_t e = 0; e < lvn_numel(args->out[0]); e++) {
        x[e] = 0.0;
    }
    for (int64_t e = 0; e < lvn_numel(args->in[0]); e++) {
        const int64_t p = under(e, args->in[0], args->out[0], args->attr);
        if (p >= 0) {
            x[p] += y[e];
        }
    }
    return LVN_OK;
}
