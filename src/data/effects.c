/* Colour jitter, Gaussian blur and rotation (effects.h). Grey is ITU-R BT.601: 0.299 R + 0.587 G +
 * 0.114 B. Compiled with -O3 (CMakeLists.txt). */
#include "data/effects.h"

#include "core/math.h"

#include <math.h>
#include <string.h>

/* ---- colour ---- */

static inline float clamp255(float x)
{
    return x < 0.0f ? 0.0f : x > 255.0f ? 255.0f : x;
}

static inline float grey_of(const float *p)
{
    return (0.299f * p[0] + 0.587f * p[1]) + 0.114f * p[2];
}

void lvni_data_colour_brightness(float *rgb, int64_t n, float factor)
{
    for (int64_t i = 0; i < 3 * n; i++) {
        rgb[i] = clamp255(rgb[i] * factor);
    }
}

/* The mean is a sum of integers (1/64 grey levels): no order of additions to keep, and free for the
 * vectoriser. */
void lvni_data_colour_contrast(float *rgb, int64_t n, float factor)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (int32_t)(grey_of(rgb + 3 * i) * 64.0f);
    }
    const float mean = (float)((double)sum / (64.0 * (double)n));
    const float bias = mean * (1.0f - factor);
    for (int64_t i = 0; i < 3 * n; i++) {
        rgb[i] = clamp255(rgb[i] * factor + bias);
    }
}

void lvni_data_colour_saturation(float *rgb, int64_t n, float factor)
{
    for (int64_t i = 0; i < n; i++) {
        float *p = rgb + 3 * i;
        const float bias = grey_of(p) * (1.0f - factor);
        p[0] = clamp255(p[0] * factor + bias);
        p[1] = clamp255(p[1] * factor + bias);
        p[2] = clamp255(p[2] * factor + bias);
    }
}

static inline float larger(float a, float b)
{
    return a > b ? a : b;
}

static inline float smaller(float a, float b)
{
    return a < b ? a : b;
}

/* Channel value at hue h (in sixths of the circle) of a ramp that is 1 within a sixth of `centre`
 * and 0 from two sixths on. */
static inline float ramp(float h, float centre)
{
    const float away = h > centre ? h - centre : centre - h;
    const float around = away > 3.0f ? 6.0f - away : away;
    return smaller(larger(2.0f - around, 0.0f), 1.0f);
}

/* To hue, chroma and lowest channel, and back at the shifted hue. Without branches, which would be
 * mispredicted; a grey pixel has chroma 0 and comes back as it was, whatever its hue. */
static inline void hue_pixel(float *p, float shift)
{
    const float r = p[0], g = p[1], b = p[2];
    const float high = larger(larger(r, g), b), low = smaller(smaller(r, g), b);
    const float chroma = high - low, divisor = chroma > 0.0f ? chroma : 1.0f;
    const float apart = r == high ? g - b : g == high ? b - r : r - g;
    const float sector = r == high ? 0.0f : g == high ? 2.0f : 4.0f;
    float h = apart / divisor + sector + shift; /* -1 .. 11 */
    h = h >= 6.0f ? h - 6.0f : h;
    h = h < 0.0f ? h + 6.0f : h;
    p[0] = low + chroma * ramp(h, 0.0f);
    p[1] = low + chroma * ramp(h, 2.0f);
    p[2] = low + chroma * ramp(h, 4.0f);
}

void lvni_data_colour_hue(float *rgb, int64_t n, float turns)
{
    const float shift = (turns < 0.0f ? turns + 1.0f : turns) * 6.0f;
    for (int64_t i = 0; i < n; i++) {
        hue_pixel(rgb + 3 * i, shift);
    }
}

void lvni_data_colour_solarize(float *rgb, int64_t n, float from)
{
    for (int64_t i = 0; i < 3 * n; i++) {
        rgb[i] = rgb[i] >= from ? 255.0f - rgb[i] : rgb[i];
    }
}

/* ---- blur: both passes are weighted sums of shifted rows of channels * width floats ---- */

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

