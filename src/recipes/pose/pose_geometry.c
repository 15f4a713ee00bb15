/* Operations that move pixels and points (pose_effects.h). Coordinates have a pixel's centre at .5,
 * so the centre of an image is (width / 2, height / 2). */
#include "recipes/pose/pose_effects.h"

#include "core/math.h"
#include "data/effects.h"

#include <math.h>
#include <string.h>

enum { CHANNELS = 3 };

static lvn_status take(lvni_pose_frame *frame, const uint8_t *rgb, int width, int height)
{
    frame->rgb = rgb;
    frame->width = width;
    frame->height = height;
    return LVN_OK;
}

/* ---- quarter turns ---- */

static void turn_point(double *xy, int turns, double width, double height)
{
    const double x = xy[0], y = xy[1];
    xy[0] = turns == 1 ? height - y : turns == 2 ? width - x : y;
    xy[1] = turns == 1 ? x : turns == 2 ? height - y : width - x;
}

lvn_status lvni_pose_rot90(lvni_pose_work *work, lvni_pose_frame *frame, const lvni_pose_drawn *d)
{
    const int turns = ((int)d->value[0] % 4 + 4) % 4, w = frame->width, h = frame->height;
    if (turns == 0) {
        return LVN_OK;
    }
    const int width = turns == 2 ? w : h, height = turns == 2 ? h : w;
    uint8_t *out = lvni_pose_work_next(work, frame, width, height);
    LVN_TRY(out == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            const int from_x = turns == 1 ? y : turns == 2 ? w - 1 - x : w - 1 - y;
            const int from_y = turns == 1 ? h - 1 - x : turns == 2 ? h - 1 - y : x;
            memcpy(out + ((ptrdiff_t)y * width + x) * CHANNELS,
                   frame->rgb + ((ptrdiff_t)from_y * w + from_x) * CHANNELS, CHANNELS);
        }
    }
    for (int i = 0; i < frame->k; i++) {
        turn_point(frame->xy + (ptrdiff_t)2 * i, turns, w, h);
    }
    LVN_TRY(take(frame, out, width, height));
    return lvni_pose_resize(work, frame, w, h);
}

/* ---- rotation and scale ---- */

enum { FIXED = 16, WEIGHT = 8 }; /* bits after the point: of coordinates, of weights */

/* The frame at pixel (x, y) and its neighbours; black outside. */
static void sample_border(const lvni_pose_frame *f, int x, int y, const uint32_t w[4], uint8_t *out)
{
    uint32_t sum[CHANNELS] = {0, 0, 0};
    for (int i = 0; i < 4; i++) {
        const int at_x = x + (i & 1), at_y = y + (i >> 1);
        const bool inside = at_x >= 0 && at_x < f->width && at_y >= 0 && at_y < f->height;
        for (int c = 0; inside && c < CHANNELS; c++) {
            sum[c] += w[i] * f->rgb[((ptrdiff_t)at_y * f->width + at_x) * CHANNELS + c];
        }
    }
    for (int c = 0; c < CHANNELS; c++) {
        out[c] = (uint8_t)((sum[c] + (1U << (2 * WEIGHT - 1))) >> (2 * WEIGHT));
    }
}

static void sample_bilinear(const lvni_pose_frame *f, int64_t x, int64_t y, uint8_t *out)
{
    const int left = (int)(x >> FIXED), top = (int)(y >> FIXED);
    const uint32_t one = 1U << WEIGHT, fx = (uint32_t)(x >> (FIXED - WEIGHT)) & (one - 1),
                   fy = (uint32_t)(y >> (FIXED - WEIGHT)) & (one - 1);
    const uint32_t w[4] = {(one - fx) * (one - fy), fx * (one - fy), (one - fx) * fy, fx * fy};
    if (left < 0 || top < 0 || left >= f->width - 1 || top >= f->height - 1) {
        sample_border(f, left, top, w, out);
        return;
    }
    const uint8_t *a = f->rgb + ((ptrdiff_t)top * f->width + left) * CHANNELS;
    const uint8_t *b = a + (ptrdiff_t)f->width * CHANNELS;
    for (int c = 0; c < CHANNELS; c++) {
        const uint32_t sum =
            w[0] * a[c] + w[1] * a[c + CHANNELS] + w[2] * b[c] + w[3] * b[c + CHANNELS];
        out[c] = (uint8_t)((sum + (1U << (2 * WEIGHT - 1))) >> (2 * WEIGHT));
    }
}

lvn_status lvni_pose_affine(lvni_pose_work *work, lvni_pose_frame *frame, const lvni_pose_drawn *d)
{
    static const double unit = 1 << FIXED;
    const double turns = d->value[0] / 360.0, scale = d->value[1];
    const double c = lvni_core_cos2pi(turns), s = lvni_core_cos2pi(turns - 0.25);
    const double mid_x = 0.5 * frame->width, mid_y = 0.5 * frame->height;
    const int w = frame->width, h = frame->height;
    uint8_t *out = lvni_pose_work_next(work, frame, w, h);
    LVN_TRY(out == NULL ? LVN_ERR_MEMORY : LVN_OK);
    const int64_t step_x = llrint(c / scale * unit), step_y = llrint(-s / scale * unit);
    for (int y = 0; y < h; y++) {
        const double dx = (0.5 - mid_x) / scale, dy = (y + 0.5 - mid_y) / scale;
        int64_t at_x = llrint((c * dx + s * dy + mid_x - 0.5) * unit),
                at_y = llrint((-s * dx + c * dy + mid_y - 0.5) * unit);
        for (int x = 0; x < w; x++, at_x += step_x, at_y += step_y) {
            sample_bilinear(frame, at_x, at_y, out + ((ptrdiff_t)y * w + x) * CHANNELS);
        }
    }
    for (int i = 0; i < frame->k; i++) {
        double *p = frame->xy + (ptrdiff_t)2 * i;
        const double dx = scale * (p[0] - mid_x), dy = scale * (p[1] - mid_y);
        p[0] = c * dx - s * dy + mid_x;
        p[1] = s * dx + c * dy + mid_y;
    }
    return take(frame, out, w, h);
}

