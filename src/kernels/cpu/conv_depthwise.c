/* The weight gradient of depthwise convolutions (conv_product.h): each channel has windows of its
 * own, and is a lane of a vector. oneDNN's goes through one channel at a time, and takes several
 * times as long.
 *
 * An item is a row of the window of 16 channels; the rows of a window go over the images together.
 * Pixels of CHUNK columns are copied side by side, with zeros where a window leaves the image, and
 * stay in the cache for all rows of the window. Sums are added up for each image by columns and
 * rows, and those of the images in their order, so teams change nothing. */
#include "kernels/cpu/conv_product.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"

#include <string.h>

enum { LANES = 16, CHUNK = 32, MOST_STRIDE = 2, TAPS = LVNI_DEPTHWISE_TAPS };
enum { WIDEST = (CHUNK - 1) * MOST_STRIDE + TAPS, HELD = 8 /* rows, at least TAPS */ };

bool lvni_cpu_conv_depthwise_grad_weight_fits(const lvni_cpu_conv_call *c)
{
    const lvn_conv_attr *a = c->attr;
    const int64_t channels = c->x->shape[3], kh = c->w->shape[1], kw = c->w->shape[2];
    return a->groups == channels && c->y->shape[3] == channels && channels > 1 &&
           c->x->dtype == LVN_F32 && c->y->dtype == LVN_F32 && kh <= TAPS &&
           (kw == 3 || kw == 5 || kw == TAPS) && a->stride[1] <= MOST_STRIDE &&
           a->dilation[0] == 1 && a->dilation[1] == 1;
}

typedef struct depthwise_job {
    const lvn_conv_attr *attr;
    const float *x, *dy;
    float *dw; /* (C, KH, KW) */
    int64_t n, h, w, oh, ow, c, kh, kw;
} depthwise_job;

/* Rows [first, last) of the window of 16 channels. */
typedef struct window_rows {
    int64_t from, first, last;                                /* from: the first channel */
    float sum[TAPS][TAPS * LANES], total[TAPS][TAPS * LANES]; /* of an image, of all */
    /* columns of x: row h is in held[h % HELD], when there[h % HELD] is h */
    int64_t there[HELD];
    float held[HELD][WIDEST * LANES];
} window_rows;

/* Pixels [first, first + n) of a row of `width`, `channels` of each from `from` on, as 16. */
static void copy_pixels(const depthwise_job *j, const float *row, int64_t first, int64_t n,
                        int64_t width, int64_t from, float *to)
{
    const int64_t channels = j->c - from < LANES ? j->c - from : LANES;
    for (int64_t i = 0; i < n; i++, to += LANES) {
        const int64_t at = first + i;
        const bool inside = at >= 0 && at < width;
        if (inside && channels == LANES) {
            memcpy(to, row + at * j->c + from, LANES * sizeof *to);
        } else {
            memset(to, 0, LANES * sizeof *to);
            memcpy(to, row + (inside ? at * j->c + from : 0),
                   (size_t)(inside ? channels : 0) * sizeof *to);
        }
    }
}

/* What row h of an image has to give to the windows of CHUNK columns from `begin` on. */
static const float *hold_row(const depthwise_job *j, window_rows *r, const float *image, int64_t h,
                             int64_t begin, int64_t n)
{
    const int64_t slot = h % HELD;
    if (r->there[slot] != h) {
        r->there[slot] = h;
        copy_pixels(j, image + h * j->w * j->c, begin * j->attr->stride[1] - j->attr->padding[1],
                    (n - 1) * j->attr->stride[1] + j->kw, j->w, r->from, r->held[slot]);
    }
    return r->held[slot];
}

/* The windows of columns [begin, begin + n) of an image. */
static void add_columns(const depthwise_job *j, window_rows *r, const float *image,
                        const float *dy_image, int64_t begin, int64_t n)
{
    float dy[CHUNK * LANES];
    lvni_cpu_depthwise_row row = {
        .dy = dy, .n = n, .stride = (int64_t)j->attr->stride[1] * LANES, .taps = (int)j->kw};
    for (int i = 0; i < HELD; i++) {
        r->there[i] = -1;
    }
    for (int64_t oh = 0; oh < j->oh; oh++) {
        const int64_t top = oh * j->attr->stride[0] - j->attr->padding[0];
        copy_pixels(j, dy_image + oh * j->ow * j->c, begin, n, j->ow, r->from, dy);
        for (int64_t k = r->first; k < r->last; k++) {
            if (top + k >= 0 && top + k < j->h) {
                row.x = hold_row(j, r, image, top + k, begin, n);
                row.sum = r->sum[k];
                lvni_cpu_isa()->depthwise_row(&row);
            }
        }
    }
}

static void add_image(const depthwise_job *j, window_rows *r, int64_t image)
{
    const float *x = j->x + image * j->h * j->w * j->c, *dy = j->dy + image * j->oh * j->ow * j->c;
    memset(r->sum, 0, sizeof r->sum);
    for (int64_t begin = 0; begin < j->ow; begin += CHUNK) {
        add_columns(j, r, x, dy, begin, j->ow - begin < CHUNK ? j->ow - begin : CHUNK);
    }
    for (int64_t k = r->first; k < r->last; k++) {
        for (int64_t i = 0; i < j->kw * LANES; i++) {
            r->total[k][i] += r->sum[k][i];
        }
    }
}

static void compute_rows(const depthwise_job *j, int64_t from, int64_t first, int64_t last)
{
    window_rows r;
    r.from = from;
    r.first = first;
    r.last = last;
    memset(r.total, 0, sizeof r.total);
    for (int64_t image = 0; image < j->n; image++) {
        add_image(j, &r, image);
    }
    for (int64_t c = 0; c < LANES && from + c < j->c; c++) {
        for (int64_t k = first; k < last; k++) {
            for (int64_t i = 0; i < j->kw; i++) {
                j->dw[((from + c) * j->kh + k) * j->kw + i] = r.total[k][i * LANES + c];
            }
        }
    }
}

static void depthwise_range(const void *job, int64_t begin, int64_t end)
{
    const depthwise_job *j = job;
    for (int64_t item = begin; item < end;) {
        const int64_t block = item / j->kh, first = item % j->kh,
                      last = end - item < j->kh - first ? first + end - item : j->kh;
        compute_rows(j, block * LANES, first, last);
        item += last - first;
    }
}

lvn_status lvni_cpu_conv_depthwise_grad_weight(const lvni_cpu_conv_call *c)
{
    const depthwise_job job = {.attr = c->attr,
                               .x = c->x->data,
                               .dy = c->y->data,
                               .dw = c->w->data,
                               .n = c->x->shape[0],
                               .h = c->x->shape[1],
                               .w = c->x->shape[2],
                               .oh = c->y->shape[1],
                               .ow = c->y->shape[2],
                               .c = c->x->shape[3],
                               .kh = c->w->shape[1],
                               .kw = c->w->shape[2]};
    lvni_cpu_par(lvni_cpu_div_up(job.c, LANES) * job.kh, 1,
                 job.n * job.oh * job.ow * job.kw * LANES, depthwise_range, &job);
    return LVN_OK;
}
