/* Drawing one image of the built-in set (shapes.h): ground with a gradient, faint lines and dots,
 * the shape, noise. Brightness, place and turn vary; the shape always differs from its ground by at
 * least MIN_CONTRAST, and clutter stays closer to the ground than the shape. */
#include "data/shapes.h"

#include "core/math.h"
#include "core/rng.h"
#include "data/shapes_outline.h"

#include <math.h>

static const float MIN_CONTRAST = 0.3f; /* of grey in 0..1 */
static const float NOISE = 0.05f;       /* each channel moves by up to this much */

/* Random numbers in the order of drawing. */
typedef struct dice {
    lvni_core_rng rng;
    uint64_t next;
} dice;

typedef struct colour {
    float c[3]; /* 0..1 */
} colour;

typedef struct canvas {
    uint8_t *rgb;
    int size;
} canvas;

static float roll(dice *d, float from, float to)
{
    return from + lvni_core_rng_uniform(&d->rng, d->next++) * (to - from);
}

static float grey(const colour *a)
{
    return (0.299f * a->c[0] + 0.587f * a->c[1]) + 0.114f * a->c[2];
}

static colour roll_colour(dice *d)
{
    colour a;
    for (int k = 0; k < 3; k++) {
        a.c[k] = roll(d, 0.0f, 1.0f);
    }
    return a;
}

static colour mix(const colour *a, const colour *b, float t)
{
    colour m;
    for (int k = 0; k < 3; k++) {
        m.c[k] = a->c[k] + (b->c[k] - a->c[k]) * t;
    }
    return m;
}

/* A colour that differs enough in grey from both; after eight tries black or white, whichever is
 * farther. */
static colour roll_contrast(dice *d, const colour *a, const colour *b)
{
    const float ga = grey(a), gb = grey(b);
    for (int i = 0; i < 8; i++) {
        const colour c = roll_colour(d);
        const float g = grey(&c);
        if (fabsf(g - ga) >= MIN_CONTRAST && fabsf(g - gb) >= MIN_CONTRAST) {
            return c;
        }
    }
    const float v = ga + gb > 1.0f ? 0.0f : 1.0f;
    return (colour){{v, v, v}};
}

static uint8_t to_byte(float v)
{
    const float x = v * 255.0f + 0.5f;
    return (uint8_t)(x < 0.0f ? 0.0f : x > 255.0f ? 255.0f : x);
}

static void blend(uint8_t *p, const colour *c, float cover)
{
    for (int k = 0; k < 3; k++) {
        const float old = (float)p[k] * (1.0f / 255.0f);
        p[k] = to_byte(old + (c->c[k] - old) * cover);
    }
}

/* How much of a pixel lies inside an outline at signed distance d (pixels). */
static float coverage(float d)
{
    const float v = 0.5f - d;
    return v < 0.0f ? 0.0f : v > 1.0f ? 1.0f : v;
}

static void unit_vector(dice *d, float *x, float *y)
{
    const double turn = (double)roll(d, 0.0f, 1.0f);
    *x = (float)lvni_core_cos2pi(turn);
    *y = (float)lvni_core_cos2pi(turn - 0.25);
}

static void draw_ground(const canvas *v, const colour *a, const colour *b, float dx, float dy)
{
    const float step = 1.0f / (float)v->size;
    for (int y = 0; y < v->size; y++) {
        for (int x = 0; x < v->size; x++) {
            const float px = ((float)x + 0.5f) * step - 0.5f, py = ((float)y + 0.5f) * step - 0.5f;
            const float t = (px * dx + py * dy) * 0.7f + 0.5f; /* |.| <= 0.5 sqrt 2 */
            const colour c = mix(a, b, t);
            uint8_t *p = v->rgb + 3 * ((int64_t)y * v->size + x);
            for (int k = 0; k < 3; k++) {
                p[k] = to_byte(c.c[k]);
            }
        }
    }
}

static void draw_line(const canvas *v, dice *d, const colour *ground)
{
    const float cx = roll(d, 0.0f, 1.0f) * (float)v->size,
                cy = roll(d, 0.0f, 1.0f) * (float)v->size;
    float nx, ny;
    unit_vector(d, &nx, &ny);
    const float half = roll(d, 0.008f, 0.02f) * (float)v->size;
    const colour own = roll_colour(d), c = mix(ground, &own, 0.4f);
    for (int y = 0; y < v->size; y++) {
        for (int x = 0; x < v->size; x++) {
            const float across = ((float)x + 0.5f - cx) * nx + ((float)y + 0.5f - cy) * ny;
            const float cover = coverage(fabsf(across) - half);
            if (cover > 0.0f) {
                blend(v->rgb + 3 * ((int64_t)y * v->size + x), &c, cover);
            }
        }
    }
}

