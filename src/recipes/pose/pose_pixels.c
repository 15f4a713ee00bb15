/* Operations on pixels that leave points where they are: convolutions, and coarse masks
 * (pose_effects.h). Sums run over a kernel row by row, so every machine has the same bits. */
#include "recipes/pose/pose_effects.h"

#include "core/math.h"

#include <math.h>
#include <string.h>

enum { CHANNELS = 3, MAX_KERNEL = 31 };

/* ---- convolution ---- */

typedef struct kernel {
    int side; /* odd */
    float weight[MAX_KERNEL * MAX_KERNEL];
} kernel;

/* Beyond the border pixels are mirrored, the border itself not repeated. */
static int mirror(int i, int n)
{
    while (n > 1 && (i < 0 || i >= n)) {
        i = i < 0 ? -i : 2 * (n - 1) - i;
    }
    return n > 1 ? i : 0;
}

/* A row as floats, with `radius` mirrored pixels at both ends. */
static void widen(const uint8_t *row, int width, int radius, float *out)
{
    float *middle = out + (ptrdiff_t)radius * CHANNELS;
    for (int i = 0; i < width * CHANNELS; i++) {
        middle[i] = row[i];
    }
    for (int x = 1; x <= radius; x++) {
        const int left = mirror(-x, width) * CHANNELS,
                  right = mirror(width - 1 + x, width) * CHANNELS;
        for (int c = 0; c < CHANNELS; c++) {
            middle[-x * CHANNELS + c] = row[left + c];
            middle[(width - 1 + x) * CHANNELS + c] = row[right + c];
        }
    }
}

static void add_row(float *restrict out, const float *restrict in, float weight, int n)
{
    for (int i = 0; i < n; i++) {
        out[i] += weight * in[i];
    }
}

static void round_row(const float *restrict in, int n, uint8_t *restrict out)
{
    for (int i = 0; i < n; i++) {
        const float v = in[i] < 0.0f ? 0.0f : in[i] > 255.0f ? 255.0f : in[i];
        out[i] = (uint8_t)(int)(v + 0.5f);
    }
}

/* Wide rows of the input lie in `side` places, row y in place y % side. */
static lvn_status convolve(lvni_pose_work *work, lvni_pose_frame *frame, const kernel *k)
{
    const int w = frame->width, h = frame->height, n = w * CHANNELS, radius = k->side / 2,
              wide = n + 2 * radius * CHANNELS;
    uint8_t *out = lvni_pose_work_next(work, frame, w, h);
    LVN_TRY(out == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVN_TRY(lvni_data_buffer_reserve(&work->field,
                                     (size_t)(k->side + 1) * (size_t)wide * sizeof(float)));
    float *places = work->field.data, *sum = places + (ptrdiff_t)k->side * wide;
    for (int y = 0, done = 0; y < h; y++) {
        for (; done <= y + radius && done < h; done++) {
            widen(frame->rgb + (ptrdiff_t)done * n, w, radius,
                  places + (ptrdiff_t)(done % k->side) * wide);
        }
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int i = 0; i < k->side * k->side; i++) {
            const int row = mirror(y + i / k->side - radius, h) % k->side;
            if (k->weight[i] != 0.0f) {
                add_row(sum, places + (ptrdiff_t)row * wide + i % k->side * CHANNELS, k->weight[i],
                        n);
            }
        }
        round_row(sum, n, out + (ptrdiff_t)y * n);
    }
    frame->rgb = out;
    return LVN_OK;
}

/* What the upright line of the kernel has at (x, y) from its centre, bilinear; 0 outside. */
static double line_at(double x, double y, int side, double from)
{
    const int radius = side / 2;
    const double across = fabs(x) < 1.0 ? 1.0 - fabs(x) : 0.0, low = floor(y);
    double sum = 0.0;
    for (int i = 0; i < 2; i++) {
        const double row = low + i, part = i == 0 ? 1.0 - (y - low) : y - low;
        if (row >= -radius && row <= radius) {
            const double t = (row + radius) / (side - 1);
            sum += part * (from + t * (1.0 - 2.0 * from));
        }
    }
    return across * sum;
}

lvn_status lvni_pose_motion_blur(lvni_pose_work *work, lvni_pose_frame *frame,
                                 const lvni_pose_drawn *d)
{
    kernel k = {.side = (int)d->value[0] | 1};
    const double turns = d->value[1] / 360.0, from = 0.5 * (d->value[2] + 1.0);
    const double c = lvni_core_cos2pi(turns), s = lvni_core_cos2pi(turns - 0.25);
    double exact[MAX_KERNEL * MAX_KERNEL] = {0.0}, total = 0.0;
    for (int i = 0; i < k.side * k.side; i++) {
        const int radius = k.side / 2, x = i % k.side - radius, y = i / k.side - radius;
        exact[i] = line_at(c * x + s * y, -s * x + c * y, k.side, from);
        total += exact[i];
    }
    for (int i = 0; i < k.side * k.side; i++) {
        k.weight[i] = (float)(exact[i] / total);
    }
    return convolve(work, frame, &k);
}

