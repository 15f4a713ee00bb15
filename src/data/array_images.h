/* Small images that lie in array files: the four files of MNIST (and of what took over their
 * names), or one file of images (N, H, W), (N, H, W, 1) or (N, H, W, 3) of uint8 with a file of N
 * labels. Grey becomes three equal channels. Read once, shared by all views. Called by the
 * recipes. */
#ifndef LEVIN_DATA_ARRAY_IMAGES_H
#define LEVIN_DATA_ARRAY_IMAGES_H

#include "core/str.h"
#include "data/array.h"
#include "data/views.h"

#include <stdatomic.h>

enum { LVNI_ARRAY_MAX_CLASSES = 100000 };

/* Read-only after opening. */
typedef struct lvni_data_array_images {
    atomic_int references;
    lvni_data_array part[2]; /* training and validation images; the second may be empty */
    int n_parts;
    int width, height, channels;
    int64_t n;      /* of both parts, training first */
    int64_t *label; /* (n); NULL: unknown */
    /* largest label + 1, or those of lvni_data_array_images_relabel; 0 without labels */
    int n_classes;
    char **class_names; /* "0", "1", ... */
    uint64_t content;   /* a hash of images and labels */
} lvni_data_array_images;

/* path, labels, with_labels: as lvni_data_array_set_open takes them, with its errors;
 * LVN_ERR_MISMATCH (counts, sizes of both parts), LVN_ERR_USAGE (no images, labels out of range,
 * one class). */
lvn_status lvni_data_array_images_open(const char *path, const char *labels, bool with_labels,
                                       lvni_data_array_images **out);
lvni_data_array_images *lvni_data_array_images_retain(lvni_data_array_images *images);
void lvni_data_array_images_release(lvni_data_array_images *images); /* NULL is fine */

/* "0, 5, 7 to 9", appended: labels below the largest that no image has. Nothing where there are
 * none, or no labels. */
lvn_status lvni_data_array_images_print_gaps(const lvni_data_array_images *images,
                                             lvni_core_str *out);

/* Number the classes as a trained model does. Before the first view. LVN_ERR_MISMATCH for a label
 * that is none of the names. */
lvn_status lvni_data_array_images_relabel(lvni_data_array_images *images,
                                          const char *const *class_names, int n_classes);
/* A dataset with `image` and, with labels, `label`. The indices are copied; NULL: all. */
lvn_status lvni_data_array_images_view(lvni_data_array_images *images, const int64_t *indices,
                                       int64_t n, const lvni_data_views *views, lvn_dataset **out);

#endif
