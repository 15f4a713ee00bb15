/* Colour jitter on (n, 3) float pixels in 0..255, in place. Each result is clamped to 0..255.
 * Called by augment.c. */
#ifndef LEVIN_DATA_COLOUR_H
#define LEVIN_DATA_COLOUR_H

#include <stdint.h>

void lvni_data_colour_brightness(float *rgb, int64_t n, float factor); /* x * factor */
/* away from the image's mean grey */
void lvni_data_colour_contrast(float *rgb, int64_t n, float factor);
/* away from the pixel's own grey */
void lvni_data_colour_saturation(float *rgb, int64_t n, float factor);
void lvni_data_colour_hue(float *rgb, int64_t n, float turns); /* around the HSV circle */

/* Values of `from` and above become 255 - value. */
void lvni_data_colour_solarize(float *rgb, int64_t n, float from);

#endif