lvn_status lvni_pose_emboss(lvni_pose_work *work, lvni_pose_frame *frame, const lvni_pose_drawn *d)
{
    const double a = d->value[0], s = d->value[1];
    const double effect[9] = {-1.0 - s, -s, 0.0, -s, 1.0, s, 0.0, s, 1.0 + s};
    kernel k = {.side = 3};
    for (int i = 0; i < 9; i++) {
        k.weight[i] = (float)(a * effect[i] + (i == 4 ? 1.0 - a : 0.0));
    }
    return convolve(work, frame, &k);
}

/* ---- coarse masks ---- */

typedef struct mask {
    int rows, columns;
    bool per_channel;
    double p;
} mask;

/* Cells finer than pixels would be drawn and never seen. */
static int cells_of(double part, double cells, int side)
{
    const int n = isnan(part) ? (int)cells : (int)(part * side), least = side < 3 ? side : 3;
    return n < least ? least : n > side ? side : n;
}

static mask mask_of(const lvni_pose_frame *f, const lvni_pose_drawn *d)
{
    return (mask){.rows = cells_of(d->value[1], d->value[3], f->height),
                  .columns = cells_of(d->value[2], d->value[4], f->width),
                  .per_channel = d->value[5] > 0.0,
                  .p = d->value[0]};
}

/* A pixel belongs to the cell at floor(x columns / width). */
static int edge(int cell, int cells, int side)
{
    return (int)(((int64_t)cell * side + cells - 1) / cells);
}

/* 0, or for salt and pepper a value of 255 (1/2 +- |b - 1/2|), b of the beta distribution (1/2,
 * 1/2), whose quantile is sin^2(pi u / 2). */
static uint8_t replacement(const lvni_pose_drawn *d, const lvni_core_rng *rng, uint64_t pixel)
{
    if (d->kind == LVNI_POSE_DROPOUT) {
        return 0;
    }
    const double u = lvni_core_rng_u32(rng, pixel) * 0x1p-32,
                 away = 0.5 * fabs(lvni_core_cos2pi(0.5 * u));
    return (uint8_t)lrint(255.0 * (d->kind == LVNI_POSE_SALT ? 0.5 + away : 0.5 - away));
}

/* One cell in one channel, or (-1) in all of them alike. */
static void hit(const lvni_pose_frame *f, const lvni_pose_drawn *d, const mask *m, int row,
                int column, int channel, uint8_t *out)
{
    lvni_core_rng rng = d->rng;
    rng.c += 128;
    const int bottom = edge(row + 1, m->rows, f->height),
              right = edge(column + 1, m->columns, f->width);
    for (int y = edge(row, m->rows, f->height); y < bottom; y++) {
        for (int x = edge(column, m->columns, f->width); x < right; x++) {
            const ptrdiff_t at = ((ptrdiff_t)y * f->width + x) * CHANNELS;
            const uint8_t v = replacement(d, &rng, (uint64_t)(at + (channel < 0 ? 0 : channel)));
            if (channel >= 0) {
                out[at + channel] = v;
            } else {
                memset(out + at, v, CHANNELS);
            }
        }
    }
}

static lvn_status strew(lvni_pose_work *work, lvni_pose_frame *frame, const lvni_pose_drawn *d)
{
    const mask m = mask_of(frame, d);
    const int64_t cells = (int64_t)m.rows * m.columns, all = cells * (m.per_channel ? CHANNELS : 1);
    uint8_t *out = lvni_pose_work_next(work, frame, frame->width, frame->height);
    LVN_TRY(out == NULL ? LVN_ERR_MEMORY : LVN_OK);
    memcpy(out, frame->rgb, (size_t)frame->width * (size_t)frame->height * CHANNELS);
    for (int64_t i = 0; i < all; i += 4) {
        uint32_t u[4];
        lvni_pose_noise(&d->rng, (uint32_t)(i / 4), u);
        for (int64_t j = i; j < all && j < i + 4; j++) {
            if (u[j - i] * 0x1p-32 < m.p) {
                const int64_t cell = j % cells;
                hit(frame, d, &m, (int)(cell / m.columns), (int)(cell % m.columns),
                    m.per_channel ? (int)(j / cells) : -1, out);
            }
        }
    }
    frame->rgb = out;
    return LVN_OK;
}

lvn_status lvni_pose_dropout(lvni_pose_work *work, lvni_pose_frame *frame, const lvni_pose_drawn *d)
{
    return strew(work, frame, d);
}

lvn_status lvni_pose_salt(lvni_pose_work *work, lvni_pose_frame *frame, const lvni_pose_drawn *d)
{
    return strew(work, frame, d);
}

lvn_status lvni_pose_pepper(lvni_pose_work *work, lvni_pose_frame *frame, const lvni_pose_drawn *d)
{
    return strew(work, frame, d);
}
