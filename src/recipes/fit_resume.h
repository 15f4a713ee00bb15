/* What a run begins with: the file of weights=, or a checkpoint. Called by fit.c. */
#ifndef LEVIN_RECIPES_FIT_RESUME_H
#define LEVIN_RECIPES_FIT_RESUME_H

#include "ckpt/checkpoint.h"
#include "core/config.h"
#include "nn/model.h"
#include "optim/optim.h"

/* Weights of an exported model or a checkpoint into the model, by name; nothing without
 * weights=. */
lvn_status lvni_recipes_load_start(const lvni_core_config *config, lvni_nn_model *model);
/* LVN_ERR_USAGE when the command line gives a run that resumes from `ckpt` other weights to begin
 * with. */
lvn_status lvni_recipes_check_start(const lvni_core_config *config, const lvni_ckpt *ckpt);
/* Logs where the schedule ends at another step than in the saved run. */
void lvni_recipes_report_moved_end(const lvni_core_config *config,
                                   const lvni_optim_schedule *schedule, int64_t n_samples,
                                   const lvni_ckpt *ckpt);
/* Warns of every key that has another value in the resumed run; json: its configuration. */
void lvni_recipes_report_changes(const lvni_core_config *config, const char *json,
                                 const lvni_ckpt *ckpt);

#endif
