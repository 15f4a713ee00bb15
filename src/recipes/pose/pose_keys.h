/* Keys of the recipe pose: those of Lightning Pose's configuration files, so that such a file can
 * be given as it stands. What is a key of every training here has the file's name as an alias. */
#ifndef LEVIN_RECIPES_POSE_POSE_KEYS_H
#define LEVIN_RECIPES_POSE_POSE_KEYS_H

#include "core/config.h"

/* data.* training.* model.* dali.* losses.* eval.* callbacks.*, to stand before those of every
 * training */
extern const lvni_core_option_table lvni_pose_data_options, lvni_pose_training_options,
    lvni_pose_model_options, lvni_pose_loss_options, lvni_pose_eval_options,
    lvni_pose_unused_options;
/* Defaults of keys of every training. */
extern const char lvni_pose_job[];

/* Once files and arguments are read (lvni_run_defaults): keys that stand for others, paths as they
 * are on this machine, and all rules (pose_rules.h). The second one for a command that reads no
 * data. */
lvn_status lvni_pose_prepare(lvni_core_config *config);
lvn_status lvni_pose_prepare_export(lvni_core_config *config);
/* The paths alone. */
lvn_status lvni_pose_resolve_paths(lvni_core_config *config);

/* "eval.fiftyone, hydra": keys that were given and that levin makes no use of; "": none. The
 * preparation notes them. */
void lvni_pose_unused_keys(const lvni_core_config *config, lvni_core_str *out);

#endif
