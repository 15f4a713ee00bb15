/* Images of a dataset as small RGB bytes, for pages and sheets that recipes draw. */
#ifndef LEVIN_IMAGES_THUMBNAIL_H
#define LEVIN_IMAGES_THUMBNAIL_H

#include "data/augment.h"

#include <levin/data.h>

/* One square image, drawn by the dataset itself. image: (size, size, channels), rgb: (size, size,
 * 3) of the transform. Where it has other channels than three, grey stands for all of them, and
 * what is behind RGB is left out. */
lvn_status lvni_images_thumbnail_fetch(const lvn_dataset *data,
                                       const lvni_data_transform *transform, int64_t sample,
                                       float *image, uint8_t *rgb);
/* In place, to `most` pixels at most: each is the mean of k by k. Returns the new side. */
int lvni_images_thumbnail_shrink(uint8_t *rgb, int side, int most);

#endif