/* ---- elastic ---- */

/* alpha times uniform noise of -1 to 1, smoothed: (height, width, 2). */
static lvn_status make_field(lvni_pose_work *work, const lvni_pose_frame *frame,
                             const lvni_pose_drawn *d, float **field)
{
    const size_t pixels = (size_t)frame->width * (size_t)frame->height, n = (2 * pixels + 3) / 4;
    const float scale = (float)(d->value[0] * 0x1p-31);
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    LVN_TRY(scratch == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVN_TRY(lvni_data_buffer_reserve(&work->field, n * 4 * sizeof(float)));
    float *out = *field = work->field.data;
    for (size_t i = 0; i < n; i++, out += 4) {
        uint32_t u[4];
        lvni_pose_noise(&d->rng, (uint32_t)i, u);
        for (int j = 0; j < 4; j++) {
            out[j] = scale * (float)(int32_t)(u[j] ^ 0x80000000U);
        }
    }
    return d->value[1] > 0.0
               ? lvni_data_blur(scratch, *field, frame->width, frame->height, 2, d->value[1], 0)
               : LVN_OK;
}

/* Nearest whole number; floor is a call where the processor's own may not be used. */
static int nearest(float x)
{
    return (int)(x + 65536.5f) - 65536;
}

lvn_status lvni_pose_elastic(lvni_pose_work *work, lvni_pose_frame *frame, const lvni_pose_drawn *d)
{
    const int w = frame->width, h = frame->height;
    float *field;
    uint8_t *out = lvni_pose_work_next(work, frame, w, h);
    LVN_TRY(out == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVN_TRY(make_field(work, frame, d, &field));
    const float *move = field;
    uint8_t *to = out;
    for (int y = 0; y < h; y++) {
        for (int x = 0; x < w; x++, move += 2, to += CHANNELS) {
            const int from_x = x - nearest(move[0]), from_y = y - nearest(move[1]);
            const bool inside = from_x >= 0 && from_x < w && from_y >= 0 && from_y < h;
            const uint8_t *p =
                frame->rgb + (inside ? ((ptrdiff_t)from_y * w + from_x) * CHANNELS : 0);
            for (int c = 0; c < CHANNELS; c++) {
                to[c] = inside ? p[c] : 0;
            }
        }
    }
    for (int i = 0; i < frame->k; i++) {
        double *p = frame->xy + (ptrdiff_t)2 * i;
        if (p[0] >= 0.0 && p[0] < w && p[1] >= 0.0 && p[1] < h) {
            move = field + 2 * ((ptrdiff_t)p[1] * w + (ptrdiff_t)p[0]);
            p[0] += (double)move[0];
            p[1] += (double)move[1];
        }
    }
    return take(frame, out, w, h);
}

/* ---- crop, pad, mirror ---- */

/* Pixels that a side gains, less than 0: loses. */
static void sides_of(const lvni_pose_frame *f, const double part[4], int side[4])
{
    for (int i = 0; i < 4; i++) {
        side[i] = (int)lrint(part[i] * (i % 2 == 0 ? f->height : f->width));
    }
    for (int i = 0; i < 2; i++) { /* a small frame keeps a pixel */
        const int left = (i == 0 ? f->height : f->width) + side[i] + side[i + 2];
        side[i + 2] += left < 1 ? 1 - left : 0;
    }
}

lvn_status lvni_pose_crop_and_pad(lvni_pose_work *work, lvni_pose_frame *frame,
                                  const lvni_pose_drawn *d)
{
    int side[4]; /* top, right, bottom, left */
    const int w = frame->width, h = frame->height;
    sides_of(frame, d->value, side);
    const int top = side[0], left = side[3], width = w + side[1] + left, height = h + side[2] + top;
    const int from = left < 0 ? -left : 0, to = side[1] < 0 ? w + side[1] : w;
    uint8_t *out = lvni_pose_work_next(work, frame, width, height);
    LVN_TRY(out == NULL ? LVN_ERR_MEMORY : LVN_OK);
    memset(out, 0, (size_t)width * (size_t)height * CHANNELS);
    for (int y = 0; y < height; y++) {
        const int from_y = y - top;
        if (from_y >= 0 && from_y < h && to > from) {
            memcpy(out + ((ptrdiff_t)y * width + from + left) * CHANNELS,
                   frame->rgb + ((ptrdiff_t)from_y * w + from) * CHANNELS,
                   (size_t)(to - from) * CHANNELS);
        }
    }
    for (int i = 0; i < frame->k; i++) {
        frame->xy[2 * i] += left;
        frame->xy[2 * i + 1] += top;
    }
    LVN_TRY(take(frame, out, width, height));
    return d->value[4] > 0.0 ? lvni_pose_resize(work, frame, w, h) : LVN_OK;
}

lvn_status lvni_pose_fliplr(lvni_pose_work *work, lvni_pose_frame *frame, const lvni_pose_drawn *d)
{
    return d->value[0] > 0.0 ? lvni_pose_mirror(work, frame) : LVN_OK;
}
