/* What the headers of a folder's images give before any is decoded: a sentence for the start of a
 * run, and the memory that decoding takes. */
#ifndef LEVIN_RECIPES_IMAGE_SIZES_H
#define LEVIN_RECIPES_IMAGE_SIZES_H

#include "core/str.h"
#include "data/augment.h"
#include "data/folder_scan.h"

/* "images from 80x60 to 640x427 pixels, 24.1 MB of files", appended; nothing where the
 * headers were not read, or all are damaged. */
void lvni_recipes_image_sizes_print(const lvni_data_image_scan *scan, lvni_core_str *out);
/* Bytes that one thread keeps for files and pixels on the way through `transform`: its random
 * crops, or what evaluation takes; 0: not known. */
size_t lvni_recipes_image_sizes_decode(const lvni_data_image_scan *scan,
                                       const lvni_data_transform *transform, bool crops);

#endif
