/* The part of a step that looks at frames without labels: the losses of a clip
 * (pose_unsupervised.h) with their factors, and how a step of two means, over labels and over
 * clips, is one. Called by pose_module.c. */
#ifndef LEVIN_RECIPES_POSE_POSE_CLIP_STEP_H
#define LEVIN_RECIPES_POSE_POSE_CLIP_STEP_H

#include "recipes/pose/pose.h"
#include "recipes/pose/pose_model.h"
#include "recipes/pose/pose_unsupervised.h"

/* What of one loss the graph reads. */
typedef struct lvni_pose_clip_loss {
    bool used;
    double factor; /* 1 / (2 e^w), before annealing */
    lvni_pose_temporal temporal;
    lvni_pose_subspace subspace; /* of pca */
} lvni_pose_clip_loss;

typedef struct lvni_pose_clip_losses {
    int height, width; /* of the network's input */
    lvni_pose_clip_loss loss[LVNI_POSE_UNSUPERVISED];
    const lvn_number *importance; /* the annealed factor on all of them */
} lvni_pose_clip_losses;

/* In build(), which couples the micro-batches. The root's arguments: .clips is true. Checkpoints
 * have the principal components of the losses that are used; a model that is not trained is built
 * without. LVN_ERR_USAGE: a loss has no fit. */
lvn_status lvni_pose_clip_losses_build(lvn_builder *b, const lvni_pose_arguments *of,
                                       const lvni_pose_model *net, lvni_pose_clip_losses *out);
/* () the losses of the micro-batch's clip with their factors, before annealing; each is logged.
 * clip: fields of pose_clips.h, frames that follow each other. */
lvn_tensor *lvni_pose_clip_losses_run(const lvni_pose_clip_losses *l, const lvni_pose_model *net,
                                      const lvn_batch *clip, lvn_step *step);

/* The loss of a micro-batch with both parts: `supervised`, a mean over count () labels, and
 * `unsupervised`, a mean over the frames of its clip that have a result. Of all micro-batches of
 * the group the gradient is that of the mean over their labels plus that of the mean over their
 * frames: one weight, the frames, is the step's, and the labels' part is weighed against it. */
lvn_tensor *lvni_pose_clip_join(lvn_tensor *supervised, lvn_tensor *count, lvn_tensor *unsupervised,
                                int64_t frames, lvn_step *step);

#endif
