/* What must hold between the keys of the recipe pose, and between them and the project. */
#ifndef LEVIN_RECIPES_POSE_POSE_RULES_H
#define LEVIN_RECIPES_POSE_POSE_RULES_H

#include "core/config.h"

/* Adds each violation to the configuration's mistakes. Paths are as pose_prepare.c makes them. */
lvn_status lvni_pose_check_keys(lvni_core_config *config);
/* The same between keys, labels, images and split. */
lvn_status lvni_pose_check_project(lvni_core_config *config);
/* Steps end the training, and milestones and unfreezing are in steps: keys that Lightning Pose has
 * in place of those of epochs. */
bool lvni_pose_counts_steps(const lvni_core_config *config);

#endif
