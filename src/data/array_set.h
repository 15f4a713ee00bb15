/* Which arrays hold the images and the labels of a set, and whether they are the training or the
 * validation part: the files of MNIST and of those that took over its names (Fashion-MNIST, KMNIST,
 * EMNIST), where torchvision puts them, too; the arrays of a .npz file; one file of images with one
 * of labels. Called by array_images.c. */
#ifndef LEVIN_DATA_ARRAY_SET_H
#define LEVIN_DATA_ARRAY_SET_H

#include "data/array.h"

#include <limits.h>

typedef struct lvni_data_array_part {
    lvni_data_array images, labels; /* labels.data NULL: not read */
    /* for messages: a file, or an array in one */
    char images_name[PATH_MAX], labels_name[PATH_MAX];
} lvni_data_array_part;

typedef struct lvni_data_array_set {
    int n; /* parts: training, and validation where there is one */
    lvni_data_array_part part[2];
} lvni_data_array_set;

/* A folder that holds train-images-idx3-ubyte, perhaps with something before it (emnist-letters-),
 * as train-images.idx3-ubyte, with .gz behind it; or raw/ or MNIST/raw/ with such files. */
bool lvni_data_array_set_is_folder(const char *path);
/* A file that begins as .npy, .npz, IDX or gzip do. */
bool lvni_data_array_set_is_file(const char *path);
/* labels: the file of labels of a file; NULL: those beside it, by its name, or labels.npy.
 * with_labels=false: of a file its images alone. Freed with lvni_data_array_set_free, in every
 * case. LVN_ERR_NOT_FOUND, LVN_ERR_IO, LVN_ERR_CORRUPT; LVN_ERR_USAGE: labels are missing, a folder
 * holds several sets, or a .npz file has other arrays. */
lvn_status lvni_data_array_set_open(const char *path, const char *labels, bool with_labels,
                                    lvni_data_array_set *out);
void lvni_data_array_set_free(lvni_data_array_set *set);

#endif
