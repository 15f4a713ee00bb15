/* Reference kernel: average pooling and resizing. Every output pixel is a sum over all input
 * pixels, each times its weight along the height times its weight along the width; the transposed
 * map exchanges the roles of input and output. */
#include "kernels/ref/ref_impl.h"

#include <math.h>

static double overlap(bool inside, double divisor)
{
    return inside ? 1.0 / divisor : 0.0;
}

/* Window [o stride - padding, + kernel), cut at the padded border; divided by its size, or by what
 * of it lies in the image. */
static double pool_weight(const lvn_resample_attr *a, int side, int64_t in, int64_t o, int64_t i)
{
    const int64_t padding = a->pool.padding[side], start = o * a->pool.stride[side] - padding;
    int64_t size = 0;
    for (int64_t k = start; k < start + a->pool.kernel[side]; k++) {
        size += a->exclude_padding ? k >= 0 && k < in : k < in + padding;
    }
    return overlap(i >= start && i < start + a->pool.kernel[side], (double)size);
}

/* Keys, Cubic convolution interpolation (1981). */
static double cubic(double d, double a)
{
    d = fabs(d);
    return d <= 1.0  ? (a + 2.0) * d * d * d - (a + 3.0) * d * d + 1.0
           : d < 2.0 ? a * d * d * d - 5.0 * a * d * d + 8.0 * a * d - 4.0 * a
                     : 0.0;
}

/* Pixels of the infinite image around `at`, whose border repeats, are weighed by their
 * distance. */
static double interpolated(bool bicubic, double at, int64_t in, int64_t i)
{
    double sum = 0.0;
    const int64_t near = (int64_t)floor(at);
    for (int64_t k = near - 1; k <= near + 2; k++) {
        const int64_t shown = k < 0 ? 0 : k >= in ? in - 1 : k;
        const double d = fabs(at - (double)k);
        sum += shown != i ? 0.0 : bicubic ? cubic(d, -0.75) : d < 1.0 ? 1.0 - d : 0.0;
    }
    return sum;
}

/* A filter around `centre` (pixel i is from i to i + 1), `wide` times as wide as that between
 * pixels; pixels whose middle is in it share a weight of 1. */
static double filtered(bool bicubic, double centre, double wide, int64_t in, int64_t i)
{
    const double support = (bicubic ? 2.0 : 1.0) * wide;
    double sum = 0.0, own = 0.0;
    for (int64_t k = 0; k < in; k++) {
        const bool inside =
            (double)k >= floor(centre - support + 0.5) && (double)k < floor(centre + support + 0.5);
        const double d = fabs((double)k - centre + 0.5) / wide,
                     w = bicubic ? cubic(d, -0.5) : fmax(0.0, 1.0 - d);
        sum += inside ? w : 0.0;
        own = inside && k == i ? w : own;
    }
    return own / sum;
}

/* The weight of input pixel i in output pixel o along one axis. */
static double weight(const lvn_resample_attr *a, int side, int64_t in, int64_t out, int64_t o,
                     int64_t i)
{
    const double scale = a->scale[side] > 0.0 ? 1.0 / a->scale[side] : (double)in / (double)out;
    switch (a->kind) {
    case LVN_RESAMPLE_AVG_POOL: return pool_weight(a, side, in, o, i);
    case LVN_RESAMPLE_ADAPTIVE_POOL: {
        const int64_t start = o * in / out, end = ((o + 1) * in + out - 1) / out;
        return overlap(i >= start && i < end, (double)(end - start));
    }
    case LVN_RESAMPLE_NEAREST: return overlap(i == o * in / out, 1.0);
    case LVN_RESAMPLE_BILINEAR:
    case LVN_RESAMPLE_BICUBIC: break;
    }
    if (a->antialias) {
        return filtered(a->kind == LVN_RESAMPLE_BICUBIC, ((double)o + 0.5) * scale,
                        fmax(1.0, scale), in, i);
    }
    const double corners = out > 1 ? (double)o * (double)(in - 1) / (double)(out - 1) : 0.0;
    return interpolated(a->kind == LVN_RESAMPLE_BICUBIC,
                        a->align_corners ? corners : ((double)o + 0.5) * scale - 0.5, in, i);
}

/* One pixel of y. */
static void pixel(const lvn_resample_attr *a, const lvn_tensor *x, const lvn_tensor *y, int64_t p,
                  const double *from, double *to)
{
    const int64_t h = x->shape[1], w = x->shape[2], c = x->shape[3], oh = y->shape[1],
                  ow = y->shape[2];
    const int64_t column = p % ow, row = p / ow % oh, n = p / ow / oh;
    for (int64_t k = 0; k < c; k++) {
        to[p * c + k] = 0.0;
    }
    for (int64_t i = 0; i < h; i++) {
        const double high =
            a->transposed ? weight(a, 0, oh, h, i, row) : weight(a, 0, h, oh, row, i);
        for (int64_t j = 0; j < w && high != 0.0; j++) {
            const double wide =
                a->transposed ? weight(a, 1, ow, w, j, column) : weight(a, 1, w, ow, column, j);
            for (int64_t k = 0; k < c && wide != 0.0; k++) {
                to[p * c + k] += high * wide * from[((n * h + i) * w + j) * c + k];
            }
        }
    }
}

lvn_status lvni_ref_resample2d(const lvn_kernel_args *args)
{
    const lvn_tensor *y = args->out[0];
    const int64_t pixels = y->shape[0] * y->shape[1] * y->shape[2];
    for (int64_t p = 0; p < pixels; p++) {
        pixel(args->attr, args->in[0], y, p, lvni_ref_in(args, 0), lvni_ref_out(args, 0));
    }
    return LVN_OK;
}
