/* Option rows of optimizer, schedule, parameter groups and averages, and how they become what the
 * trainer takes. */
#ifndef LEVIN_RECIPES_OPTIM_OPTIONS_H
#define LEVIN_RECIPES_OPTIM_OPTIONS_H

#include "core/config.h"
#include "optim/ema.h"
#include "optim/optim.h"
#include "plan/plan.h"

/* optim.* scheduler.* freeze lr_scale ema.* use_ema gradient_clip_val */
extern const lvni_core_option_table lvni_recipes_optim_table;

/* LVN_ERR_USAGE: settings that do not go together. */
lvn_status lvni_recipes_read_optim(const lvni_core_config *config, lvni_optim_options *out);
/* Patterns are borrowed from the configuration. */
void lvni_recipes_read_rules(const lvni_core_config *config, lvni_optim_rules *out);
void lvni_recipes_read_ema(const lvni_core_config *config, lvni_optim_ema_options *out);
/* LVN_ERR_USAGE when the run's length does not fit the schedule. */
lvn_status lvni_recipes_read_schedule(const lvni_core_config *config, const lvni_plan *plan,
                                      lvni_optim_schedule *out);
/* Where the cosine or line of a saved run (the configuration of its checkpoint) ends with this many
 * samples; 0: it had none. */
int64_t lvni_recipes_saved_schedule_end(const char *config_json, int64_t n_samples);

#endif
