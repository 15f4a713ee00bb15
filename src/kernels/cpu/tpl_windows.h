/* Template (included by tpl_table.h only): windows added back onto the row of pixels they were cut
 * from. */
#ifndef LEVIN_KERNELS_CPU_TPL_WINDOWS_H
#define LEVIN_KERNELS_CPU_TPL_WINDOWS_H

#include "kernels/cpu/tpl_types.h"

static inline void add_run(const float *x, float *y, int64_t n)
{
    int64_t e = 0;
    for (; e + LVNI_W <= n; e += LVNI_W) {
        store(y + e, load(y + e) + load(x + e));
    }
    for (; e < n; e++) {
        y[e] += x[e];
    }
}

/* Windows that overlap in memory follow each other at a distance: a load right behind the store it
 * needs would wait. */
static void add_windows(const lvni_cpu_windows *w, int64_t pixels, float *y)
{
    const int64_t apart = lvni_cpu_div_up(w->kernel, w->stride);
    for (int64_t r = 0; r < apart; r++) {
        for (int64_t o = r; o < w->n; o += apart) {
            const int64_t left = o * w->stride - w->padding, first = left < 0 ? -left : 0;
            const int64_t last = left + w->kernel > pixels ? pixels - left : w->kernel;
            if (first < last) {
                add_run(w->x + o * w->step + first * w->c, y + (left + first) * w->c,
                        (last - first) * w->c);
            }
        }
    }
}

#endif
