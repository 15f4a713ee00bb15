/* Where the images of data= come from: a folder, array files, or builtin:shapes; what
 * image_data.c cuts into parts. */
#ifndef LEVIN_RECIPES_IMAGE_SOURCE_H
#define LEVIN_RECIPES_IMAGE_SOURCE_H

#include "core/config.h"
#include "data/array_images.h"
#include "data/folder_scan.h"
#include "data/shapes.h"

typedef struct lvni_recipes_image_source {
    lvni_data_image_scan *scan; /* a folder; NULL: none */
    /* of the folder, to be written to data.index=, else into the run directory; empty: it is there,
     * or is not kept */
    lvni_core_str index;
    lvni_data_array_images *arrays; /* array files; NULL: none; neither: shapes */
    lvni_data_shapes_options shapes;
} lvni_recipes_image_source;

extern const lvni_core_option_table lvni_recipes_image_options; /* data labels data.* */

#define LVNI_RUN_INDEX                                                                             \
    "data.index" /* in a run directory: the images it was trained with (folder_index.h) */

/* Before anything is read: LVN_ERR_USAGE when data= is missing, wrong, or not there. */
lvn_status lvni_recipes_image_source_check(const lvni_core_config *config);
/* The same for a training, whose run may not lie among the classes of data=. */
lvn_status lvni_recipes_image_source_check_run(const lvni_core_config *config);
/* The same, and with on_error=stop and `training` LVN_ERR_CORRUPT when headers are damaged,
 * LVN_ERR_USAGE when a class folder has no image; else as the openers of the kinds. mode FLAT: no
 * classes are needed. run: the directory whose index of the folder may be taken, or NULL;
 * `training`: one is made where none fits. */
lvn_status lvni_recipes_image_source_open(const lvni_core_config *config, lvni_data_scan_mode mode,
                                          const char *run, bool training,
                                          lvni_recipes_image_source *out);
void lvni_recipes_image_source_close(lvni_recipes_image_source *source);

/* Photos are cropped at random and come in 224; small images and shapes are used whole, in their
 * own size or 32. */
void lvni_recipes_image_source_transform(const lvni_recipes_image_source *source,
                                         lvni_data_transform *out);
lvn_status lvni_recipes_image_source_view(const lvni_recipes_image_source *source,
                                          const int64_t *indices, int64_t n,
                                          const lvni_data_transform *transform, lvn_dataset **out);
/* A validation part of its own. */
bool lvni_recipes_image_source_has_parts(const lvni_recipes_image_source *source);
/* Indices of the test part (lvni_core_free); *n 0: there is none. */
lvn_status lvni_recipes_image_source_test(const lvni_recipes_image_source *source, int64_t **part,
                                          int64_t *n);
/* What of a folder was passed over: "6 .webp, 1 .txt; folders docs", appended; nothing where
 * nothing was. */
void lvni_recipes_image_source_print_ignored(const lvni_recipes_image_source *source,
                                             lvni_core_str *out);
/* Indices of training and validation (lvni_core_free): the source's own parts, or a seeded
 * split. */
lvn_status lvni_recipes_image_source_cut(const lvni_recipes_image_source *source,
                                         const lvni_data_transform *transform, double val_split,
                                         uint64_t seed, int64_t *part[2], int64_t n[2]);
/* Which images these are, wherever they lie: a test part does not count. */
lvn_status lvni_recipes_image_source_identify(const lvni_recipes_image_source *source,
                                              const lvni_data_transform *transform,
                                              char identity[96]);
/* Number the classes as a trained model does. */
lvn_status lvni_recipes_image_source_relabel(const lvni_recipes_image_source *source,
                                             const char *const *class_names, int n_classes);

#endif
