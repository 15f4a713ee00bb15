/* A box of an image to a small image of any turn: bilinear with antialiasing (each output pixel
 * is a triangle-weighted mean over the pixels it covers, at least two). Weights and sums are
 * integers, so every machine and every instruction set gives the same bits. Called by augment.c and
 * contact_sheet.c. */
#ifndef LEVIN_DATA_RESAMPLE_H
#define LEVIN_DATA_RESAMPLE_H

#include "data/image.h"

/* Where output pixel (x, y) goes: three floats at data + x * step_x + y * step_y. Turns and mirrors
 * are steps. Channel k becomes value * scale[k] + bias[k], value in 0..255. */
typedef struct lvni_data_resample_target {
    float *data;
    ptrdiff_t step_x, step_y; /* floats */
    float scale[3], bias[3];
} lvni_data_resample_target;

/* `box` in pixels of the image and inside it; the part of the image that is there must reach
 * max(1, box side / output side) pixels farther. width x height output pixels (1 to
 * LVNI_RESAMPLE_MAX_SIDE each). Fails only for want of memory. */
enum { LVNI_RESAMPLE_MAX_SIDE = 8192 };
lvn_status lvni_data_resample(lvni_data_scratch *scratch, const lvni_data_image *image,
                              const lvni_data_box *box, int width, int height,
                              const lvni_data_resample_target *target);

/* The same sums in plain C, which the vector code must equal (tests). count a multiple of 16, taps
 * of 2; out has 7 bits after the point. */
void lvni_data_resample_column_plain(const uint8_t *const *rows, const int16_t *weights, int taps,
                                     int64_t count, int16_t *out);
void lvni_data_resample_column(const uint8_t *const *rows, const int16_t *weights, int taps,
                               int64_t count, int16_t *out);

#endif
