/* The first measurement of the validation's data as an image after validations (run/preview.h): the
 * truth, the mean of the samples, their distance. */
#ifndef LEVIN_RECIPES_GAN_GAN_PREVIEW_H
#define LEVIN_RECIPES_GAN_GAN_PREVIEW_H

#include "run/preview.h"

typedef struct lvni_gan_preview lvni_gan_preview;

lvn_status lvni_gan_preview_create(int side, lvni_gan_preview **out);
void lvni_gan_preview_destroy(lvni_gan_preview *preview); /* NULL is fine */
void lvni_gan_preview_begin(lvni_gan_preview *preview);   /* nothing is taken before */
/* In a validation step, on the rank and the lane that has the first measurement; images (N, H, W,
 * C) in the units of the data, of which the first channel is drawn. NULL: there is no preview. */
void lvni_gan_preview_take(lvni_gan_preview *preview, const lvn_batch *batch, lvn_tensor *truth,
                           lvn_tensor *mean);
/* Of the row: what was taken of this batch; its samples are not drawn again. */
lvn_tensor *lvni_gan_preview_images(lvni_gan_preview *preview);
lvn_status lvni_gan_preview_draw(const char *path, const float *images, const int64_t *shape);

#endif
