/* Windows cut out of images and added back (conv_columns.h). */
#include "kernels/cpu/conv_columns.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"

#include <string.h>

typedef struct cut_job {
    const lvni_cpu_conv_columns *c;
    const char *x;
    char *columns;
    int64_t pixel; /* bytes of one */
} cut_job;

/* The kw pixels from `left` on of an image's row, zero where there are none. */
static void cut_run(const cut_job *j, const char *row, int64_t left, char *to)
{
    const int64_t w = j->c->w, kw = j->c->kw, first = left < 0 ? (-left < kw ? -left : kw) : 0;
    int64_t last = w - left < kw ? w - left : kw;
    last = last < first ? first : last;
    memset(to, 0, (size_t)(first * j->pixel));
    memcpy(to + first * j->pixel, row + (left + first) * j->pixel,
           (size_t)((last - first) * j->pixel));
    memset(to + last * j->pixel, 0, (size_t)((kw - last) * j->pixel));
}

/* The same with holes between the pixels. */
static void cut_dilated(const cut_job *j, const char *row, int64_t left, char *to)
{
    for (int64_t k = 0; k < j->c->kw; k++, to += j->pixel) {
        const int64_t iw = left + k * j->c->attr->dilation[1];
        if (iw < 0 || iw >= j->c->w) {
            memset(to, 0, (size_t)j->pixel);
        } else {
            memcpy(to, row + iw * j->pixel, (size_t)j->pixel);
        }
    }
}

/* An item is one row of windows. */
static void cut_range(const void *job, int64_t begin, int64_t end)
{
    const cut_job *j = job;
    const lvni_cpu_conv_columns *c = j->c;
    const lvn_conv_attr *a = c->attr;
    const int64_t run = c->kw * j->pixel;
    for (int64_t r = begin; r < end; r++) {
        char *to = j->columns + r * c->ow * c->kh * run;
        for (int64_t ow = 0; ow < c->ow; ow++) {
            for (int64_t kh = 0; kh < c->kh; kh++, to += run) {
                const int64_t ih = r % c->oh * a->stride[0] - a->padding[0] + kh * a->dilation[0];
                if (ih < 0 || ih >= c->h) {
                    memset(to, 0, (size_t)run);
                } else {
                    (a->dilation[1] == 1 ? cut_run : cut_dilated)(
                        j, j->x + (r / c->oh * c->h + ih) * c->w * j->pixel,
                        ow * a->stride[1] - a->padding[1], to);
                }
            }
        }
    }
}

void lvni_cpu_conv_columns_cut(const lvni_cpu_conv_columns *c, const void *x, void *columns,
                               int64_t images, int64_t bytes)
{
    const cut_job job = {.c = c, .x = x, .columns = columns, .pixel = c->c * bytes};
    lvni_cpu_par(images * c->oh, 1, c->ow * c->kh * c->kw * c->c, cut_range, &job);
}

typedef struct add_job {
    const lvni_cpu_conv_columns *c;
    lvni_cpu_windows windows; /* all but x */
    const float *columns;
    float *sums;
    uint16_t *rounded; /* NULL: the sums are the result */
} add_job;

/* Adds one row of a kernel's windows at `x`: as runs of pixels, or pixel by pixel. */
static void add_row(const add_job *j, const float *x, float *sums)
{
    const lvni_cpu_conv_columns *c = j->c;
    lvni_cpu_windows windows = j->windows;
    windows.x = x;
    if (c->attr->dilation[1] == 1) {
        lvni_cpu_isa()->add_windows(&windows, c->w, sums);
        return;
    }
    windows.kernel = 1;
    for (int64_t k = 0; k < c->kw; k++, windows.x += c->c) {
        windows.padding = c->attr->padding[1] - k * c->attr->dilation[1];
        lvni_cpu_isa()->add_windows(&windows, c->w, sums);
    }
}

/* An item is one row of an image: zero, then the windows of every row of the kernel that reaches
 * it, from the top. */
static void add_range(const void *job, int64_t begin, int64_t end)
{
    const add_job *j = job;
    const lvni_cpu_conv_columns *c = j->c;
    const lvn_conv_attr *a = c->attr;
    const int64_t row = c->w * c->c, line = j->windows.n * j->windows.step;
    for (int64_t r = begin; r < end; r++) {
        float *sums = j->sums + r * row;
        memset(sums, 0, (size_t)row * sizeof *sums);
        for (int64_t kh = 0; kh < c->kh; kh++) {
            const int64_t above = r % c->h + a->padding[0] - kh * a->dilation[0],
                          oh = above / a->stride[0];
            if (above < 0 || above % a->stride[0] != 0 || oh >= c->oh) {
                continue;
            }
            add_row(j, j->columns + (r / c->h * c->oh + oh) * line + kh * c->kw * c->c, sums);
        }
        if (j->rounded != NULL) {
            lvni_cpu_isa()->to_bf16(sums, j->rounded + r * row, row);
        }
    }
}

void lvni_cpu_conv_columns_add(const lvni_cpu_conv_columns *c, const float *columns, void *x,
                               int64_t images, bool low, float *wide)
{
    const lvn_conv_attr *a = c->attr;
    const add_job job = {.c = c,
                         .columns = columns,
                         .sums = low ? wide : x,
                         .rounded = low ? x : NULL,
                         .windows = {.n = c->ow,
                                     .step = c->kh * c->kw * c->c,
                                     .kernel = c->kw,
                                     .stride = a->stride[1],
                                     .padding = a->padding[1],
                                     .c = c->c}};
    lvni_cpu_par(images * c->h, 1, c->ow * c->kh * c->kw * c->c / a->stride[0], add_range, &job);
}
