/* `levin data check config=FILE`: what a project holds, what of it a training would refuse or omit,
 * and the memory of that training. pose_check.c looks, pose_check_print.c prints. */
#ifndef LEVIN_RECIPES_POSE_POSE_CHECK_H
#define LEVIN_RECIPES_POSE_POSE_CHECK_H

#include "recipes/pose/pose.h"
#include "recipes/pose/pose_folder.h"
#include "recipes/pose/pose_split.h"

/* Rows that principal components are fitted to: as many as coordinates at least. */
typedef struct lvni_pose_check_rows {
    bool named; /* the configuration names the keypoints; singleview: without names all of them */
    int64_t rows;
    int coordinates;
} lvni_pose_check_rows;

typedef struct lvni_pose_check_video {
    int width, height;
    int64_t frames;
    double rate; /* frames a second; 0: unknown */
    char codec[32];
    char *error; /* why its frames, or the last ones, cannot be read; NULL: all can */
} lvni_pose_check_video;

typedef struct lvni_pose_check {
    lvni_core_config *config;
    lvni_pose_settings settings;
    lvni_pose_labels labels; /* n 0: they cannot be read */
    int64_t *labelled;       /* (k) frames that have the point */
    int64_t gaps;            /* frames that lack at least one */
    bool divided;            /* there are sets */
    int64_t count[LVNI_POSE_SETS];
    lvni_pose_sizes sizes;
    lvni_pose_check_rows singleview, multiview;
    lvni_pose_list paths; /* of the videos */
    lvni_pose_check_video *video;
    lvni_pose_list problems; /* sentences, of frames and labels */
    int64_t more;            /* problems behind those that are kept */
    lvni_run_memory memory;
    char *refused; /* why a training would not begin; NULL: it would */
} lvni_pose_check;

/* `levin data check` with these keys of a training: prints, as one JSON object or as lines.
 * *clean: there is nothing to complain about. A training that would be refused is that error, once
 * all else is printed. */
lvn_status lvni_pose_data_check(int n, const char *const *args, bool json, bool *clean);

/* ---- the parts ---- */

/* LVN_ERR_USAGE: the configuration cannot be read. *out is zeroed first; free it in any case. */
lvn_status lvni_pose_check_look(int n, const char *const *args, lvni_pose_check *out);
void lvni_pose_check_free(lvni_pose_check *check);
void lvni_pose_check_lines(const lvni_pose_check *check, lvni_core_str *out);
void lvni_pose_check_json(const lvni_pose_check *check, lvni_core_str *out);

#endif
