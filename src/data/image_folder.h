/* The images below a folder: one sorted list with their classes, read once, and the datasets over
 * it. Layouts: one sub-folder per class; train/, val/ and test/ with one each; flat (images
 * anywhere, or a single file, no classes). Sub-folders are entered, symbolic links followed, hidden
 * names skipped. Training, validation and prediction are views of one list, so sample numbers (and
 * with them all random draws) count in the whole sorted list. Called by the recipes; public face:
 * levin/data.h. */
#ifndef LEVIN_DATA_IMAGE_FOLDER_H
#define LEVIN_DATA_IMAGE_FOLDER_H

#include "core/str.h"
#include "data/foreign.h"
#include "data/views.h"

#include <stdatomic.h>

/* ---- files that are not images ---- */

enum { LVNI_IGNORED_KINDS = 24, LVNI_IGNORED_ENDING = 12 };

/* Counted by the ends of their names. */
typedef struct lvni_data_ignored {
    int n; /* kinds */
    /* ".txt", in lower case; "": of no or a strange kind */
    char ending[LVNI_IGNORED_KINDS][LVNI_IGNORED_ENDING];
    int64_t count[LVNI_IGNORED_KINDS];
} lvni_data_ignored;

/* "6 .webp, 1 .txt, 2 others", the most first, appended; nothing where there are none. */
void lvni_data_ignored_print(const lvni_data_ignored *ignored, lvni_core_str *out);

/* ---- layout: what the folders right below data= are ---- */

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
    /* parts: names of other folders, "docs, extra", which are not entered */
    lvni_core_str beside;
    lvni_data_ignored files; /* parts: files beside them */
} lvni_data_folder_layout;

/* Parts are folders called train; val, valid or validation; test, in any case, that hold folders.
 * LVN_ERR_USAGE where names look like parts and cannot be taken for them (train and dev, train1 and
 * train2, val and valid): as classes they would be trained on silently. *out is freed with
 * lvni_data_folder_layout_free, also on failure. */
lvn_status lvni_data_folder_layout_find(const char *root, lvni_data_folder_layout *out);
void lvni_data_folder_layout_free(lvni_data_folder_layout *layout);

/* ---- the list kept in a file, the index (format: folder_index.c) ---- */

typedef enum lvni_data_index_mode {
    LVNI_INDEX_NONE, /* list the folder, look at no header */
    /* data.index=FILE: taken from the file, else made; the caller writes its text there */
    LVNI_INDEX_FILE,
    /* of a run: the same; there may be no file yet (NULL), and a damaged one is made again */
    LVNI_INDEX_KEEP,
    LVNI_INDEX_LOOK, /* of another run: taken from the file, else as NONE */
} lvni_data_index_mode;

/* What is wanted, and what came of it. */
typedef struct lvni_data_index {
    lvni_data_index_mode mode;
    const char *file; /* borrowed */
    /* Of several processes of a node one lists, and shows the others where: publish(user, path)
     * once the list is there, "" where it cannot be shared. NULL: it is alone. */
    lvn_status (*publish)(void *user, const char *path);
    void *user;
    const char *shared; /* such a path, of another process: nothing is listed; borrowed, or NULL */
    /* what differs from the file, a sentence: the file is of this folder as it was */
    lvni_core_str changed;
    lvni_core_str damaged; /* a sentence about the damaged images */
    lvni_core_str unkept;  /* why there is no text although the file does not match, a sentence */
    /* FILE, KEEP: what to write into the file; empty when it is right as it is, or nothing is
     * kept */
    lvni_core_str text;
} lvni_data_index;

void lvni_data_index_free(lvni_data_index *index); /* its texts */

/* ---- the list ---- */

/* Of one image's file and header: 0 0 pixels when it is damaged. */
typedef struct lvni_data_walk_size {
    int64_t bytes;
    int width, height; /* as stored */
    uint64_t begin;    /* a hash of the file's first LVNI_BEGIN_BYTES; 0: it could not be read */
} lvni_data_walk_size;

enum { LVNI_BEGIN_BYTES = 4096 };

/* Memory that several processes have once. */
typedef struct lvni_data_map {
    void *base; /* NULL: none */
    size_t bytes;
    int fd; /* 0: closed, or another process's */
} lvni_data_map;
void lvni_data_map_free(lvni_data_map *map);

typedef enum lvni_data_scan_mode {
    /* two classes at least; of parts train/ and val/, and the classes are those of train/ */
    LVNI_SCAN_CLASSES = 0,
    LVNI_SCAN_FLAT = 1, /* no classes; the folder may also be one image file */
    /* one class is enough; all parts and their classes: for lvni_data_image_scan_relabel */
    LVNI_SCAN_EVAL = 2,
    /* or'ed: the folders right below are the classes, whatever they are called */
    LVNI_SCAN_NO_PARTS = 4
} lvni_data_scan_mode;

