/* Files of labels: three header rows (scorer, bodyparts, coords), then a row per frame: its image,
 * and x, y of each keypoint in pixels of the frame, (0, 0) at the top left. An empty cell or nan is
 * a point without label. A third column `visible` of a keypoint is 0 (no label), 1 (hidden) or 2,
 * and coordinates beside 0 or 1 are not used; columns `likelihood` are passed over, and a last
 * column `set` is a split: so predictions.csv can be read, too. */
#ifndef LEVIN_RECIPES_POSE_POSE_LABELS_H
#define LEVIN_RECIPES_POSE_POSE_LABELS_H

#include "core/str.h"
#include "recipes/pose/pose_csv.h"

typedef struct lvni_pose_labels {
    int64_t n;       /* frames, in the file's order */
    int k;           /* keypoints */
    char **keypoint; /* k names */
    char **image;    /* n index cells as they stand: paths relative to data_dir */
    double *xy;      /* (n, k, 2) frame pixels; NaN: not labelled */
    int8_t *visible; /* (n, k) 0, 1, 2 of the column `visible`; NULL: the file has no such column */
    int8_t *set;     /* (n) lvni_pose_set of a `set` column; NULL: none */
    /* for messages */
    char *path;
    int64_t *line;      /* (n) of the file, from 1 */
    int64_t *column;    /* (k) of x, from 1; y is the next one */
    int64_t overridden; /* points that `visible` = 0 or 1 hides, though they have coordinates */
} lvni_pose_labels;

/* Errors with line and column. *out is zeroed first; free it in any case. */
lvn_status lvni_pose_labels_read(const char *path, lvni_pose_labels *out);
/* The same of a text, which becomes the function's: `bytes` bytes and a zero (lvni_core_free). */
lvn_status lvni_pose_labels_parse(const char *path, char *text, size_t bytes,
                                  lvni_pose_labels *out);
/* Of a table, which becomes the function's; read: what reading it returned. */
lvn_status lvni_pose_labels_take(lvni_pose_csv *table, lvn_status read, lvni_pose_labels *out);
/* The first column of the row, from 1 on, that has x or y; -1: none. */
int64_t lvni_pose_labels_first_coordinate(const lvni_pose_csv *table, int64_t row);
void lvni_pose_labels_free(lvni_pose_labels *labels);

/* Whether the file has as many keypoints as the configuration names. */
lvn_status lvni_pose_labels_check_count(const lvni_pose_labels *labels, int64_t num_keypoints);
/* Puts the keypoints of the file into the order of these names. LVN_ERR_USAGE: others are there. */
lvn_status lvni_pose_labels_arrange(lvni_pose_labels *labels, int k, const char *const *name);
/* Whether all images are there: all missing ones are counted, the first is named. */
lvn_status lvni_pose_labels_check_images(const lvni_pose_labels *labels, const char *data_dir);
/* Whether no image has two rows: a training would take it twice, with two labels. */
lvn_status lvni_pose_labels_check_once(const lvni_pose_labels *labels);
/* Whether the points of frame i lie in it, up to a pixel of rounding. */
lvn_status lvni_pose_labels_check_inside(const lvni_pose_labels *labels, int64_t i, double width,
                                         double height);
/* "DIR/LABELS_SUFFIX.csv" beside "DIR/LABELS.csv". */
void lvni_pose_labels_other(const char *path, const char *suffix, lvni_core_str *out);
/* Where the image of frame i is. */
void lvni_pose_labels_image_path(const lvni_pose_labels *labels, const char *data_dir, int64_t i,
                                 lvni_core_str *out);
/* A sentence about what was read in another way than a reader of the file might expect; nothing
 * where there is none. */
void lvni_pose_labels_remarks(const lvni_pose_labels *labels, lvni_core_str *out);

#endif
