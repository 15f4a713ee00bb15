/* Template (included by tpl_table.h only): what max pooling of (H, W, C) images (tpl_pool.def) has in common for all element types. */
#ifndef LEVIN_KERNELS_CPU_TPL_POOL_H
#define LEVIN_KERNELS_CPU_TPL_POOL_H

#include "kernels/cpu/tpl_types.h"

/* best, at: v wins unless it is not larger or best is a NaN already. */
static inline void challenge(vf *best, vi *at, vf v, int place)
{
    const vi take = ~(v <= *best) & (*best == *best);
    *best = select_vf(take, v, *best);
    *at = (take & place) | (*at & ~take);
}

/* [first, last) of a window's k taps starting at `start` inside an axis of `size`. */
static inline void clip_taps(int64_t start, int k, int64_t size, int *first, int *last)
{
    *first = start < 0 ? (int)-start : 0;
    *last = start + k > size ? (int)(size - start) : k;
}

/* Windows [first, last) along an axis lie over a pixel: tap `tap` of the first, `step` less of each further one. */
typedef struct covering {
    int64_t first, last;
    int tap, step;
} covering;

static inline covering windows_over(const lvni_pool_image *g, int axis, int64_t pixel)
{
    const int64_t at = pixel + g->padding[axis], stride = g->stride[axis], before = at - g->kernel[axis] + 1;
    const int64_t n = axis == 0 ? g->out_h : g->out_w, end = at / stride + 1;
    covering w = {.first = before > 0 ? (before + stride - 1) / stride : 0, .last = end < n ? end : n, .step = (int)stride};
    w.tap = (int)(at - w.first * stride);
    return w;
}

/* Windows that tile the image exactly: a pixel lies under one. */
static inline bool tiles(const lvni_pool_image *g)
{
    return g->padding[0] == 0 && g->padding[1] == 0 && g->stride[0] == g->kernel[0] && g->stride[1] == g->kernel[1] &&
           g->out_h * g->kernel[0] == g->in_h && g->out_w * g->kernel[1] == g->in_w;
}

#endif
