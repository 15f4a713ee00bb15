/* The losses of labelled frames (Biswas et al. 2024): of maps against those of the labels, and the
 * error of coordinates. */
#ifndef LEVIN_RECIPES_POSE_POSE_LOSS_H
#define LEVIN_RECIPES_POSE_POSE_LOSS_H

#include "nn/model.h"

typedef enum lvni_pose_loss {
    LVNI_POSE_MSE, /* sum over the pixels of (target - map)^2 */
    LVNI_POSE_KL,  /* sum of target log(target / map), 1e-10 added to both */
    LVNI_POSE_JS   /* mean of the KL divergences of both from their mean, 1e-10 added to both */
} lvni_pose_loss;

/* 1 / (2 e^w), the factor of a loss with log_weight w. */
double lvni_pose_loss_weight(double log_weight);
/* () f32, without a gradient: as a metric, or a sum over micro-batches. */
lvn_tensor *lvni_pose_number(double value);

/* target and map (N, h, w, K), valid (N, K) 1 or 0 -> (), the mean over the maps with valid = 1 of
 * the loss of each, without its factor; 0 where there is none. *count: (), how many there are. Of
 * f32 or f64; gradients go to the map. */
lvn_tensor *lvni_pose_heatmap_loss(lvni_pose_loss kind, lvn_tensor *target, lvn_tensor *map,
                                   lvn_tensor *valid, lvn_tensor **count);

/* What a batch has beside its maps, to compare coordinates in the frames' pixels. */
typedef struct lvni_pose_scale {
    int height, width; /* of the network's input */
    lvn_tensor *frame; /* (N, 2): width and height of each frame */
} lvni_pose_scale;

/* found (N, K, 2 or more) in pixels of the model, x and y first -> (N, K, 2) in those of the frame,
 * of which there may also be one for all. */
lvn_tensor *lvni_pose_to_frame(lvn_tensor *found, const lvni_pose_scale *scale);

/* found (N, K, 2 or more) and label (N, K, 2 or more) in pixels of the model -> (), in pixels of
 * the frame the mean of the squared differences over the coordinates of keypoints with valid = 1; 0
 * where there is none. *count: (), such keypoints. The loss of a network that finds coordinates. */
lvn_tensor *lvni_pose_regression_loss(lvn_tensor *found, lvn_tensor *label, lvn_tensor *valid,
                                      const lvni_pose_scale *scale, lvn_tensor **count);

/* Of the same two (N, K), sqrt(((dx)^2 + (dy)^2) / 2) in pixels of the frame; no gradient. */
lvn_tensor *lvni_pose_errors(lvn_tensor *found, lvn_tensor *label, const lvni_pose_scale *scale);
/* Its mean over the keypoints with valid = 1, 0 where there is none; *count as above. */
lvn_tensor *lvni_pose_rmse(lvn_tensor *found, lvn_tensor *label, lvn_tensor *valid,
                           const lvni_pose_scale *scale, lvn_tensor **count);

#endif
