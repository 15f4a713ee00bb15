/* What the folders right below data= are: classes, or the parts of a data set (train/, val/,
 * test/), each with its classes. Called by folder_scan.c. */
#ifndef LEVIN_DATA_FOLDER_LAYOUT_H
#define LEVIN_DATA_FOLDER_LAYOUT_H

#include "core/str.h"
#include "data/folder_walk.h"

/* As numbers of arrays, TRAIN first: samples are listed in this order. */
typedef enum lvni_data_scan_part {
    LVNI_PART_TRAIN,
    LVNI_PART_VAL,
    LVNI_PART_TEST,
    LVNI_PARTS,
    LVNI_PART_ALL = LVNI_PARTS
} lvni_data_scan_part;

typedef struct lvni_data_folder_layout {
    bool parts;             /* the folders right below are parts, not classes */
    char *name[LVNI_PARTS]; /* as they are spelled ("Train", "validation"); NULL: not there */
    /* parts: names of other folders, "docs, extra", which nobody enters */
    lvni_core_str beside;
    lvni_data_ignored files; /* parts: files beside them */
} lvni_data_folder_layout;

/* Parts are folders called train; val, valid or validation; test, in any case, that hold folders.
 * LVN_ERR_USAGE where names look like parts and cannot be taken for them (train and dev, train1 and
 * train2, val and valid): as classes they would be trained on without a word. *out is freed with
 * lvni_data_folder_layout_free, also on failure. */
lvn_status lvni_data_folder_layout_find(const char *root, lvni_data_folder_layout *out);
void lvni_data_folder_layout_free(lvni_data_folder_layout *layout);
/* LVN_ERR_USAGE when all folders right below the root hold the same sub-folders (two or more), and
 * no images of their own: names of a sorted walk without parts. */
lvn_status lvni_data_folder_check_nested(const char *root, const lvni_data_walk *walk);

#endif
