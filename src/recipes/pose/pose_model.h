/* The networks of all model types behind one face (pose_network.h, pose_context.h): from images to
 * maps, or coordinates, and from these to points with a confidence. A network of two heads gives
 * what the first makes of all images, then what the second does: losses are means over both. */
#ifndef LEVIN_RECIPES_POSE_POSE_MODEL_H
#define LEVIN_RECIPES_POSE_POSE_MODEL_H

#include "recipes/pose/pose_context.h"
#include "recipes/pose/pose_settings.h"

typedef struct lvni_pose_model {
    lvni_pose_model_type type;
    int keypoints, downsample; /* the sides of maps are those of images / 2^downsample */
    int heads;                 /* 1 or 2 */
    int around; /* frames of a clip, in front and behind, that have no result: 0, 2 */
    lvni_pose_network single;
    lvni_pose_regression regression;
    lvni_pose_context context;
} lvni_pose_model;

/* In build(); failures are the builder's. */
void lvni_pose_model_build(lvn_builder *b, lvni_pose_model_type type,
                           const lvni_pose_network_settings *settings, lvni_pose_model *out);
/* images (N, H, W, 3), with context windows (N, 5, H, W, 3): maps (heads N, h, w, K); of regression
 * coordinates (N, K, 2). */
lvn_tensor *lvni_pose_model_run(const lvni_pose_model *m, lvn_tensor *images);
/* The same of a clip (T, H, W, 3), whose frames follow each other: N = T - 2 around. */
lvn_tensor *lvni_pose_model_run_clip(const lvni_pose_model *m, lvn_tensor *clip);
/* Of either, in pixels of the images: (heads N, K, 3), x, y and the confidence; of regression,
 * which has none, (N, K, 2). */
lvn_tensor *lvni_pose_model_points(const lvni_pose_model *m, lvn_tensor *found);
/* Of those: (N, K, 3), for each keypoint the more confident head's; of regression with 0. */
lvn_tensor *lvni_pose_model_choose(const lvni_pose_model *m, lvn_tensor *points);
/* x for every head: (N, ...) -> (heads N, ...) */
lvn_tensor *lvni_pose_model_repeat(const lvni_pose_model *m, lvn_tensor *x);

#endif
