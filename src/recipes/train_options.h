/* Option rows that every training command shares, and how they become the plan (optimizer:
 * optim_options.h). */
#ifndef LEVIN_RECIPES_TRAIN_OPTIONS_H
#define LEVIN_RECIPES_TRAIN_OPTIONS_H

#include "core/config.h"
#include "plan/plan.h"
#include "recipes/ranks.h"

/* config out overwrite resume quiet weights seed ... */
extern const lvni_option_table lvni_run_options;
extern const lvni_option_table lvni_batch_options; /* batch_size shards lanes ... */

/* Cores this process may use (affinity). */
int lvni_usable_cores(void);
/* Can this CPU do it? LVN_ERR_UNSUPPORTED. After lvni_cpu_start. */
lvn_status lvni_check_precision(const lvni_config *config);
/* The plan of n training samples for a rank; what rank 0 finds resolved is written back into the
 * configuration. coupled: of the model (lvni_model). */
lvn_status lvni_make_plan(lvni_config *config, int64_t n_samples, const lvni_rank *rank,
                          bool coupled, lvni_plan *out);
/* Before the data is looked at: LVN_ERR_USAGE with the same sentence where no number of samples and
 * no model could make these devices fit. */
lvn_status lvni_check_plan(const lvni_config *config, const lvni_rank *rank);

#endif
