/* Augmentation of clips (pose_clip_augment.h). */
#include "recipes/pose/pose_clip_augment.h"

#include "core/math.h"

#include <math.h>
#include <string.h>

enum { CHANNELS = 3, GEOMETRY = 0, COLOURS = 1, NOISE = 2 };

bool lvni_pose_clip_augments(const char *imgaug)
{
    return strcmp(imgaug, "dlc") == 0 || strcmp(imgaug, "dlc-top-down") == 0;
}

/* ---- drawing ---- */

static double uniform(const lvni_core_rng *rng, uint64_t element, double lo, double hi)
{
    return lo + lvni_core_rng_u32(rng, element) * 0x1p-32 * (hi - lo);
}

/* Both matrices keep the centre where it is. */
static void keep_centre(double (*m)[3], double x, double y)
{
    m[0][2] = x - m[0][0] * x - m[0][1] * y;
    m[1][2] = y - m[1][0] * x - m[1][1] * y;
}

static void draw_geometry(const lvni_core_rng *rng, lvni_pose_clip_draw *out)
{
    const double turns = uniform(rng, 0, -10.0, 10.0) / 360.0, c = lvni_core_cos2pi(turns),
                 s = lvni_core_cos2pi(turns - 0.25), sx = uniform(rng, 1, 0.8, 1.2),
                 sy = uniform(rng, 2, 0.8, 1.2), x = 0.5 * out->width, y = 0.5 * out->height;
    out->to[0][0] = sx * c;
    out->to[0][1] = -sx * s;
    out->to[1][0] = sy * s;
    out->to[1][1] = sy * c;
    out->from[0][0] = c / sx;
    out->from[0][1] = s / sy;
    out->from[1][0] = -s / sx;
    out->from[1][1] = c / sy;
    keep_centre(out->to, x, y);
    keep_centre(out->from, x, y);
}

void lvni_pose_clip_draw_make(uint64_t seed, uint64_t clip, int height, int width,
                              lvni_pose_clip_draw *out)
{
    lvni_core_rng rng = {lvni_core_rng_make_key(seed, lvni_core_rng_purpose("data/clips")), 0,
                         (uint32_t)clip, GEOMETRY};
    *out = (lvni_pose_clip_draw){.height = height, .width = width};
    draw_geometry(&rng, out);
    rng.c = COLOURS;
    out->brightness = uniform(&rng, 0, 0.75, 1.25);
    out->contrast = uniform(&rng, 1, 0.75, 1.25);
    out->noise = uniform(&rng, 2, 0.0, 10.0);
    rng.c = NOISE;
    out->rng = rng;
}

/* ---- rendering ---- */

enum { FIXED = 32 }; /* bits after the point of a coordinate */

/* The image at a place between four pixels, of which those outside are 0. */
static void sample(const lvni_pose_clip_draw *d, const float *image, int64_t at_x, int64_t at_y,
                   float *out)
{
    const int64_t one = (int64_t)1 << FIXED, left = at_x >> FIXED, top = at_y >> FIXED;
    const float fx = (float)(at_x & (one - 1)) * 0x1p-32f,
                fy = (float)(at_y & (one - 1)) * 0x1p-32f;
    const float weight[4] = {(1.0f - fx) * (1.0f - fy), fx * (1.0f - fy), (1.0f - fx) * fy,
                             fx * fy};
    float sum[CHANNELS] = {0.0f};
    for (int i = 0; i < 4; i++) {
        const int64_t x = left + (i & 1), y = top + (i >> 1);
        if (x >= 0 && x < d->width && y >= 0 && y < d->height) {
            const float *pixel = image + (y * d->width + x) * CHANNELS;
            for (int c = 0; c < CHANNELS; c++) {
                sum[c] += weight[i] * pixel[c];
            }
        }
    }
    memcpy(out, sum, sizeof sum);
}

static void move(const lvni_pose_clip_draw *d, const float *image, float *out)
{
    static const double unit = (double)((int64_t)1 << FIXED);
    const int64_t step_x = llrint(d->from[0][0] * unit), step_y = llrint(d->from[1][0] * unit);
    for (int y = 0; y < d->height; y++) {
        int64_t at_x =
            llrint((d->from[0][0] * 0.5 + d->from[0][1] * (y + 0.5) + d->from[0][2] - 0.5) * unit);
        int64_t at_y =
            llrint((d->from[1][0] * 0.5 + d->from[1][1] * (y + 0.5) + d->from[1][2] - 0.5) * unit);
        for (int x = 0; x < d->width; x++, at_x += step_x, at_y += step_y, out += CHANNELS) {
            sample(d, image, at_x, at_y, out);
        }
    }
}

void lvni_pose_clip_render(const lvni_pose_clip_draw *draw, const lvni_pose_poisson *poisson,
                           uint32_t frame, const float *image, float *out)
{
    const ptrdiff_t n = (ptrdiff_t)draw->width * draw->height * CHANNELS;
    const float gain = (float)(draw->brightness * draw->contrast),
                offset = (float)(draw->brightness * (0.5 - 0.5 * draw->contrast));
    const double f = draw->noise;
    lvni_core_rng rng = draw->rng;
    rng.a = frame;
    move(draw, image, out);
    for (ptrdiff_t i = 0; i < n; i += 2) {
        const uint32_t counter[4] = {(uint32_t)(i / 2), rng.c, rng.b, rng.a};
        uint32_t u[4];
        lvni_core_philox(counter, rng.key.k, u);
        for (ptrdiff_t j = i; j < i + 2 && j < n; j++) {
            const float v = gain * out[j] + offset;
            out[j] =
                f > 0.0
                    ? (float)(f * lvni_pose_poisson_draw(poisson, (double)v / f, u + 2 * (j - i)))
                    : v;
        }
    }
}
