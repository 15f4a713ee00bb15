/* The dataset of labelled frames: an image resized to the network's input, its keypoints in pixels
 * of it, and which of them the loss is about; training samples are augmented. Called by the recipe,
 * for training, validation and predictions of labelled frames. */
#ifndef LEVIN_RECIPES_POSE_POSE_FRAMES_H
#define LEVIN_RECIPES_POSE_POSE_FRAMES_H

#include "recipes/pose/pose_augment.h"
#include "recipes/pose/pose_labels.h"

typedef struct lvni_pose_frames_options {
    const lvni_pose_labels *labels; /* outlives the dataset */
    const char *data_dir;
    const int64_t *at; /* which frames of the labels; the index of a sample is at[i] */
    int64_t n;
    int height, width; /* of the network's input */
    /* of training samples, outlives the dataset; NULL: they are resized alone, as all others */
    const lvni_pose_pipeline *pipeline;
    bool uniform_for_nan; /* uniform_heatmaps_for_nan_keypoints */
    /* `image` is (5, height, width, 3): with the two frames before and after, which are other files
     * of the folder (pose_window.h), and go through the same operations with the same draws. In the
     * place of one that is not there is the frame itself. */
    bool context;
} lvni_pose_frames_options;

/* What becomes of the target of a point. */
typedef enum lvni_pose_target {
    LVNI_POSE_IGNORED, /* no part of the loss */
    LVNI_POSE_UNIFORM, /* a map without a place: the point is hidden */
    LVNI_POSE_BUMP     /* a bump at the point */
} lvni_pose_target;

/* Fields of a sample: `image` f32 (height, width, 3), with mean and deviation of ImageNet; `points`
 * f32 (k, 4): x, y in pixels of it (0, 0 where there is none), 1 where there is a label inside of
 * the image, lvni_pose_target; `frame` f32 (2): width and height of the frame in pixels; `place`
 * i64 (): the index in the labels. */
enum {
    LVNI_POSE_FIELD_IMAGE,
    LVNI_POSE_FIELD_POINTS,
    LVNI_POSE_FIELD_FRAME,
    LVNI_POSE_FIELD_PLACE,
    LVNI_POSE_FIELDS
};

/* LVN_ERR_USAGE: frames are mirrored with their names, and a name of one side has no other; with
 * `context` an image's name has no number. */
lvn_status lvni_pose_frames_open(const lvni_pose_frames_options *options, lvn_dataset **out);

#endif
