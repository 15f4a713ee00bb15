/* Template (included by tpl_table.h only): rows with a slope for each column, and the slopes'
 * gradient added up beside them. */
#ifndef LEVIN_KERNELS_CPU_TPL_PRELU_H
#define LEVIN_KERNELS_CPU_TPL_PRELU_H

#include "kernels/cpu/tpl_types.h"

static void prelu(const float *restrict in, const float *restrict slope, float *restrict y,
                  int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        const float x = in[j], below = x * slope[j];
        y[j] = x < 0.0f ? below : x;
    }
}

/* dx, and what the element adds to the gradient of its slope. */
static inline float prelu_one(float dy, float x, float slope, float *dx)
{
    const float below = dy * slope, term = dy * x;
    *dx = x > 0.0f ? dy : below;
    return x > 0.0f ? 0.0f : term;
}

static void prelu_grad(const float *restrict dy, const float *restrict x,
                       const float *restrict slope, float *restrict dx, int64_t rows, int64_t cols,
                       int64_t stride, float *restrict sums)
{
    int64_t r = 0;
#define ONE(e) prelu_one(dy[e], x[e], slope[j], &dx[e])
    for (; r + 4 <= rows; r += 4) {
        const int64_t e0 = r * stride, e1 = e0 + stride, e2 = e1 + stride, e3 = e2 + stride;
        for (int64_t j = 0; j < cols; j++) {
            const float t0 = ONE(e0 + j), t1 = ONE(e1 + j), t2 = ONE(e2 + j), t3 = ONE(e3 + j);
            sums[j] += (t0 + t1) + (t2 + t3);
        }
    }
    for (; r < rows; r++) {
        for (int64_t j = 0; j < cols; j++) {
            sums[j] += ONE(r * stride + j);
        }
    }
#undef ONE
}

#endif
