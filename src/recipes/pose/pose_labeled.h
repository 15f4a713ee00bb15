/* Labelled videos: a video once more, with the keypoints that were found drawn into its frames.
 * Called at the end of a training and by `levin predict`, once the table of the video is there; by
 * rank 0, for which other ranks may wait. */
#ifndef LEVIN_RECIPES_POSE_POSE_LABELED_H
#define LEVIN_RECIPES_POSE_POSE_LABELED_H

#include "recipes/pose/pose_draw.h"
#include "recipes/pose/pose_settings.h"
#include "run/inference.h"

/* What was found in a video. */
typedef struct lvni_pose_found {
    float *value; /* (n, k, 3): x, y in pixels of the frame, likelihood; NULL: nothing */
    int64_t n;    /* frames */
    int k;
} lvni_pose_found;

typedef struct lvni_pose_labeled_options {
    const char *video;
    const char *dir;   /* a run directory that may have the index of the video, or NULL */
    const char *table; /* "DIR/NAME.csv": drawn into DIR/labeled_videos/NAME_labeled.mp4 */
    const char *colormap;
    double threshold;
    const char *frames;    /* in place of a video this many frames, or "all", into PNG files of
                              DIR/labeled_videos/NAME; NULL: a video */
    lvni_pose_found found; /* borrowed until the end */
} lvni_pose_labeled_options;

typedef struct lvni_pose_labeled lvni_pose_labeled;

/* "all" or a count from 1 on. */
bool lvni_pose_labeled_frames_read(const char *text, int64_t *n);
/* LVN_ERR_UNSUPPORTED: there is no encoder. Other errors: the video, the file. */
lvn_status lvni_pose_labeled_open(const lvni_pose_labeled_options *options,
                                  lvni_pose_labeled **out);
/* Draws for about so many seconds, or until a stop is asked for; *done: the file is there, and was
 * reported. */
lvn_status lvni_pose_labeled_draw(lvni_pose_labeled *labeled, double seconds, bool *done);
void lvni_pose_labeled_close(lvni_pose_labeled *labeled); /* NULL is fine */

/* By all ranks, which have more to do: rank 0, which alone has found.value, draws in turns that are
 * shorter than collective_timeout= of `config`. What goes wrong costs this video alone, and is a
 * warning of rank 0; *undrawn there: it is not that there is no encoder. */
lvn_status lvni_pose_labeled_together(const lvni_run_ranks *ranks, const lvni_core_config *config,
                                      const lvni_pose_labeled_options *options, bool *undrawn);

/* ---- of `levin predict` ---- */

/* labeled_video skip_viz eval.frames eval.colormap eval.confidence_thresh_for_vid */
extern const lvni_core_option_table lvni_pose_labeled_keys;
lvn_status lvni_pose_labeled_check(const lvni_core_config *config);
/* eval.frames; NULL: a video is asked for, if anything. */
const char *lvni_pose_labeled_images(const lvni_core_config *config);
bool lvni_pose_labeled_wanted(const lvni_core_config *config);
/* What rank 0 keeps of an inference, whose model is closed when all ranks draw together. */
typedef struct lvni_pose_kept {
    lvni_pose_found found; /* value: of the caller, who frees it */
    char colormap[32];
    double threshold;
} lvni_pose_kept;
/* With the rows of a video and its table in place: draws, if that is asked for, or copies them to
 * the lvni_pose_kept of use->user. A missing encoder is a warning. */
lvn_status lvni_pose_labeled_finish(const lvni_run_inference *use,
                                    const lvni_pose_settings *settings, const char *table,
                                    const lvni_pose_found *found);

#endif
