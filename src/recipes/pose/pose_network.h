/* The network of the recipe pose: images to one probability map per keypoint, by a backbone of the
 * zoo and a head of a pixel shuffle and transposed convolutions (Biswas et al. 2024, "Lightning
 * Pose"). Parameters are called backbone.* with the zoo's names, head.* as Lightning Pose has it.
 */
#ifndef LEVIN_RECIPES_POSE_POSE_NETWORK_H
#define LEVIN_RECIPES_POSE_POSE_NETWORK_H

#include "nn/model.h"

typedef struct lvni_pose_network_settings {
    const char *model; /* of the zoo: one whose last map has 1/16 or 1/32 of the image's sides */
    int keypoints;     /* K */
    /* 1, 2, with 1/32 3: the sides of maps are those of the image / 2^downsample */
    int downsample;
    const char *head; /* whose parameters are called HEAD.*; NULL: "head" */
} lvni_pose_network_settings;

enum { LVNI_POSE_LEAST_DOWNSAMPLE = 1, LVNI_POSE_MOST_DOWNSAMPLE = 3 };
enum { LVNI_POSE_MOST_LAYERS = 3 };

typedef struct lvni_pose_network {
    lvn_module *backbone, *layer[LVNI_POSE_MOST_LAYERS];
    int layers;
} lvni_pose_network;

/* How often the sides of images are halved in the last map of a network: 4 or 5. */
int lvni_pose_network_halvings(const char *model);
/* In build(); failures are the builder's. */
void lvni_pose_network_build(lvn_builder *b, const lvni_pose_network_settings *settings,
                             lvni_pose_network *out);
/* The backbone's last map of images (N, H, W, 3): (N, H/32, W/32, C), or of transformers (N, H/16,
 * W/16, C). */
lvn_tensor *lvni_pose_network_features(const lvni_pose_network *net, lvn_tensor *image);
/* Of that: (N, h, w, K), each map a distribution over its pixels. */
lvn_tensor *lvni_pose_network_head(const lvni_pose_network *net, lvn_tensor *features);
/* Both. */
lvn_tensor *lvni_pose_network_maps(const lvni_pose_network *net, lvn_tensor *image);
/* x (N, h, w, K) -> the softmax over the pixels of each map. */
lvn_tensor *lvni_pose_softmax(lvn_tensor *x);

/* The network that finds coordinates without maps: a linear layer, head.linear_layer, on the mean
 * of the backbone's last map. Of the settings `downsample` and `head` are not read. */
typedef struct lvni_pose_regression {
    lvn_module *backbone, *linear;
} lvni_pose_regression;

void lvni_pose_regression_build(lvn_builder *b, const lvni_pose_network_settings *settings,
                                lvni_pose_regression *out);
/* Of images (N, H, W, 3): (N, K, 2), x and y in pixels of these images. */
lvn_tensor *lvni_pose_regression_points(const lvni_pose_regression *net, lvn_tensor *image);

#endif
