/* `levin data dlc IN OUT`: a project of DeepLabCut as one that `levin train pose` takes. IN has
 * labeled-data/RECORDING/CollectedData_SCORER.csv beside the images of each recording, videos/, and
 * config.yaml with the order of the body parts. OUT gets CollectedData.csv, labeled-data/, videos/
 * and a configuration. pose_dlc_labels.c reads the labels of a recording, pose_dlc.c the project,
 * pose_dlc_write.c writes. */
#ifndef LEVIN_RECIPES_POSE_POSE_DLC_H
#define LEVIN_RECIPES_POSE_POSE_DLC_H

#include "recipes/pose/pose.h"
#include "recipes/pose/pose_folder.h"

typedef struct lvni_pose_dlc_options {
    const char *in, *out;
    bool videos; /* copies them, too */
    bool link;   /* symbolic links in place of copies */
} lvni_pose_dlc_options;

typedef struct lvni_pose_dlc {
    char *scorer; /* NULL: config.yaml names none */
    /* of config.yaml in its order, then others that recordings have */
    lvni_pose_list keypoints;
    int named;                 /* of these that config.yaml has */
    lvni_pose_list recordings; /* with labels: names of folders in labeled-data */
    lvni_pose_list unlabelled; /* without */
    lvni_pose_labels *labels;  /* one per recording; image[i]: a name in its folder */
    lvni_pose_list videos;     /* paths */
    lvni_pose_list missing;    /* videos that config.yaml names and that are not there */
    lvni_pose_list same_name;  /* videos that config.yaml names, of the name of another of these */
    lvni_pose_sizes sizes;     /* of all images */
} lvni_pose_dlc;

/* Writes OUT, which must not be there yet, or be empty: all of it, or nothing. report: what was
 * written, in lines. LVN_ERR_USAGE, _NOT_FOUND, _CORRUPT: what of IN cannot be taken, and what to
 * do. */
lvn_status lvni_pose_dlc_convert(const lvni_pose_dlc_options *options, lvni_core_str *report);

/* ---- the parts ---- */

/* *out is zeroed first; free it in any case. videos: find them, too. */
lvn_status lvni_pose_dlc_read(const char *in, bool videos, lvni_pose_dlc *out);
void lvni_pose_dlc_free(lvni_pose_dlc *project);

/* "a.png" of "labeled-data\\mouse\\a.png", whichever system wrote the path. */
const char *lvni_pose_dlc_name_in(const char *path);

/* The labels of a recording as those of any label file: the path of an image may stand in three
 * columns, and a fourth header row may name the one animal. Of paths the file's name is left.
 * LVN_ERR_USAGE: several animals, and what no label file may have. */
lvn_status lvni_pose_dlc_labels_read(const char *path, lvni_pose_labels *out);
/* The same of a text, which becomes the function's, as lvni_pose_labels_parse. */
lvn_status lvni_pose_dlc_labels_parse(const char *path, char *text, size_t bytes,
                                      lvni_pose_labels *out);

#endif
