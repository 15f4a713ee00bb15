/* The images below a folder, with their classes: one sorted list, read once, from which several
 * datasets are made (image_folder.h). Layouts: one sub-folder per class; `train/`, `val/` and
 * `test/` with one each (folder_layout.h); flat (images anywhere, or a single file, no classes).
 * Sub-folders are entered, symbolic links followed, hidden names skipped. Called by image_folder.c
 * and the recipes. */
#ifndef LEVIN_DATA_FOLDER_SCAN_H
#define LEVIN_DATA_FOLDER_SCAN_H

#include "data/folder_index.h"
#include "data/folder_layout.h"

#include <stdatomic.h>

typedef enum lvni_data_scan_mode {
    LVNI_SCAN_CLASSES =
        0, /* two classes at least; of parts train/ and val/, and the classes are those of train/ */
    LVNI_SCAN_FLAT = 1, /* no classes; the folder may also be one image file */
    LVNI_SCAN_EVAL = 2, /* one class will do; of parts all, and the classes of all: for
                           lvni_data_image_scan_relabel */
    LVNI_SCAN_NO_PARTS =
        4 /* or'ed: the folders right below are the classes, whatever they are called */
} lvni_data_scan_mode;

/* Read-only after opening, so any thread may read it. */
typedef struct lvni_data_image_scan {
    atomic_int references;
    char *root;                    /* the folder, without a slash at its end */
    int64_t n;                     /* samples, in byte order of their paths, part by part */
    char *names;                   /* paths below root, zero-terminated, one behind the other */
    size_t *name_at;               /* (n) offsets into names */
    int64_t *label;                /* (n) indices into class_names; -1 when flat */
    lvni_data_walk_size *size;     /* (n) what the headers say; NULL: nobody looked */
    int64_t begin[LVNI_PARTS + 1]; /* of each part in the list; without parts all is TRAIN */
    lvni_data_folder_layout layout;
    lvni_data_ignored ignored; /* files that are no images */
    /* CLASSES: class folders without an image, "hat, val/coat, and 3 more" */
    lvni_core_str empty;
    int64_t n_empty;
    int n_classes;
    /* (n_classes) in byte order, or the order of lvni_data_image_scan_relabel */
    char **class_names;
} lvni_data_image_scan;

/* LVN_ERR_NOT_FOUND (missing), LVN_ERR_IO (cannot be read), LVN_ERR_USAGE (no images, one class,
 * images outside class folders, classes of val/ unknown to train/, folders that may be parts or
 * classes, a loop of links). *out: one reference, the caller's. */
lvn_status lvni_data_image_scan_open(const char *folder, lvni_data_scan_mode mode,
                                     lvni_data_image_scan **out);
/* The same with the list kept in a file (folder_index.h), which also fills in `size`, but under
 * LVNI_INDEX_LOOK perhaps. */
lvn_status lvni_data_image_scan_open_indexed(const char *folder, lvni_data_scan_mode mode,
                                             lvni_data_index *index, lvni_data_image_scan **out);
lvni_data_image_scan *lvni_data_image_scan_retain(lvni_data_image_scan *scan);
void lvni_data_image_scan_release(lvni_data_image_scan *scan); /* NULL is fine */

/* Path of sample i below the folder; borrowed. */
const char *lvni_data_image_scan_name(const lvni_data_image_scan *scan, int64_t i);
/* Classes and labels of an opened list; walk: as it was listed. For folder_scan.c. */
lvn_status lvni_data_image_scan_label(lvni_data_image_scan *scan, lvni_data_scan_mode mode,
                                      const lvni_data_walk *walk);
/* Number the classes as a trained model does. Before the scan is shared. LVN_ERR_MISMATCH when the
 * folder has a class that is not there. */
lvn_status lvni_data_image_scan_relabel(lvni_data_image_scan *scan, const char *const *class_names,
                                        int n_classes);
/* How many samples a part has; PART_ALL: all. */
int64_t lvni_data_image_scan_count(const lvni_data_image_scan *scan, lvni_data_scan_part part);
/* The samples of one part, ascending; *indices is the caller's (lvni_core_free). */
lvn_status lvni_data_image_scan_select(const lvni_data_image_scan *scan, lvni_data_scan_part part,
                                       int64_t **indices, int64_t *n);

#endif
