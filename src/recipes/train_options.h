/* Option rows that every training command shares, and how they become plan, optimizer and schedule. */
#ifndef LEVIN_RECIPES_TRAIN_OPTIONS_H
#define LEVIN_RECIPES_TRAIN_OPTIONS_H

#include "core/config.h"
#include "optim/optim.h"
#include "plan/plan.h"

extern const lvni_option_table lvni_run_options;   /* config out overwrite resume quiet weights seed ... */
extern const lvni_option_table lvni_batch_options; /* batch_size shards lanes ... */
extern const lvni_option_table lvni_optim_table;   /* optim.* scheduler.* gradient_clip_val */

/* Cores this process may use (affinity). */
int lvni_usable_cores(void);
/* num_workers, or what auto stands for. */
int lvni_worker_count(const lvni_config *config);
/* The plan of n training samples; resolved values are written back into the configuration. */
lvn_status lvni_make_plan(lvni_config *config, int64_t n_samples, lvni_plan *out);
void lvni_read_optim(const lvni_config *config, lvni_optim_options *out);
/* LVN_ERR_USAGE when the run's length does not fit the schedule. */
lvn_status lvni_read_schedule(const lvni_config *config, const lvni_plan *plan, lvni_schedule *out);
/* Where the cosine of a saved run (the configuration of its checkpoint) ends with this many samples; 0: it had none. */
int64_t lvni_saved_cosine_end(const char *config_json, int64_t n_samples);

#endif
