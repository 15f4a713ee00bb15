/* Gaussian blur (blur.h). Both passes are weighted sums of shifted rows: straight loops over a row
 * of 3 * width floats. */
#include "data/blur.h"

#include "core/math.h"

#include <string.h>

/* Where coordinate i of a mirrored axis lies: ... 2 1 | 0 1 2 ... n-1 | n-2 ... */
static int mirror(int i, int n)
{
    while (n > 1 && (i < 0 || i >= n)) {
        i = i < 0 ? -i : 2 * (n - 1) - i;
    }
    return n > 1 ? i : 0;
}

static void weigh(double sigma, int radius, float *weights)
{
    double exact[LVNI_BLUR_MAX_KERNEL], total = 0.0;
    const int n = 2 * radius + 1;
    for (int i = 0; i < n; i++) {
        const double x = (i - radius) / sigma;
        exact[i] = lvni_core_exp(-0.5 * x * x);
        total += exact[i];
    }
    for (int i = 0; i < n; i++) {
        weights[i] = (float)(exact[i] / total);
    }
}

/* out += weight * in; restrict, so that the compiler needs no proof that they do not overlap */
static void add_row(float *restrict out, const float *restrict in, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] += weight * in[i];
    }
}

static void blur_columns(const float *in, float *out, int width, int height, const float *weights,
                         int radius)
{
    const size_t n = 3 * (size_t)width;
    for (int y = 0; y < height; y++) {
        float *row = out + (size_t)y * n;
        memset(row, 0, n * sizeof *row);
        for (int k = -radius; k <= radius; k++) {
            add_row(row, in + (size_t)mirror(y + k, height) * n, weights[k + radius], n);
        }
    }
}

/* `wide`: room for a row with its mirrored ends. */
static void blur_rows(const float *in, float *out, int width, int height, const float *weights,
                      int radius, float *wide)
{
    const size_t n = 3 * (size_t)width;
    for (int y = 0; y < height; y++) {
        const float *from = in + (size_t)y * n;
        float *row = out + (size_t)y * n;
        for (int x = -radius; x < width + radius; x++) {
            memcpy(wide + (size_t)(x + radius) * 3, from + (size_t)mirror(x, width) * 3,
                   3 * sizeof *wide);
        }
        memset(row, 0, n * sizeof *row);
        for (int k = 0; k <= 2 * radius; k++) {
            add_row(row, wide + (size_t)k * 3, weights[k], n);
        }
    }
}

lvn_status lvni_data_blur(lvni_data_scratch *scratch, float *rgb, int width, int height,
                          double sigma, int kernel)
{
    float weights[LVNI_BLUR_MAX_KERNEL] = {0};
    int radius = kernel > 0 ? kernel / 2 : (int)(3.5 * sigma);
    radius = radius > LVNI_BLUR_MAX_KERNEL / 2 ? LVNI_BLUR_MAX_KERNEL / 2 : radius;
    if (radius == 0) {
        return LVN_OK;
    }
    weigh(sigma, radius, weights);
    const size_t n = 3 * (size_t)width * (size_t)height,
                 wide = 3 * ((size_t)width + 2 * (size_t)radius);
    LVN_TRY(lvni_data_buffer_reserve(&scratch->blur, (n + wide) * sizeof(float)));
    float *between = scratch->blur.data;
    blur_columns(rgb, between, width, height, weights, radius);
    blur_rows(between, rgb, width, height, weights, radius, between + n);
    return LVN_OK;
}
