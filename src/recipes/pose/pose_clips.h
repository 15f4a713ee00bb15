/* Frames without labels for training, as an endless dataset: clips of frames that follow each other
 * in a video, for each micro-batch of each step another one. The stream "clips" of a step
 * (docs/pose.md).
 *
 * A sample is one frame. The plan cuts the `batch` frames of a step over its micro-batches as it
 * cuts every batch; what a micro-batch gets of them is its clip. Clips of a video begin at frames
 * 0, L, 2 L, ... with L the largest share, of which smaller shares take the first frames. Micro-
 * batch m of step t has clip number t M + m of an endless sequence: pass after pass all clips of
 * all videos, each pass in an order of its own (lvni_data_sampler_at, of the seed and the pass).
 *
 * In the place of a clip that has a frame which cannot be read stands the next one of the pass that
 * can be read, as a whole, with a warning; so which frames a sample has depends on the files alone.
 * LVN_ERR_USAGE of a sample: there is no such clip. */
#ifndef LEVIN_RECIPES_POSE_POSE_CLIPS_H
#define LEVIN_RECIPES_POSE_POSE_CLIPS_H

#include <levin/data.h>

#define LVNI_POSE_CLIPS "clips" /* the name of the stream */

/* Fields of a sample: `image` f32 (height, width, 3), with mean and deviation of ImageNet; `matrix`
 * f32 (2, 3): from (x, y, 1) in pixels of the image before it was turned and scaled to where they
 * are, the same for all frames of a clip; `frame` f32 (2): width and height of the video's frame in
 * pixels. */
enum { LVNI_POSE_CLIP_IMAGE, LVNI_POSE_CLIP_MATRIX, LVNI_POSE_CLIP_FRAME, LVNI_POSE_CLIP_FIELDS };

typedef struct lvni_pose_clips_options {
    const char *folder; /* data.video_dir */
    const char *dir;    /* a run directory that may have their indices, or NULL */
    int height, width;  /* of the network's input */
    uint64_t seed;      /* of the order of clips, and of what happens to them */
    bool augments;      /* in training: pose_clip_augment.h */
    int64_t batch;      /* frames of a step */
    int micro_batches;  /* of a step, at most `batch` */
    bool leads;         /* names the videos that are left out */
    bool stops;         /* a damaged clip is an error of its samples (on_error=stop) */
} lvni_pose_clips_options;

/* Videos that cannot be read or are shorter than the largest clip are left out. LVN_ERR_USAGE:
 * there are no others. */
lvn_status lvni_pose_clips_open(const lvni_pose_clips_options *options, lvn_dataset **out);

/* Keeps the indices of the videos in the run directory. */
lvn_status lvni_pose_clips_keep(const lvn_dataset *clips, const char *dir);

typedef struct lvni_pose_clips_info {
    int videos;
    int64_t clips;             /* of a pass */
    int64_t longest, shortest; /* frames of a clip */
    uint64_t files;            /* a hash of the names and contents of the videos */
    size_t bytes;              /* that a thread which reads clips may need, at most */
} lvni_pose_clips_info;
void lvni_pose_clips_describe(const lvn_dataset *clips, lvni_pose_clips_info *out);

/* Where a sample comes from, unless another clip takes the place of its own. */
typedef struct lvni_pose_clip_place {
    uint64_t clip; /* its number in the sequence */
    int64_t frame; /* within it */
    int video;     /* in the order of their names */
    int64_t video_frame;
} lvni_pose_clip_place;
lvni_pose_clip_place lvni_pose_clips_place(const lvn_dataset *clips, int64_t sample);

#endif
