/* What `levin report` shows of a run of the recipe pose, from the files of its directory alone (and
 * the images of its worst frames, where they still are): pose_page.c the errors of its labelled
 * frames, pose_page_frames.c the worst of them drawn, pose_page_files.c errors in other label
 * files, pose_page_videos.c its videos. What is missing or damaged is a sentence on the page; the
 * functions fail for want of memory alone. */
#ifndef LEVIN_RECIPES_POSE_POSE_PAGE_H
#define LEVIN_RECIPES_POSE_POSE_PAGE_H

#include "core/str.h"

/* predictions.csv beside the labels that were learned. */
typedef struct lvni_pose_page_frames {
    int64_t n, room;
    int k;
    char **keypoint; /* (k) */
    char **name;     /* (n) of images, as the labels have them */
    int8_t *set;     /* (n) lvni_pose_set; -1: the table has no such column */
    float *value;    /* (n, k, 3): x, y in pixels of the frame, likelihood; NaN: none */
    double *xy;      /* (n, k, 2) labels; NaN: none */
    double *error;   /* (n, k) pixels of the frame between the two; NaN: one of them is missing */
} lvni_pose_page_frames;

/* For lvni_run_recipe.page_sections: HTML behind the curves. */
lvn_status lvni_pose_page(const char *run, lvni_core_str *out);

/* config: lines of config.yaml; NULL: there are none. */
lvn_status lvni_pose_page_worst(const lvni_pose_page_frames *frames, const char *config,
                                lvni_core_str *out);
lvn_status lvni_pose_page_files(const char *run, lvni_core_str *out);
lvn_status lvni_pose_page_videos(const char *run, const char *config, lvni_core_str *out);

/* "<p>WHAT: MESSAGE", the message of the last error, which is cleared: any status but
 * LVN_ERR_MEMORY is reported so, and over. Of LVN_OK nothing. */
lvn_status lvni_pose_page_report(lvn_status s, const char *what, lvni_core_str *out);
/* Of n sorted values, none of them NaN, the one below which a part of them is (0.5: the median),
 * between two of them by its distance; NaN where n is 0. */
double lvni_pose_page_quantile(const double *sorted, int64_t n, double part);
double lvni_pose_page_mean(const double *value, int64_t n); /* NaN where n is 0 */
/* For qsort. */
int lvni_pose_page_ascending(const void *a, const void *b);
/* <td class=n> of pixels; an empty one of NaN. */
void lvni_pose_page_cell(lvni_core_str *out, double value);

#endif
