/* Datasets over a scanned folder: a view is some of the scan's samples and a transform. Training,
 * validation and prediction are views of one scan, so sample numbers (and with them all random
 * draws) count in the whole sorted list. Called by the recipes; public face: levin/data.h. */
#ifndef LEVIN_DATA_IMAGE_FOLDER_H
#define LEVIN_DATA_IMAGE_FOLDER_H

#include "data/augment.h"
#include "data/folder_scan.h"

/* A dataset with the fields `image` and, where the scan has classes, `label`. Keeps a reference to
 * the scan and copies the indices (NULL: all samples of the scan) and the transform. */
lvn_status lvni_data_image_view_create(lvni_data_image_scan *scan, const int64_t *indices,
                                       int64_t n, const lvni_data_transform *transform,
                                       lvn_dataset **out);

#endif
