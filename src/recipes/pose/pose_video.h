/* The frames of a video as a dataset, for predictions: every frame in the order in which it is
 * shown, as the network takes it. */
#ifndef LEVIN_RECIPES_POSE_POSE_VIDEO_H
#define LEVIN_RECIPES_POSE_POSE_VIDEO_H

#include "data/image.h"
#include "data/video.h"
#include "recipes/pose/pose_cut.h"
#include "recipes/pose/pose_frames.h"

#include <levin/data.h>

/* What the network sees of a value: (value / 255 - mean) / deviation, of ImageNet, by channel. */
extern const float lvni_pose_mean[3], lvni_pose_deviation[3];
/* The frame in scratch->pixels (from_height, from_width, 3) resized to out (height, width, 3),
 * linearly, with antialiasing where it shrinks. levels: values stay from 0 to 255. */
lvn_status lvni_pose_video_image(lvni_data_scratch *scratch, int from_height, int from_width,
                                 bool levels, int height, int width, float *out);

/* Opens the file with the index that the run directory `dir` has of it; `keeps`: one that had to be
 * made is kept there. dir NULL, or not a directory: without. */
lvn_status lvni_pose_video_file(const char *path, const char *dir, bool keeps,
                                lvni_data_video **out);
/* Keeps the index of an open one. */
lvn_status lvni_pose_video_keep(const lvni_data_video *video, const char *dir);

typedef struct lvni_pose_video_options {
    const char *path;
    const char
        *dir; /* the run directory of the model, which keeps its index; NULL: there is none */
    int height, width; /* of the network's input */
    int keypoints;
    int64_t clip; /* frames of a clip at most (pose_cut.h); 0: samples are the frames */
    bool strict;  /* in clips: a frame that cannot be read is an error */
} lvni_pose_video_options;

/* In the place of LVNI_POSE_FIELD_POINTS of a video in clips: f32 (), 1, or 0 of a frame that could
 * not be read, whose image is black. The frames of a clip stay what they are without it. */
enum { LVNI_POSE_FIELD_READ = LVNI_POSE_FIELD_POINTS };

/* Fields are those of pose_frames.h, without points. A frame is resized linearly, with antialiasing
 * where it shrinks, and normalised with mean and deviation of ImageNet. LVN_ERR_UNSUPPORTED: the
 * module that reads videos is not installed, or cannot read this one. */
lvn_status lvni_pose_video_open(const lvni_pose_video_options *options, lvn_dataset **out);
/* How the video is cut; one that is not is a clip of all of its frames without others around. */
const lvni_pose_cut *lvni_pose_video_cut(const lvn_dataset *dataset);

#endif
