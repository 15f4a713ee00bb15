/* Template (included by tpl_table.h only): max pooling of (H, W, C) images, vectors over channels. The first maximum of a
 * window wins; a NaN counts as the largest. */
#ifndef LEVIN_KERNELS_CPU_TPL_POOL_H
#define LEVIN_KERNELS_CPU_TPL_POOL_H

#include "kernels/cpu/tpl_types.h"

/* The part of a window that lies inside the image. */
typedef struct window {
    const float *x; /* element (first row, first column, channel 0) */
    int64_t row_step, col_step;
    int rows, cols;   /* inside */
    int place, width; /* place of the first element; KW */
} window;

/* best, at: v wins unless it is not larger or best is a NaN already. */
static inline void challenge(vf *best, vi *at, vf v, int place)
{
    const vi take = ~(v <= *best) & (*best == *best);
    *best = select_vf(take, v, *best);
    *at = (take & place) | (*at & ~take);
}

static inline void pool_scalar(const window *w, int64_t c, float *y, uint8_t *place)
{
    float best = w->x[c];
    int at = w->place;
    for (int i = 0; i < w->rows; i++) {
        for (int j = 0; j < w->cols; j++) {
            const float v = w->x[i * w->row_step + j * w->col_step + c];
            if (!(v <= best) && best == best) {
                best = v;
                at = w->place + i * w->width + j;
            }
        }
    }
    y[c] = best;
    if (place != NULL) {
        place[c] = (uint8_t)at;
    }
}

static inline void pool_window(const window *w, int64_t channels, float *y, uint8_t *place)
{
    int64_t c = 0;
    for (; c + LVNI_W <= channels; c += LVNI_W) {
        const float *x = w->x + c;
        vf best = load(x);
        vi at = w->place + (vi){0};
        for (int i = 0; i < w->rows; i++) {
            for (int j = 0; j < w->cols; j++) {
                challenge(&best, &at, load(x + i * w->row_step + j * w->col_step), w->place + i * w->width + j);
            }
        }
        store(y + c, best);
        if (place != NULL) {
            store_bytes(place + c, at);
        }
    }
    for (; c < channels; c++) {
        pool_scalar(w, c, y, place);
    }
}

/* 2 x 2 windows wholly inside: the four loads in a row. */
static inline void pool_window_2x2(const window *w, int64_t channels, float *y, uint8_t *place)
{
    int64_t c = 0;
    for (; c + LVNI_W <= channels; c += LVNI_W) {
        const float *x = w->x + c;
        vf best = load(x);
        vi at = {0};
        challenge(&best, &at, load(x + w->col_step), 1);
        challenge(&best, &at, load(x + w->row_step), 2);
        challenge(&best, &at, load(x + w->row_step + w->col_step), 3);
        store(y + c, best);
        if (place != NULL) {
            store_bytes(place + c, at);
        }
    }
    for (; c < channels; c++) {
        pool_scalar(w, c, y, place);
    }
}

/* [first, last) of a window's k taps starting at `start` inside an axis of `size`. */
static inline void clip_taps(int64_t start, int k, int64_t size, int *first, int *last)
{
    *first = start < 0 ? (int)-start : 0;
    *last = start + k > size ? (int)(size - start) : k;
}

static void pool_row(const lvni_pool_image *g, const float *x, int64_t oh, float *y, uint8_t *place)
{
    const int64_t h = oh * g->stride[0] - g->padding[0];
    int h0, h1;
    clip_taps(h, g->kernel[0], g->in_h, &h0, &h1);
    for (int64_t ow = 0; ow < g->out_w; ow++) {
        const int64_t left = ow * g->stride[1] - g->padding[1];
        int w0, w1;
        clip_taps(left, g->kernel[1], g->in_w, &w0, &w1);
        const window w = {.x = x + ((h + h0) * g->in_w + left + w0) * g->c,
                          .row_step = g->in_w * g->c, .col_step = g->c,
                          .rows = h1 - h0, .cols = w1 - w0,
                          .place = h0 * g->kernel[1] + w0, .width = g->kernel[1]};
        uint8_t *p = place == NULL ? NULL : place + ow * g->c;
        if (g->kernel[0] == 2 && g->kernel[1] == 2 && w.rows == 2 && w.cols == 2) {
            pool_window_2x2(&w, g->c, y + ow * g->c, p);
        } else {
            pool_window(&w, g->c, y + ow * g->c, p);
        }
    }
}

/* dx = dy where place is this tap, else 0 (add: on top of what is there). */
static inline void pool_tap_grad(const float *dy, const uint8_t *place, int tap, int64_t channels, bool add, float *dx)
{
    int64_t c = 0;
    for (; c + LVNI_W <= channels; c += LVNI_W) {
        const vi at = load_bytes(place + c);
        const vf d = (vf)((at == tap) & (vi)load(dy + c));
        store(dx + c, add ? load(dx + c) + d : d);
    }
    for (; c < channels; c++) {
        const float d = place[c] == tap ? dy[c] : 0.0f;
        dx[c] = add ? dx[c] + d : d;
    }
}

static void pool_grad(const lvni_pool_image *g, const float *dy, const uint8_t *place, float *dx)
{
    /* Windows that tile the image exactly write every element once; others add to zeros, in the order of the outputs. */
    const bool tiles = g->padding[0] == 0 && g->padding[1] == 0 && g->stride[0] == g->kernel[0] &&
                       g->stride[1] == g->kernel[1] && g->out_h * g->kernel[0] == g->in_h &&
                       g->out_w * g->kernel[1] == g->in_w;
    if (!tiles) {
        memset(dx, 0, (size_t)(g->in_h * g->in_w * g->c) * sizeof *dx);
    }
    for (int64_t o = 0; o < g->out_h * g->out_w; o++) {
        const int64_t top = o / g->out_w * g->stride[0] - g->padding[0];
        const int64_t left = o % g->out_w * g->stride[1] - g->padding[1];
        int h0, h1, w0, w1;
        clip_taps(top, g->kernel[0], g->in_h, &h0, &h1);
        clip_taps(left, g->kernel[1], g->in_w, &w0, &w1);
        for (int i = h0; i < h1; i++) {
            for (int j = w0; j < w1; j++) {
                pool_tap_grad(dy + o * g->c, place + o * g->c, i * g->kernel[1] + j, g->c, !tiles,
                              dx + ((top + i) * g->in_w + left + j) * g->c);
            }
        }
    }
}

#endif
