/* The input gradient of a convolution over few channels (a picture's three, a sensor's one), where oneDNN's own reaches a sixth of the
 * machine: one matrix product dy (pixels, O) w (O, KH KW I) gives the columns, what each window adds to its pixels, and every row of dx
 * collects its part of them in a fixed order. Called by onednn_conv.c; also the forward pass of a transposed convolution to few channels. */
#include "kernels/cpu/conv_columns.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"

#include <string.h>

/* Floats of columns at a time: a share of the caches of a few cores. Part of the law, for it cuts the product. */
enum { COLUMNS = 1 << 20, FEW_CHANNELS = 4 };

typedef struct collect_job {
    const lvni_conv_attr *attr;
    lvni_windows windows; /* all but columns */
    int64_t h, w, oh, kh; /* rows and columns of dx, rows of dy, rows of the window */
    const float *columns;
    float *dx;
} collect_job;

bool lvni_conv_columns_pay(const lvni_conv_attr *attr, const lvn_tensor *dy, const lvn_tensor *w)
{
    const int64_t taps = w->shape[1] * w->shape[2];
    return attr->groups == 1 && attr->dilation[1] == 1 && w->shape[3] <= FEW_CHANNELS && taps > 1 && dy->dtype == LVN_F32 &&
           w->dtype == LVN_F32;
}

/* An item is one row of dx: zero, then the windows of every row of the kernel that reaches it, from the top. */
static void collect_range(const void *job, int64_t begin, int64_t end)
{
    const collect_job *j = job;
    const lvni_conv_attr *a = j->attr;
    const int64_t row = j->w * j->windows.c, line = j->windows.n * j->windows.step;
    for (int64_t r = begin; r < end; r++) {
        float *dx = j->dx + r * row;
        memset(dx, 0, (size_t)row * sizeof *dx);
        for (int64_t kh = 0; kh < j->kh; kh++) {
            const int64_t above = r % j->h + a->padding[0] - kh * a->dilation[0], oh = above / a->stride[0];
            if (above < 0 || above % a->stride[0] != 0 || oh >= j->oh) {
                continue;
            }
            lvni_windows windows = j->windows;
            windows.x = j->columns + (r / j->h * j->oh + oh) * line + kh * windows.kernel * windows.c;
            lvni_cpu_isa()->add_windows(&windows, j->w, dx);
        }
    }
}

/* columns (rows, n) = dy (rows, k) w (k, n) */
static lvn_status product(const float *dy, const lvn_tensor *w, float *columns, int64_t rows, int64_t k, int64_t n)
{
    lvn_tensor a = {.dtype = LVN_F32, .ndim = 2, .param = -1, .shape = {rows, k}}, b = *w, y = {.dtype = LVN_F32, .ndim = 2, .shape = {rows, n}};
    union { const float *read; void *data; } source = {.read = dy};
    a.data = source.data;
    b.ndim = 2;
    b.shape[1] = n;
    y.data = columns;
    return lvni_cpu_matmul(&(lvni_args){.in = {&a, &b}, .out = {&y}, .attr = &(lvni_matmul_attr){.trans_a = false}});
}

lvn_status lvni_conv_columns_grad_input(const lvni_conv_attr *attr, const lvn_tensor *dy, const lvn_tensor *w, lvn_tensor *dx)
{
    const int64_t pixels = dy->shape[1] * dy->shape[2], n = w->shape[1] * w->shape[2] * w->shape[3];
    const int64_t fit = COLUMNS / (pixels * n), block = fit < 1 ? 1 : fit < dy->shape[0] ? fit : dy->shape[0];
    float *columns = lvni_scratch(LVNI_SCRATCH_OWN, (size_t)(block * pixels * n) * sizeof *columns);
    if (columns == NULL) {
        return lvn_last_error()->code;
    }
    collect_job job = {.attr = attr, .h = dx->shape[1], .w = dx->shape[2], .oh = dy->shape[1], .kh = w->shape[1], .columns = columns,
                       .windows = {.n = dy->shape[2], .step = n, .kernel = w->shape[2], .stride = attr->stride[1],
                                   .padding = attr->padding[1], .c = dx->shape[3]}};
    for (int64_t first = 0; first < dy->shape[0]; first += block) {
        const int64_t images = dy->shape[0] - first < block ? dy->shape[0] - first : block;
        LVN_TRY(product(LVNI_CF32(dy) + first * pixels * dy->shape[3], w, columns, images * pixels, dy->shape[3], n));
        job.dx = LVNI_F32(dx) + first * job.h * job.w * job.windows.c;
        lvni_par(images * job.h, 1, job.windows.n * n / attr->stride[0], collect_range, &job);
    }
    return LVN_OK;
}
