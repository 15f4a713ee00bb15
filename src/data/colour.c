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

void lvni_colour_brightness(float *rgb, int64_t n, float factor)
{
    for (int64_t i = 0; i < 3 * n; i++) {
        rgb[i] = clamp255(rgb[i] * factor);
    }
}

/* The mean is a sum of integers (1/64 grey levels): no order of additions to keep, and free for the vectoriser. */
void lvni_colour_contrast(float *rgb, int64_t n, float factor)
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

void lvni_colour_saturation(float *rgb, int64_t n, float factor)
{
    for (int64_t i = 0; i < n; i++) {
        float *p = rgb + 3 * i;
        const float bias = grey_of(p) * (1.0f - factor);
        p[0] = clamp255(p[0] * factor + bias);
        p[1] = clamp255(p[1] * factor + bias);
        p[2] = clamp255(p[2] * factor + bias);
    }
}

/* The position on the hue circle in sixths, 0 <= h < 6: red 0, green 2, blue 4. chroma > 0. */
static float hue_of(const float *p, float high, float chroma)
{
    if (p[0] >= high) {
        const float h = (p[1] - p[2]) / chroma;
        return h < 0.0f ? h + 6.0f : h;
    }
    if (p[1] >= high) {
        return (p[2] - p[0]) / chroma + 2.0f;
    }
    return (p[0] - p[1]) / chroma + 4.0f;
}

/* Channel value of hue h on a ramp that is 1 for a third of the circle around `centre`, falling to 0 within a sixth. */
static float ramp(float h, float centre)
{
    float d = h - centre;
    d = d < 0.0f ? -d : d;
    d = d > 3.0f ? 6.0f - d : d;
    const float v = 2.0f - d;
    return v < 0.0f ? 0.0f : v > 1.0f ? 1.0f : v;
}

void lvni_colour_hue(float *rgb, int64_t n, float turns)
{
    const float shift = (turns < 0.0f ? turns + 1.0f : turns) * 6.0f;
    for (int64_t i = 0; i < n; i++) {
        float *p = rgb + 3 * i;
        const float rg = p[0] > p[1] ? p[0] : p[1], low_rg = p[0] > p[1] ? p[1] : p[0];
        const float high = rg > p[2] ? rg : p[2], low = low_rg < p[2] ? low_rg : p[2];
        const float chroma = high - low;
        if (!(chroma > 0.0f)) {
            continue;
        }
        float h = hue_of(p, high, chroma) + shift;
        h = h >= 6.0f ? h - 6.0f : h;
        p[0] = low + chroma * ramp(h, 0.0f);
        p[1] = low + chroma * ramp(h, 2.0f);
        p[2] = low + chroma * ramp(h, 4.0f);
    }
}
