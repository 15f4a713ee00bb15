/* What every frame goes through: the resize to the network's input, and the memory of it
 * (pose_augment.h). All sums are of integers, so every machine has the same bits. */
#include "recipes/pose/pose_augment.h"

#include "core/alloc.h"

#include <math.h>
#include <string.h>

enum { TAPS = 4, WEIGHT_BITS = 11, CHANNELS = 3 };

/* ---- memory ---- */

void lvni_pose_work_free(lvni_pose_work *work)
{
    lvni_core_free(work->pixels[0].data);
    lvni_core_free(work->pixels[1].data);
    lvni_core_free(work->field.data);
    lvni_core_free(work->tables.data);
    *work = (lvni_pose_work){.pixels[0].data = NULL};
}

uint8_t *lvni_pose_work_next(lvni_pose_work *work, const lvni_pose_frame *frame, int width,
                             int height)
{
    lvni_data_buffer *b = &work->pixels[frame->rgb == work->pixels[0].data];
    const size_t bytes = (size_t)width * (size_t)height * CHANNELS;
    return lvni_data_buffer_reserve(b, bytes) == LVN_OK ? b->data : NULL;
}

/* ---- bicubic ---- */

/* Where output pixel i reads from along an axis, and with which weights. */
typedef struct tap {
    int32_t at[TAPS];     /* pixels of the input, repeated beyond its border */
    int32_t weight[TAPS]; /* add up to 2048, up to rounding */
} tap;

static void cubic(double x, double w[TAPS])
{
    static const double a = -0.75;
    const double far = x + 1.0, back = 1.0 - x;
    w[0] = ((a * far - 5.0 * a) * far + 8.0 * a) * far - 4.0 * a;
    w[1] = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    w[2] = ((a + 2.0) * back - (a + 3.0)) * back * back + 1.0;
    w[3] = 1.0 - w[0] - w[1] - w[2];
}

static int clamp(int i, int n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static void make_taps(int from, int to, tap *out)
{
    for (int i = 0; i < to; i++) {
        const double x = (i + 0.5) * from / to - 0.5, left = floor(x);
        double w[TAPS];
        cubic(x - left, w);
        for (int t = 0; t < TAPS; t++) {
            out[i].at[t] = clamp((int)left - 1 + t, from);
            out[i].weight[t] = (int32_t)lrint(w[t] * (1 << WEIGHT_BITS));
        }
    }
}

static void resize_row(const uint8_t *in, const tap *taps, int width, int32_t *out)
{
    for (int x = 0; x < width; x++) {
        const tap *t = &taps[x];
        const uint8_t *p0 = in + (ptrdiff_t)t->at[0] * CHANNELS;
        const uint8_t *p1 = in + (ptrdiff_t)t->at[1] * CHANNELS;
        const uint8_t *p2 = in + (ptrdiff_t)t->at[2] * CHANNELS;
        const uint8_t *p3 = in + (ptrdiff_t)t->at[3] * CHANNELS;
        for (int c = 0; c < CHANNELS; c++) {
            out[x * CHANNELS + c] = p0[c] * t->weight[0] + p1[c] * t->weight[1] +
                                    p2[c] * t->weight[2] + p3[c] * t->weight[3];
        }
    }
}

/* At most 255 * 1.1875^2 * 2^22 in size: it fits. */
static void blend_rows(const int32_t *const row[TAPS], const int32_t weight[TAPS], int n,
                       uint8_t *out)
{
    const int32_t *restrict r0 = row[0], *restrict r1 = row[1], *restrict r2 = row[2],
                            *restrict r3 = row[3];
    const int32_t w0 = weight[0], w1 = weight[1], w2 = weight[2], w3 = weight[3];
    for (int i = 0; i < n; i++) {
        const int32_t sum = r0[i] * w0 + r1[i] * w1 + r2[i] * w2 + r3[i] * w3;
        const int32_t v = (sum + (1 << (2 * WEIGHT_BITS - 1))) >> (2 * WEIGHT_BITS);
        out[i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
    }
}

/* Rows of the input that are resized already lie in four places, row y in place y % 4. */
static void resize(const lvni_pose_frame *frame, int width, int height, const tap *columns,
                   const tap *rows, int32_t *places, uint8_t *out)
{
    const int n = width * CHANNELS;
    int done = 0; /* rows of the input below this one */
    for (int y = 0; y < height; y++) {
        const int32_t *row[TAPS];
        done = done < rows[y].at[0] ? rows[y].at[0] : done;
        for (; done <= rows[y].at[TAPS - 1]; done++) {
            resize_row(frame->rgb + (ptrdiff_t)done * frame->width * CHANNELS, columns, width,
                       places + (ptrdiff_t)(done % TAPS) * n);
        }
        for (int t = 0; t < TAPS; t++) {
            row[t] = places + (ptrdiff_t)(rows[y].at[t] % TAPS) * n;
        }
        blend_rows(row, rows[y].weight, n, out + (ptrdiff_t)y * n);
    }
}

lvn_status lvni_pose_resize(lvni_pose_work *work, lvni_pose_frame *frame, int width, int height)
{
    if (frame->width == width && frame->height == height) {
        return LVN_OK;
    }
    uint8_t *out = lvni_pose_work_next(work, frame, width, height);
    const size_t n = (size_t)width * CHANNELS;
    LVN_TRY(out == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVN_TRY(lvni_data_buffer_reserve(&work->tables, (size_t)(width + height) * sizeof(tap) +
                                                        TAPS * n * sizeof(int32_t)));
    tap *columns = work->tables.data, *rows = columns + width;
    make_taps(frame->width, width, columns);
    make_taps(frame->height, height, rows);
    resize(frame, width, height, columns, rows, (int32_t *)(rows + height), out);
    for (int i = 0; i < frame->k; i++) {
        frame->xy[2 * i] *= (double)width / frame->width;
        frame->xy[2 * i + 1] *= (double)height / frame->height;
    }
    frame->rgb = out;
    frame->width = width;
    frame->height = height;
    return LVN_OK;
}

lvn_status lvni_pose_mirror(lvni_pose_work *work, lvni_pose_frame *frame)
{
    uint8_t *out = lvni_pose_work_next(work, frame, frame->width, frame->height);
    LVN_TRY(out == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (int y = 0; y < frame->height; y++) {
        const ptrdiff_t row = (ptrdiff_t)y * frame->width;
        for (int x = 0; x < frame->width; x++) {
            memcpy(out + (row + x) * CHANNELS, frame->rgb + (row + frame->width - 1 - x) * CHANNELS,
                   CHANNELS);
        }
    }
    for (int i = 0; i < frame->k; i++) {
        frame->xy[2 * i] = frame->width - frame->xy[2 * i];
    }
    frame->rgb = out;
    return LVN_OK;
}
