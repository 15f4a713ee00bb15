/* RGB to what an encoder takes: limited range, ITU-T BT.601, one colour for two by two pixels. The
 * inverse of video_rgb.c, in whole numbers, so that the bytes are the same on every machine. */
#include "data/video/video_impl.h"

enum {
    BITS = 16,
    LOW = 16,     /* of luma, which is 16 to 235 */
    MIDDLE = 128, /* of colours, which are 16 to 240 */
    FOUR_BITS = BITS + 2
};

/* 219/255 and 224/255 times the coefficients of BT.601, in fractions of BITS bits. Those of luma
 * add up to 219/255 of 65536, those of a colour to 0: grey stays grey. */
enum {
    YR = 16829,
    YG = 33039,
    YB = 6416,
    UR = -9714,
    UG = -19070,
    UB = 28784,
    VR = 28784,
    VG = -24103,
    VB = -4681
};

static uint8_t luma(const uint8_t *rgb)
{
    return (uint8_t)(LOW + ((YR * rgb[0] + YG * rgb[1] + YB * rgb[2] + (1 << (BITS - 1))) >> BITS));
}

/* Of the sums of four pixels. */
static uint8_t colour(const int32_t sum[3], int32_t r, int32_t g, int32_t b)
{
    const int32_t zero = (MIDDLE << FOUR_BITS) + (1 << (FOUR_BITS - 1));
    return (uint8_t)((zero + r * sum[0] + g * sum[1] + b * sum[2]) >> FOUR_BITS);
}

/* Two rows, of which the second may be the first again. */
static void fill_rows(const uint8_t *const row[2], int width, uint8_t *const y[2], uint8_t *u,
                      uint8_t *v)
{
    for (int x = 0; x < width; x += 2) {
        const int next = x + 1 < width ? x + 1 : x;
        int32_t sum[3] = {0, 0, 0};
        for (int i = 0; i < 2; i++) {
            const uint8_t *a = row[i] + 3 * x, *b = row[i] + 3 * next;
            y[i][x] = luma(a);
            y[i][x + 1] = luma(b);
            for (int c = 0; c < 3; c++) {
                sum[c] += a[c] + b[c];
            }
        }
        u[x / 2] = colour(sum, UR, UG, UB);
        v[x / 2] = colour(sum, VR, VG, VB);
    }
}

static uint8_t *row_of(const AVFrame *frame, int plane, int y)
{
    return frame->data[plane] + (ptrdiff_t)y * frame->linesize[plane];
}

void lvni_video_yuv_fill(const uint8_t *rgb, int width, int height, AVFrame *frame)
{
    const size_t stride = 3 * (size_t)width;
    for (int y = 0; y < height; y += 2) {
        const int next = y + 1 < height ? y + 1 : y;
        const uint8_t *const row[2] = {rgb + (size_t)y * stride, rgb + (size_t)next * stride};
        uint8_t *const to[2] = {row_of(frame, 0, y), row_of(frame, 0, y + 1)};
        fill_rows(row, width, to, row_of(frame, 1, y / 2), row_of(frame, 2, y / 2));
    }
}
