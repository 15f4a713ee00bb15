/* Colour jitter (colour.h). Grey is ITU-R BT.601: 0.299 R + 0.587 G + 0.114 B. */
#include "data/colour.h"

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

/* To hue, chroma and lowest channel, and back at the shifted hue. Without branches, which could not
 * be foretold; a grey pixel has chroma 0 and comes back as it was, whatever its hue. */
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
