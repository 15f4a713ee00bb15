/* How a video is cut into clips for a network that looks at five frames: samples of its dataset are
 * the frames of clip after clip, each with two more frames in front and behind, and a chunk of the
 * prediction is a clip. Called by the dataset and by what takes the rows. */
#ifndef LEVIN_RECIPES_POSE_POSE_CUT_H
#define LEVIN_RECIPES_POSE_POSE_CUT_H

#include <levin/status.h>

typedef struct lvni_pose_cut {
    int64_t frames;  /* of the video */
    int64_t results; /* of a clip */
    int64_t clip;    /* frames of a clip: results + 2 side */
    int side;        /* in front of those with a result, and behind them: 2; 0: not cut */
    int64_t clips;
} lvni_pose_cut;

/* Clips of `most` >= 5 frames at most, all of the same length: as few as there can be, and as short
 * as that allows. */
lvni_pose_cut lvni_pose_cut_make(int64_t frames, int64_t most);
/* Not at all: samples are the frames. */
lvni_pose_cut lvni_pose_cut_none(int64_t frames);
int64_t lvni_pose_cut_samples(const lvni_pose_cut *cut);
/* The frame that sample is; the first or last one in place of those that the video does not have.
 */
int64_t lvni_pose_cut_frame(const lvni_pose_cut *cut, int64_t sample);
/* The frame whose result stands in the row of the sample; -1: none does, it is one of the clip's
 * first two or last two, or behind the end. */
int64_t lvni_pose_cut_row(const lvni_pose_cut *cut, int64_t sample);
/* value (frames, n): the first two and the last two frames of a video of five or more have no
 * window of their own; they get the row of the one that is next. */
void lvni_pose_cut_end(const lvni_pose_cut *cut, float *value, int64_t n);

#endif