/* out += weight * in; restrict, so that the compiler may assume that they do not overlap */
static void add_row(float *restrict out, const float *restrict in, float weight, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] += weight * in[i];
    }
}

/* n: floats of a row */
static void blur_columns(const float *in, float *out, size_t n, int height, const float *weights,
                         int radius)
{
    for (int y = 0; y < height; y++) {
        float *row = out + (size_t)y * n;
        memset(row, 0, n * sizeof *row);
        for (int k = -radius; k <= radius; k++) {
            add_row(row, in + (size_t)mirror(y + k, height) * n, weights[k + radius], n);
        }
    }
}

/* `wide`: room for a row with its mirrored ends. */
static void blur_rows(const float *in, float *out, int width, int height, size_t channels,
                      const float *weights, int radius, float *wide)
{
    const size_t n = channels * (size_t)width;
    for (int y = 0; y < height; y++) {
        const float *from = in + (size_t)y * n;
        float *row = out + (size_t)y * n;
        for (int x = -radius; x < width + radius; x++) {
            memcpy(wide + (size_t)(x + radius) * channels,
                   from + (size_t)mirror(x, width) * channels, channels * sizeof *wide);
        }
        memset(row, 0, n * sizeof *row);
        for (int k = 0; k <= 2 * radius; k++) {
            add_row(row, wide + (size_t)k * channels, weights[k], n);
        }
    }
}

lvn_status lvni_data_blur(lvni_data_scratch *scratch, float *values, int width, int height,
                          int channels, double sigma, int kernel)
{
    float weights[LVNI_BLUR_MAX_KERNEL] = {0};
    int radius = kernel > 0 ? kernel / 2 : (int)(3.5 * sigma);
    radius = radius > LVNI_BLUR_MAX_KERNEL / 2 ? LVNI_BLUR_MAX_KERNEL / 2 : radius;
    if (radius == 0) {
        return LVN_OK;
    }
    weigh(sigma, radius, weights);
    const size_t depth = (size_t)channels, row = depth * (size_t)width, n = row * (size_t)height,
                 wide = row + 2 * depth * (size_t)radius;
    LVN_TRY(lvni_data_buffer_reserve(&scratch->blur, (n + wide) * sizeof(float)));
    float *between = scratch->blur.data;
    blur_columns(values, between, row, height, weights, radius);
    blur_rows(between, values, width, height, depth, weights, radius, between + n);
    return LVN_OK;
}

/* ---- rotation ---- */

/* The image at (x, y), a point between four pixels. */
static void sample_between(const float *values, int width, int height, int channels, double x,
                           double y, float *out)
{
    const double left = floor(x), top = floor(y);
    const float fx = (float)(x - left), fy = (float)(y - top);
    const int x0 = channels * mirror((int)left, width),
              x1 = channels * mirror((int)left + 1, width), y0 = mirror((int)top, height),
              y1 = mirror((int)top + 1, height);
    const size_t row = (size_t)channels * (size_t)width;
    const float *above = values + (size_t)y0 * row, *below = values + (size_t)y1 * row;
    for (int c = 0; c < channels; c++) {
        const float a = above[x0 + c] + fx * (above[x1 + c] - above[x0 + c]);
        const float b = below[x0 + c] + fx * (below[x1 + c] - below[x0 + c]);
        out[c] = a + fy * (b - a);
    }
}

lvn_status lvni_data_rotate(lvni_data_scratch *scratch, float *values, int width, int height,
                            int channels, double turns)
{
    const size_t bytes = sizeof *values * (size_t)channels * (size_t)width * (size_t)height;
    const double cosine = lvni_core_cos2pi(turns), sine = lvni_core_cos2pi(turns - 0.25);
    const double cx = 0.5 * (width - 1), cy = 0.5 * (height - 1);
    LVN_TRY(lvni_data_buffer_reserve(&scratch->blur, bytes));
    memcpy(scratch->blur.data, values, bytes);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++, values += channels) {
            const double dx = x - cx, dy = y - cy;
            sample_between(scratch->blur.data, width, height, channels,
                           cosine * dx - sine * dy + cx, sine * dx + cosine * dy + cy, values);
        }
    }
    return LVN_OK;
}
