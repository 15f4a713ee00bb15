/* The frames of a video as a dataset, for predictions: every frame in the order in which it is
 * shown, as the network takes it. */
#ifndef LEVIN_RECIPES_POSE_POSE_VIDEO_H
#define LEVIN_RECIPES_POSE_POSE_VIDEO_H

#include <levin/data.h>

typedef struct lvni_pose_video_options {
    const char *path;
    int height, width; /* of the network's input */
    int keypoints;
} lvni_pose_video_options;

/* Fields are those of pose_frames.h, without points. A frame is resized linearly, with antialiasing
 * where it shrinks, and normalised with mean and deviation of ImageNet. LVN_ERR_UNSUPPORTED: the
 * module that reads videos is not installed, or cannot read this one. */
lvn_status lvni_pose_video_open(const lvni_pose_video_options *options, lvn_dataset **out);

#endif
