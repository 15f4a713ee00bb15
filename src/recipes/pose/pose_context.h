/* The network of model_type heatmap_mhcrnn: of five frames the maps of the middle one, by two
 * heads (Biswas et al. 2024, "Lightning Pose", "temporal context network"). The first is that of
 * pose_network.h on the middle frame; the second runs a convolutional recurrence over the five,
 * forwards and backwards. Each frame passes the backbone once, and windows of five are formed of
 * what the layers before the recurrence make of it. Parameters are called as Lightning Pose has
 * them: head.head_sf.* and head.head_mf.*. */
#ifndef LEVIN_RECIPES_POSE_POSE_CONTEXT_H
#define LEVIN_RECIPES_POSE_POSE_CONTEXT_H

#include "recipes/pose/pose_network.h"

/* Frames of a window, and those before and after the middle one. */
enum { LVNI_POSE_WINDOW = 5, LVNI_POSE_WINDOW_SIDE = LVNI_POSE_WINDOW / 2 };
/* The sides of its maps are those of the image / 2^2, whatever the settings have. */
enum { LVNI_POSE_CONTEXT_DOWNSAMPLE = 2 };

/* One direction of the recurrence: state = in(frame) + back(squeeze(state before)). */
typedef struct lvni_pose_recurrence {
    lvn_module *in, *squeeze, *back;
} lvni_pose_recurrence;

typedef struct lvni_pose_context {
    lvni_pose_network single; /* backbone and head_sf */
    lvn_module *pre;          /* NULL where the backbone's maps have 1/16 of the sides */
    lvni_pose_recurrence forwards, backwards;
} lvni_pose_context;

/* What both heads make of the same frames; NULL after a failure of the scope. */
typedef struct lvni_pose_both {
    lvn_tensor *single, *multi;
} lvni_pose_both;

/* In build(); failures are the builder's. Of the settings `model` and `keypoints` are read. */
void lvni_pose_context_build(lvn_builder *b, const lvni_pose_network_settings *settings,
                             lvni_pose_context *out);
/* images (N, 5, H, W, 3): maps (N, H/4, W/4, K). */
lvni_pose_both lvni_pose_context_of_windows(const lvni_pose_context *net, lvn_tensor *images);
/* clip (T, H, W, 3), T >= 5 frames that follow each other: maps (T - 4, H/4, W/4, K) of all but the
 * first two and last two. */
lvni_pose_both lvni_pose_context_of_clip(const lvni_pose_context *net, lvn_tensor *clip);
/* Of the backbone's maps (frames, h, w, C) instead: of a clip of five frames or more, or of
 * windows, five frames for each. */
lvni_pose_both lvni_pose_context_heads(const lvni_pose_context *net, lvn_tensor *features,
                                       bool clip);
/* The second head's behind the first's: (2 N, ...). Losses are means over both. */
lvn_tensor *lvni_pose_context_join(lvni_pose_both both);
/* Of points (N, K, 3) with a confidence as third number: for each keypoint those of the second head
 * where it is more confident, else those of the first. */
lvn_tensor *lvni_pose_context_choose(lvni_pose_both points);

#endif
