/* Template (included by tpl_table.h only): the weight gradient of a row of depthwise windows. */
#ifndef LEVIN_KERNELS_CPU_TPL_DEPTHWISE_H
#define LEVIN_KERNELS_CPU_TPL_DEPTHWISE_H

#include "kernels/cpu/tpl_types.h"

/* `taps` is a constant, so that the sums stay in registers. A sum takes the pixels in their order,
 * whatever the width of a register. */
static inline __attribute__((always_inline)) void depthwise_sums(const lvni_cpu_depthwise_row *r,
                                                                 const int taps)
{
    for (int part = 0; part < LANES; part += LVNI_W) {
        vf sum[LVNI_DEPTHWISE_TAPS] = {{0.0f}};
        const float *x = r->x + part, *dy = r->dy + part;
        for (int64_t i = 0; i < r->n; i++, x += r->stride, dy += LANES) {
            const vf d = load(dy);
            for (int k = 0; k < taps; k++) {
                sum[k] += d * load(x + k * LANES);
            }
        }
        for (int k = 0; k < taps; k++) {
            float *to = r->sum + k * LANES + part;
            store(to, load(to) + sum[k]);
        }
    }
}

static void depthwise_row(const lvni_cpu_depthwise_row *r)
{
    switch (r->taps) {
    case 3: depthwise_sums(r, 3); break;
    case 5: depthwise_sums(r, 5); break;
    default: depthwise_sums(r, LVNI_DEPTHWISE_TAPS); break;
    }
}

#endif
