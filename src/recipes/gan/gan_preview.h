/* The first measurement of the validation's data as an image after every validation: the truth,
 * the mean of the samples, their distance. */
#ifndef LEVIN_RECIPES_GAN_GAN_PREVIEW_H
#define LEVIN_RECIPES_GAN_GAN_PREVIEW_H

#include <levin/data.h>

typedef struct lvni_gan_preview lvni_gan_preview;

/* every: of so many validations one has an image; 0: none has. */
lvn_status lvni_gan_preview_create(int every, int side, lvni_gan_preview **out);
void lvni_gan_preview_destroy(lvni_gan_preview *preview); /* NULL is fine */
/* The run directory, on rank 0; without one nothing is written. */
lvn_status lvni_gan_preview_open(lvni_gan_preview *preview, const char *dir);
/* In a validation step, on the rank and the lane that has the first measurement; images (N, H, W,
 * C) in the units of the data, of which the first channel is drawn. NULL: there is no preview. */
void lvni_gan_preview_take(lvni_gan_preview *preview, const lvn_batch *batch, lvn_tensor *truth,
                           lvn_tensor *mean);
/* After the validation, behind `before` others of the run: images/step=0000096.png in its
 * directory. An image that cannot be written is a warning. */
void lvni_gan_preview_write(lvni_gan_preview *preview, int64_t before, int64_t step);

#endif
