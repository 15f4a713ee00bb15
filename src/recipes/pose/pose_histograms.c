/* Histogram equalization of whole frames, and of tiles with a limit to contrast (CLAHE: Zuiderveld
 * 1994, Graphics Gems IV), each channel alone, with the constants of OpenCV (pose_effects.h). */
#include "recipes/pose/pose_effects.h"

#include <math.h>
#include <string.h>

enum { CHANNELS = 3, LEVELS = 256 };

static uint8_t level(float v)
{
    const long n = lrintf(v);
    return (uint8_t)(n < 0 ? 0 : n > 255 ? 255 : n);
}

/* ---- the whole frame ---- */

/* The darkest level there is becomes 0, the brightest 255. */
static void equal_table(const int32_t count[LEVELS], int64_t total, uint8_t out[LEVELS])
{
    int first = 0;
    while (count[first] == 0) {
        first++;
    }
    memset(out, first, LEVELS);
    if (count[first] == total) {
        return; /* of one level alone: as it is */
    }
    const float scale = 255.0f / (float)(total - count[first]);
    int64_t sum = 0;
    out[first] = 0;
    for (int i = first + 1; i < LEVELS; i++) {
        sum += count[i];
        out[i] = level((float)sum * scale);
    }
}

lvn_status lvni_pose_equalize(lvni_pose_work *work, lvni_pose_frame *frame,
                              const lvni_pose_drawn *d)
{
    const ptrdiff_t n = (ptrdiff_t)frame->width * frame->height;
    uint8_t *out = lvni_pose_work_next(work, frame, frame->width, frame->height);
    LVN_TRY(out == NULL ? LVN_ERR_MEMORY : LVN_OK);
    (void)d;
    for (int c = 0; c < CHANNELS; c++) {
        int32_t count[LEVELS] = {0};
        uint8_t table[LEVELS];
        for (ptrdiff_t i = 0; i < n; i++) {
            count[frame->rgb[i * CHANNELS + c]]++;
        }
        equal_table(count, n, table);
        for (ptrdiff_t i = 0; i < n; i++) {
            out[i * CHANNELS + c] = table[frame->rgb[i * CHANNELS + c]];
        }
    }
    frame->rgb = out;
    return LVN_OK;
}

/* ---- tiles ---- */

typedef struct tiling {
    int tiles;         /* of a side */
    int width, height; /* of a tile */
    int limit;         /* of a level's count */
} tiling;

/* A frame that tiles do not divide is mirrored on at its right and bottom; where only one side is
 * not divided, the other gains a pixel per tile. */
static tiling tiling_of(const lvni_pose_frame *f, const lvni_pose_drawn *d)
{
    const int n = (int)d->value[1];
    const bool even = f->width % n == 0 && f->height % n == 0;
    tiling t = {.tiles = n,
                .width = even ? f->width / n : f->width / n + 1,
                .height = even ? f->height / n : f->height / n + 1};
    const double limit = d->value[0] * t.width * t.height / LEVELS;
    t.limit = limit < 1.0 ? 1 : limit < INT32_MAX ? (int)limit : INT32_MAX;
    return t;
}

static int mirror(int i, int n)
{
    while (n > 1 && i >= n) {
        i = 2 * (n - 1) - i;
        i = i < 0 ? -i : i;
    }
    return n > 1 ? i : 0;
}

/* What is cut off is dealt to all levels, the rest to every so-manieth of them. */
static void limit_counts(int32_t count[LEVELS], int limit)
{
    int cut = 0;
    for (int i = 0; i < LEVELS; i++) {
        if (count[i] > limit) {
            cut += count[i] - limit;
            count[i] = limit;
        }
    }
    const int each = cut / LEVELS;
    int rest = cut % LEVELS;
    for (int i = 0; i < LEVELS; i++) {
        count[i] += each;
    }
    const int step = rest == 0 ? LEVELS : LEVELS / rest;
    for (int i = 0; i < LEVELS && rest > 0; i += step, rest--) {
        count[i]++;
    }
}

static void tile_table(const lvni_pose_frame *f, const tiling *t, int row, int column, int channel,
                       uint8_t out[LEVELS])
{
    int32_t count[LEVELS] = {0}, sum = 0;
    for (int y = row * t->height; y < (row + 1) * t->height; y++) {
        const uint8_t *from = f->rgb + (ptrdiff_t)mirror(y, f->height) * f->width * CHANNELS;
        for (int x = column * t->width; x < (column + 1) * t->width; x++) {
            count[from[(ptrdiff_t)mirror(x, f->width) * CHANNELS + channel]]++;
        }
    }
    limit_counts(count, t->limit);
    const float scale = 255.0f / (float)(t->width * t->height);
    for (int i = 0; i < LEVELS; i++) {
        sum += count[i];
        out[i] = level((float)sum * scale);
    }
}

/* The two tiles around a coordinate, and how far it is on the way to the second. */
typedef struct between {
    int a, b;
    float part;
} between;

static between between_of(int i, int side, int tiles)
{
    const float at = (float)i / (float)side - 0.5f;
    const int low = at < 0.0f ? -1 : (int)at;
    return (between){low < 0 ? 0 : low, low + 1 >= tiles ? tiles - 1 : low + 1, at - (float)low};
}

static void map_channel(const lvni_pose_frame *f, const tiling *t, const uint8_t *tables,
                        const between *columns, int channel, uint8_t *out)
{
    for (int y = 0; y < f->height; y++) {
        const between r = between_of(y, t->height, t->tiles);
        const ptrdiff_t row = (ptrdiff_t)y * f->width * CHANNELS + channel;
        const uint8_t *above = tables + (ptrdiff_t)r.a * t->tiles * LEVELS,
                      *below = tables + (ptrdiff_t)r.b * t->tiles * LEVELS;
        for (int x = 0; x < f->width; x++) {
            const between c = columns[x];
            const ptrdiff_t v = f->rgb[row + (ptrdiff_t)x * CHANNELS], left = c.a * LEVELS + v,
                            right = c.b * LEVELS + v;
            const float p = c.part, q = 1.0f - p;
            out[row + (ptrdiff_t)x * CHANNELS] =
                level(((float)above[left] * q + (float)above[right] * p) * (1.0f - r.part) +
                      ((float)below[left] * q + (float)below[right] * p) * r.part);
        }
    }
}

lvn_status lvni_pose_clahe(lvni_pose_work *work, lvni_pose_frame *frame, const lvni_pose_drawn *d)
{
    const tiling t = tiling_of(frame, d);
    const size_t n = (size_t)t.tiles * (size_t)t.tiles * LEVELS;
    uint8_t *out = lvni_pose_work_next(work, frame, frame->width, frame->height);
    LVN_TRY(out == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVN_TRY(lvni_data_buffer_reserve(&work->tables, (size_t)frame->width * sizeof(between) + n));
    between *columns = work->tables.data;
    uint8_t *tables = (uint8_t *)(columns + frame->width);
    for (int x = 0; x < frame->width; x++) {
        columns[x] = between_of(x, t.width, t.tiles);
    }
    for (int c = 0; c < CHANNELS; c++) {
        for (int i = 0; i < t.tiles * t.tiles; i++) {
            tile_table(frame, &t, i / t.tiles, i % t.tiles, c, tables + (ptrdiff_t)i * LEVELS);
        }
        map_channel(frame, &t, tables, columns, c, out);
    }
    frame->rgb = out;
    return LVN_OK;
}
