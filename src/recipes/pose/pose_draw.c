/* Draws into frames (pose_draw.h): pixels alone, so that it needs no library and no font. */
#include "recipes/pose/pose_draw.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* An image that is drawn into. */
typedef struct paper {
    uint8_t *rgb; /* (height, width, 3) */
    int width, height;
} paper;

static void put(const paper *p, int x, int y, const uint8_t rgb[3])
{
    if (x >= 0 && y >= 0 && x < p->width && y < p->height) {
        memcpy(p->rgb + 3 * ((ptrdiff_t)y * p->width + x), rgb, 3);
    }
}

static void fill(const paper *p, int left, int top, int width, int height, const uint8_t rgb[3])
{
    for (int y = top; y < top + height; y++) {
        for (int x = left; x < left + width; x++) {
            put(p, x, y, rgb);
        }
    }
}

/* ---- size ---- */

enum { TINY = 100, SMALL = 192 };

/* Twice the factor. */
static int factor_of(int width, int height)
{
    const int side = width < height ? width : height;
    return side <= TINY ? 5 : side <= SMALL ? 4 : 2;
}

void lvni_pose_draw_size(int width, int height, int *drawn_width, int *drawn_height)
{
    const int factor = factor_of(width, height);
    *drawn_width = width * factor / 2;
    *drawn_height = height * factor / 2;
}

static void enlarge(const lvni_pose_drawing *d, const uint8_t *frame, const paper *to)
{
    const int factor = factor_of(d->width, d->height);
    if (factor == 2) {
        memcpy(to->rgb, frame, 3 * (size_t)d->width * (size_t)d->height);
        return;
    }
    for (int y = 0; y < to->height; y++) {
        const uint8_t *row = frame + 3 * (ptrdiff_t)(y * 2 / factor) * d->width;
        for (int x = 0; x < to->width; x++) {
            put(to, x, y, row + 3 * (x * 2 / factor));
        }
    }
}

/* ---- dots ---- */

static void draw_dot(const paper *p, double x, double y, const uint8_t rgb[3])
{
    if (!(fabs(x) < p->width + 2.0 * LVNI_POSE_DOT) ||
        !(fabs(y) < p->height + 2.0 * LVNI_POSE_DOT)) {
        return; /* not finite, or too far out to be seen */
    }
    const int at_x = (int)x, at_y = (int)y;
    for (int dy = -LVNI_POSE_DOT; dy <= LVNI_POSE_DOT; dy++) {
        for (int dx = -LVNI_POSE_DOT; dx <= LVNI_POSE_DOT; dx++) {
            if (dx * dx + dy * dy <= LVNI_POSE_DOT * LVNI_POSE_DOT) {
                put(p, at_x + dx, at_y + dy, rgb);
            }
        }
    }
}

static void draw_dots(const lvni_pose_drawing *d, const float *point, const paper *p)
{
    const double factor = factor_of(d->width, d->height) / 2.0;
    for (int k = 0; k < d->keypoints; k++) {
        const float *at = point + (ptrdiff_t)3 * k;
        uint8_t rgb[3];
        if (!((double)at[2] > d->threshold)) {
            continue;
        }
        lvni_report_colour(d->colours, d->keypoints > 1 ? (double)k / (d->keypoints - 1) : 0.0,
                           rgb);
        draw_dot(p, (double)at[0] * factor, (double)at[1] * factor, rgb);
    }
}

/* ---- text ---- */

enum { COLUMNS = 5, ROWS = 7, ADVANCE = COLUMNS + 1, ROOM = 64, WIDTH_OF_SCALE = 320 };

/* The characters of the text, five by seven pixels: bit 4 of a row is its left one. */
typedef struct glyph {
    char of;
    uint8_t row[ROWS];
} glyph;

static const glyph glyphs[] = {
    {'0', {14, 17, 19, 21, 25, 17, 14}}, {'1', {4, 12, 4, 4, 4, 4, 14}},
    {'2', {14, 17, 1, 2, 4, 8, 31}},     {'3', {31, 2, 4, 2, 1, 17, 14}},
    {'4', {2, 6, 10, 18, 31, 2, 2}},     {'5', {31, 16, 30, 1, 1, 17, 14}},
    {'6', {6, 8, 16, 30, 17, 17, 14}},   {'7', {31, 1, 2, 4, 8, 8, 8}},
    {'8', {14, 17, 17, 14, 17, 17, 14}}, {'9', {14, 17, 17, 15, 1, 2, 12}},
    {':', {0, 12, 12, 0, 12, 12, 0}},    {'=', {0, 0, 31, 0, 31, 0, 0}},
    {',', {0, 0, 0, 0, 12, 4, 8}},       {'a', {0, 0, 14, 1, 15, 17, 15}},
    {'e', {0, 0, 14, 17, 31, 16, 14}},   {'f', {6, 9, 8, 28, 8, 8, 8}},
    {'m', {0, 0, 26, 21, 21, 21, 21}},   {'r', {0, 0, 22, 25, 16, 16, 16}},
    {'t', {8, 8, 28, 8, 8, 9, 6}}};

/* NULL: a space. */
static const uint8_t *rows_of(char c)
{
    for (size_t i = 0; i < sizeof glyphs / sizeof *glyphs; i++) {
        if (glyphs[i].of == c) {
            return glyphs[i].row;
        }
    }
    return NULL;
}

static void draw_glyph(const paper *p, int left, int top, int scale, const uint8_t row[ROWS])
{
    static const uint8_t white[3] = {255, 255, 255};
    for (int y = 0; y < ROWS; y++) {
        for (int x = 0; x < COLUMNS; x++) {
            if ((row[y] >> (COLUMNS - 1 - x) & 1) != 0) {
                fill(p, left + x * scale, top + y * scale, scale, scale, white);
            }
        }
    }
}

static void draw_text(const paper *p, const char *text)
{
    static const uint8_t black[3] = {0, 0, 0};
    const int scale = p->width / WIDTH_OF_SCALE > 1 ? p->width / WIDTH_OF_SCALE : 1,
              margin = 2 * scale;
    const int n = (int)strlen(text);
    fill(p, 0, 0, n * ADVANCE * scale + 2 * margin, ROWS * scale + 2 * margin, black);
    for (int i = 0; i < n; i++) {
        const uint8_t *row = rows_of(text[i]);
        if (row != NULL) {
            draw_glyph(p, margin + i * ADVANCE * scale, margin, scale, row);
        }
    }
}

/* ---- a frame ---- */

void lvni_pose_draw_frame(const lvni_pose_drawing *d, const uint8_t *frame, const float *point,
                          double seconds, int64_t number, uint8_t *out)
{
    paper p = {.rgb = out};
    char text[ROOM];
    const long long whole = (long long)seconds;
    lvni_pose_draw_size(d->width, d->height, &p.width, &p.height);
    enlarge(d, frame, &p);
    draw_dots(d, point, &p);
    snprintf(text, sizeof text, "t=%02lld:%02lld:%02lld, frame=%lld", whole / 3600, whole / 60 % 60,
             whole % 60, (long long)number);
    draw_text(&p, text);
}
