/* Reference kernel: the discrete Fourier transform as the sum that defines it,
 *     y[k] = scale sum_j x[j] e^(-+ 2 pi i j k / n);
 * centered: with the number 0 of both sides in the middle of the line, at n / 2. */
#include "core/alloc.h"
#include "kernels/ref/ref_impl.h"

#include <math.h>

/* Element k of the line that starts at `x`; neighbours are `step` complex numbers apart.
 * turns: cosine and sine of each of the n parts of a circle. */
static void one_value(const lvn_fft_attr *a, const double *turns, const double *x, int64_t n,
                      int64_t step, int64_t k, double scale, double *re, double *im)
{
    const int64_t middle = a->centered ? n / 2 : 0;
    *re = *im = 0.0;
    for (int64_t j = 0; j < n; j++) {
        const int64_t part = (j + n - middle) % n * ((k + n - middle) % n) % n;
        const double c = turns[2 * part], s = turns[2 * part + 1];
        const double xr = x[2 * j * step], xi = x[2 * j * step + 1];
        *re += scale * (xr * c - xi * s);
        *im += scale * (xr * s + xi * c);
    }
}

/* Along the axis of length n behind which `step` complex numbers lie. */
static lvn_status along(const lvn_fft_attr *a, const double *x, double *y, int64_t count, int64_t n,
                        int64_t step, double scale)
{
    const double turn = 2.0 * 3.14159265358979323846 * (a->inverse ? 1.0 : -1.0) / (double)n;
    double *turns = lvni_core_alloc(LVNI_TAG_KERNEL, 2 * (size_t)n * sizeof *turns);
    if (turns == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t part = 0; part < n; part++) {
        turns[2 * part] = cos(turn * (double)part);
        turns[2 * part + 1] = sin(turn * (double)part);
    }
    for (int64_t e = 0; e < count; e++) {
        const int64_t k = e / step % n, line = e - k * step;
        one_value(a, turns, x + 2 * line, n, step, k, scale, &y[2 * e], &y[2 * e + 1]);
    }
    lvni_core_free(turns);
    return LVN_OK;
}

lvn_status lvni_ref_fft(const lvn_kernel_args *args)
{
    const lvn_fft_attr *attr = args->attr;
    const lvn_tensor *x = args->in[0];
    const int64_t count = lvn_numel(x) / 2, n = x->shape[x->ndim - 2];
    if (attr->axes == 1 || count == 0) {
        return along(attr, lvni_ref_in(args, 0), lvni_ref_out(args, 0), count, n, 1, attr->scale);
    }
    const lvni_tensor_desc desc = lvni_tensor_get_desc(x);
    lvn_tensor *half = lvni_tensor_new(&desc);
    if (half == NULL) {
        return lvn_last_error()->code;
    }
    lvn_status s = along(attr, lvni_ref_in(args, 0), half->data, count, n, 1, 1.0);
    if (s == LVN_OK) {
        s = along(attr, half->data, lvni_ref_out(args, 0), count, x->shape[x->ndim - 3], n,
                  attr->scale);
    }
    lvn_release(half);
    return s;
}
