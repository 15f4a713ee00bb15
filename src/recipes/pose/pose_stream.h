/* The stream of clips of a training (pose_clips.h), as configuration and plan have it: frames of a
 * step, and steps of an epoch. Called by pose.c. */
#ifndef LEVIN_RECIPES_POSE_POSE_STREAM_H
#define LEVIN_RECIPES_POSE_POSE_STREAM_H

#include "recipes/pose/pose_clips.h"
#include "recipes/pose/pose_settings.h"
#include "run/options.h"

typedef struct lvni_pose_stream {
    lvn_stream stream; /* its dataset is NULL where no loss is of clips */
    lvni_pose_clips_info info;
} lvni_pose_stream;

/* Is a loss of frames without labels used? */
bool lvni_pose_uses_clips(const lvni_pose_settings *settings);
/* samples: of the training set. With clips steps_per_epoch, where it is not given, becomes what a
 * pass through it takes, at least 10, or what limit_train_batches counts: each step then has a full
 * batch. rank as in lvni_run_count_steps. LVN_ERR_USAGE: a micro-batch would have no frame, or a
 * loss no term; there is no video. */
lvn_status lvni_pose_stream_open(lvni_core_config *config, const lvni_pose_settings *settings,
                                 const lvni_run_rank *rank, int64_t samples, lvni_pose_stream *out);
/* "clips of 5 or 6 frames, 199 in 1 video"; nothing without clips. */
void lvni_pose_stream_describe(const lvni_pose_stream *stream, lvni_core_str *out);
void lvni_pose_stream_close(lvni_pose_stream *stream);

#endif
