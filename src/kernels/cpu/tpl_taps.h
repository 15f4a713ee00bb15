/* Template (included by tpl_table.h only): weighted sums of neighbouring pixels, vectors over channels (or whole rows). Every element is
 * computed alone, taps in their order. */
#ifndef LEVIN_KERNELS_CPU_TPL_TAPS_H
#define LEVIN_KERNELS_CPU_TPL_TAPS_H

#include "kernels/cpu/tpl_types.h"

/* y[e] = sum over k of w[k] x[k * step + e] */
static void mix(const float *x, int64_t step, const float *w, int64_t taps, float *y, int64_t n)
{
    if (taps == 0) {
        memset(y, 0, (size_t)n * sizeof *y);
        return;
    }
    int64_t e = 0;
    for (; e + LVNI_W <= n; e += LVNI_W) {
        vf sum = w[0] * load(x + e);
        for (int64_t k = 1; k < taps; k++) {
            sum += w[k] * load(x + k * step + e);
        }
        store(y + e, sum);
    }
    for (; e < n; e++) {
        float sum = w[0] * x[e];
        for (int64_t k = 1; k < taps; k++) {
            sum += w[k] * x[k * step + e];
        }
        y[e] = sum;
    }
}

static void mix_row(const lvni_taps *t, const float *x, int64_t channels, float *y)
{
    for (int64_t o = 0; o < t->n; o++) {
        mix(x + t->first[o] * channels, channels, t->weight + t->start[o], t->start[o + 1] - t->start[o], y + o * channels, channels);
    }
}

#endif