static void draw_dot(const canvas *v, dice *d, const colour *ground)
{
    const float cx = roll(d, 0.0f, 1.0f) * (float)v->size,
                cy = roll(d, 0.0f, 1.0f) * (float)v->size;
    const float radius = roll(d, 0.02f, 0.05f) * (float)v->size;
    const colour own = roll_colour(d), c = mix(ground, &own, 0.4f);
    const int x0 = (int)(cx - radius - 1.0f), y0 = (int)(cy - radius - 1.0f);
    const int reach = (int)(2.0f * radius) + 4;
    for (int y = y0 < 0 ? 0 : y0; y < v->size && y < y0 + reach; y++) {
        for (int x = x0 < 0 ? 0 : x0; x < v->size && x < x0 + reach; x++) {
            const float dx = (float)x + 0.5f - cx, dy = (float)y + 0.5f - cy;
            const float cover = coverage(sqrtf(dx * dx + dy * dy) - radius);
            if (cover > 0.0f) {
                blend(v->rgb + 3 * ((int64_t)y * v->size + x), &c, cover);
            }
        }
    }
}

static void draw_shape(const canvas *v, dice *d, int shape, const colour *c)
{
    const float size = (float)v->size;
    const float radius = roll(d, 0.26f, 0.4f);
    const float cx = roll(d, radius, 1.0f - radius) * size,
                cy = roll(d, radius, 1.0f - radius) * size;
    float ux, uy;
    unit_vector(d, &ux, &uy);
    const float r = radius * size, reach = (r + 1.0f) * (r + 1.0f);
    for (int y = 0; y < v->size; y++) {
        for (int x = 0; x < v->size; x++) {
            const float dx = (float)x + 0.5f - cx, dy = (float)y + 0.5f - cy;
            if (dx * dx + dy * dy > reach) {
                continue;
            }
            const float sx = (dx * ux + dy * uy) / r, sy = (dy * ux - dx * uy) / r;
            const float cover = coverage(lvni_data_shapes_distance(shape, sx, sy) * r);
            if (cover > 0.0f) {
                blend(v->rgb + 3 * ((int64_t)y * v->size + x), c, cover);
            }
        }
    }
}

/* One random word per pixel, a byte per channel. */
static void draw_noise(const canvas *v, lvni_core_rng rng)
{
    rng.c = 2;
    const int64_t n = (int64_t)v->size * v->size;
    for (int64_t i = 0; i < n; i += 4) {
        const uint32_t counter[4] = {(uint32_t)(i / 4), rng.c, rng.b, rng.a};
        uint32_t word[4];
        lvni_core_philox(counter, rng.key.k, word);
        for (int64_t j = i; j < n && j < i + 4; j++) {
            uint8_t *p = v->rgb + 3 * j;
            for (int k = 0; k < 3; k++) {
                const float u = (float)((word[j - i] >> (8 * k)) & 255u) * (2.0f / 255.0f) - 1.0f;
                p[k] = to_byte((float)p[k] * (1.0f / 255.0f) + u * NOISE);
            }
        }
    }
}

void lvni_data_shapes_draw(uint64_t seed, int64_t sample, int classes, int size, uint8_t *rgb)
{
    dice d = {
        {lvni_core_rng_make_key(seed, lvni_core_rng_purpose("shapes")), 0, (uint32_t)sample, 1}, 0};
    const canvas v = {rgb, size};
    const colour ground = roll_colour(&d), other = roll_colour(&d);
    const colour far_ground = mix(&ground, &other, 0.35f);
    const colour own = roll_contrast(&d, &ground, &far_ground);
    float dx, dy;
    unit_vector(&d, &dx, &dy);
    draw_ground(&v, &ground, &far_ground, dx, dy);
    const int lines = (int)roll(&d, 0.0f, 4.0f), dots = (int)roll(&d, 0.0f, 6.0f);
    for (int i = 0; i < lines; i++) {
        draw_line(&v, &d, &ground);
    }
    for (int i = 0; i < dots; i++) {
        draw_dot(&v, &d, &ground);
    }
    draw_shape(&v, &d, (int)(sample % classes), &own);
    draw_noise(&v, d.rng);
}