/* Read-only after opening, so any thread may read it. */
typedef struct lvni_data_image_scan {
    atomic_int references;
    char *root;   /* the folder, without a slash at its end */
    char **entry; /* (n_entries) of a list of folders and files, which lie below root */
    size_t n_entries;
    lvni_data_map map;         /* names, name_at and size lie in it; base NULL: they are its own */
    int64_t n_twice, twice;    /* of a list: names that are there again, and one of them */
    int64_t n;                 /* samples, in byte order of their paths, part by part */
    char *names;               /* paths below root, zero-terminated, one behind the other */
    size_t *name_at;           /* (n) offsets into names */
    int64_t *label;            /* (n) indices into class_names; NULL when flat */
    lvni_data_walk_size *size; /* (n) from the headers; NULL: not read */
    int64_t begin[LVNI_PARTS + 1]; /* of each part in the list; without parts all is TRAIN */
    lvni_data_folder_layout layout;
    lvni_data_ignored ignored; /* files that are not images */
    /* images of other kinds, by whatever name; none where the list was kept */
    lvni_data_foreign_counts foreign;
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
/* The same with the list kept in a file (the index), which also fills in `size`, except perhaps
 * under LVNI_INDEX_LOOK. */
lvn_status lvni_data_image_scan_open_indexed(const char *folder, lvni_data_scan_mode mode,
                                             lvni_data_index *index, lvni_data_image_scan **out);
/* What is wrong with folders and image files that are to be one list: "b: no images in ...; c.txt:
 * neither a folder nor ...", all of it, appended; nothing where nothing is. */
lvn_status lvni_data_list_check(const char *const *entries, size_t n, lvni_core_str *mistakes);
/* A flat list of all of them. An image that two of them have is there twice. */
lvn_status lvni_data_image_scan_open_list(const char *const *entries, size_t n,
                                          lvni_data_index *index, lvni_data_image_scan **out);
lvni_data_image_scan *lvni_data_image_scan_retain(lvni_data_image_scan *scan);
void lvni_data_image_scan_release(lvni_data_image_scan *scan); /* NULL is fine */

/* lvni_data_foreign_print for the folders of the list. */
void lvni_data_image_scan_print_foreign(const lvni_data_image_scan *scan, lvni_data_foreign kind,
                                        lvni_core_str *out);
/* One number for the sizes and the begins of the files of training and validation, in their order;
 * never for their times. 0: the headers were not read. */
uint64_t lvni_data_image_scan_files(const lvni_data_image_scan *scan);
/* Headers of an opened list: `size`, as an index fills it in, and images of other kinds in
 * `foreign`; a sentence about the damaged ones is appended. Nothing where they were read. Before
 * the scan is shared. */
lvn_status lvni_data_image_scan_read_headers(lvni_data_image_scan *scan, lvni_core_str *damaged);
/* Two lists of the same images of one folder; and what was read for one, for the other. */
bool lvni_data_image_scan_is_same(const lvni_data_image_scan *a, const lvni_data_image_scan *b);
lvn_status lvni_data_image_scan_copy_headers(lvni_data_image_scan *to,
                                             const lvni_data_image_scan *from);
/* Path of sample i below the folder; borrowed. */
const char *lvni_data_image_scan_name(const lvni_data_image_scan *scan, int64_t i);
/* Number the classes as a trained model does. Before the scan is shared. LVN_ERR_MISMATCH when the
 * folder has a class that the model lacks. */
lvn_status lvni_data_image_scan_relabel(lvni_data_image_scan *scan, const char *const *class_names,
                                        int n_classes);
/* How many samples a part has; PART_ALL: all. */
int64_t lvni_data_image_scan_count(const lvni_data_image_scan *scan, lvni_data_scan_part part);
/* The samples of one part, ascending; *indices is the caller's (lvni_core_free). */
lvn_status lvni_data_image_scan_select(const lvni_data_image_scan *scan, lvni_data_scan_part part,
                                       int64_t **indices, int64_t *n);

/* ---- datasets over a list ---- */

/* A dataset with the fields of its views and, where the scan has classes, `label`. Keeps a
 * reference to the scan and copies the indices (NULL: all samples of the scan) and the views. */
lvn_status lvni_data_image_view_create(lvni_data_image_scan *scan, const int64_t *indices,
                                       int64_t n, const lvni_data_views *views, lvn_dataset **out);
/* The list that a dataset is of, borrowed; NULL: it is of no folder of images. */
lvni_data_image_scan *lvni_data_image_view_scan(const lvn_dataset *dataset);
/* Did the look at the headers find this sample damaged? Any dataset: others have no headers. */
bool lvni_data_image_view_is_damaged(const lvn_dataset *dataset, int64_t sample);

#endif
