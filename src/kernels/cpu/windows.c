/* The windows of images (N, H, W, C) as rows of numbers, and each pixel's sum over its windows.
 * Called through the op table (kernels.h). A pixel gathers in the order of its places in the
 * windows, so teams change nothing. */
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

#include <string.h>

typedef struct window_job {
    const lvn_window_attr *a;
    int64_t h, w, c, oh, ow; /* of the image; windows */
    size_t pixel;            /* bytes of its channels */
    const char *x;
    char *y;
} window_job;

static window_job describe(const lvn_kernel_args *args, const lvn_tensor *image,
                           const lvn_tensor *windows)
{
    return (window_job){.a = args->attr,
                        .h = image->shape[1],
                        .w = image->shape[2],
                        .c = image->shape[3],
                        .oh = windows->shape[1],
                        .ow = windows->shape[2],
                        .pixel = (size_t)image->shape[3] * lvn_dtype_size(image->dtype),
                        .x = args->in[0]->data,
                        .y = args->out[0]->data};
}

static int64_t between(int64_t low, int64_t value, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Places of a window's row that begins at column `left` of an image's row (NULL: outside). */
static void copy_places(const window_job *j, const char *row, int64_t left, char *to)
{
    const int64_t n = j->a->kernel[1], step = j->a->dilation[1];
    if (row == NULL) {
        memset(to, 0, (size_t)n * j->pixel);
    } else if (step == 1) { /* the pixels lie side by side */
        const int64_t first = between(0, -left, n), last = between(first, j->w - left, n);
        memset(to, 0, (size_t)first * j->pixel);
        if (first < last) {
            memcpy(to + (size_t)first * j->pixel, row + (size_t)(left + first) * j->pixel,
                   (size_t)(last - first) * j->pixel);
        }
        memset(to + (size_t)last * j->pixel, 0, (size_t)(n - last) * j->pixel);
    } else {
        for (int64_t k = 0; k < n; k++, to += j->pixel) {
            const int64_t at = left + k * step;
            if (at >= 0 && at < j->w) {
                memcpy(to, row + (size_t)at * j->pixel, j->pixel);
            } else {
                memset(to, 0, j->pixel);
            }
        }
    }
}

/* An item is one row of an image's windows. */
static void unfold_range(const void *job, int64_t begin, int64_t end)
{
    const window_job *j = job;
    const lvn_window_attr *a = j->a;
    const size_t width = (size_t)j->w * j->pixel, places = (size_t)a->kernel[1] * j->pixel;
    for (int64_t item = begin; item < end; item++) {
        const char *image = j->x + (size_t)(item / j->oh * j->h) * width;
        const int64_t top = item % j->oh * a->stride[0] - a->padding[0];
        char *to = j->y + (size_t)(item * j->ow * a->kernel[0]) * places;
        for (int64_t o = 0; o < j->ow; o++) {
            for (int64_t k = 0; k < a->kernel[0]; k++, to += places) {
                const int64_t at = top + k * a->dilation[0];
                const bool inside = at >= 0 && at < j->h;
                copy_places(j, inside ? image + (size_t)at * width : NULL,
                            o * a->stride[1] - a->padding[1], to);
            }
        }
    }
}

lvn_status lvni_cpu_unfold(const lvn_kernel_args *args)
{
    const lvn_tensor *y = args->out[0];
    const window_job job = describe(args, args->in[0], y);
    if (lvn_numel(y) > 0) {
        lvni_cpu_par(y->shape[0] * job.oh, 1, job.ow * y->shape[3], unfold_range, &job);
    }
    return LVN_OK;
}

/* The window along an axis whose place k lies on pixel `at`; -1: none. */
static int64_t window_over(const window_job *j, int axis, int64_t at, int64_t k)
{
    const int64_t from = at + j->a->padding[axis] - k * j->a->dilation[axis],
                  stride = j->a->stride[axis];
    return from < 0 || from % stride != 0 || from / stride >= (axis == 0 ? j->oh : j->ow)
               ? -1
               : from / stride;
}

/* pixel (row, column) = the sum of its places in the windows of an image. */
static void sum_pixel(const window_job *j, int64_t row, int64_t column, const float *windows,
                      float *restrict pixel)
{
    const int64_t kw = j->a->kernel[1], numbers = j->a->kernel[0] * kw * j->c;
    for (int64_t i = 0; i < j->a->kernel[0]; i++) {
        const int64_t oh = window_over(j, 0, row, i);
        for (int64_t k = 0; k < kw && oh >= 0; k++) {
            const int64_t ow = window_over(j, 1, column, k);
            const float *from = windows + (oh * j->ow + ow) * numbers + (i * kw + k) * j->c;
            for (int64_t c = 0; c < j->c && ow >= 0; c++) {
                pixel[c] += from[c];
            }
        }
    }
}

/* An item is one row of an image. */
static void fold_range(const void *job, int64_t begin, int64_t end)
{
    const window_job *j = job;
    const int64_t image = j->oh * j->ow * j->a->kernel[0] * j->a->kernel[1] * j->c;
    for (int64_t item = begin; item < end; item++) {
        const float *windows = (const float *)(const void *)j->x + item / j->h * image;
        float *row = (float *)(void *)j->y + item * j->w * j->c;
        memset(row, 0, (size_t)j->w * j->pixel);
        for (int64_t w = 0; w < j->w; w++) {
            sum_pixel(j, item % j->h, w, windows, row + w * j->c);
        }
    }
}

lvn_status lvni_cpu_fold(const lvn_kernel_args *args)
{
    const lvn_tensor *x = args->in[0];
    const window_job job = describe(args, args->out[0], x);
    if (lvn_numel(args->out[0]) > 0) {
        lvni_cpu_par(x->shape[0] * job.h, 1, lvn_numel(x) / (x->shape[0] * job.h) + job.w * job.c,
                     fold_range, &job);
    }
    return LVN_OK;
}
