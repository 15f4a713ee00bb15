/* The root of the recipe pose, as the files of its step see it. */
#ifndef LEVIN_RECIPES_POSE_POSE_STEP_H
#define LEVIN_RECIPES_POSE_POSE_STEP_H

#include "recipes/pose/pose_clip_step.h"

typedef struct lvni_pose_root {
    lvn_module base;
    lvni_pose_arguments of;
    lvni_pose_model net;
    lvni_pose_clip_losses clips; /* with of.clips */
} lvni_pose_root;

/* ---- pose_module.c ---- */

/* Rows of predictions (N, 3 K) of points (N, K, 3) in pixels of the model (lvni_pose_model_choose):
 * x, y in pixels of the frame, and the likelihood. frame (N, 2), or (1, 2) for all: its width and
 * height. */
lvn_tensor *lvni_pose_rows(const lvni_pose_root *m, lvn_tensor *points, lvn_tensor *frame);

/* ---- pose_predict_clip.c ---- */

/* lvni_pose_predict of a clip of a video (pose_cut.h): rows of its first two and last two frames
 * are 0; NaN are those of windows with a frame that could not be read. */
lvn_tensor *lvni_pose_predict_clip(const lvni_pose_root *m, const lvn_batch *batch);

#endif
