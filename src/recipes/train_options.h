/* Option rows that every training command shares, and how they become the plan (optimizer:
 * optim_options.h). */
#ifndef LEVIN_RECIPES_TRAIN_OPTIONS_H
#define LEVIN_RECIPES_TRAIN_OPTIONS_H

#include "core/config.h"
#include "plan/plan.h"
#include "recipes/ranks.h"

/* config out overwrite resume quiet weights seed ... */
extern const lvni_core_option_table lvni_recipes_run_options;
/* batch_size micro-batches lanes ... */
extern const lvni_core_option_table lvni_recipes_batch_options;

/* Cores this process may use (affinity). */
int lvni_recipes_usable_cores(void);
/* Can this CPU do it? LVN_ERR_UNSUPPORTED. After lvni_cpu_start. */
lvn_status lvni_recipes_check_precision(const lvni_core_config *config);
/* The plan of n training samples for a rank; what rank 0 finds resolved is written back into the
 * configuration. coupled: of the model (lvni_nn_model). */
lvn_status lvni_recipes_make_plan(lvni_core_config *config, int64_t n_samples,
                                  const lvni_recipes_rank *rank, bool coupled, lvni_plan *out);
/* Before the data is looked at: LVN_ERR_USAGE with the same sentence where no number of samples and
 * no model could make these devices fit. */
lvn_status lvni_recipes_check_plan(const lvni_core_config *config, const lvni_recipes_rank *rank);

#endif
