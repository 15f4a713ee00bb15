/* What a user changes of a sweep that has a plan: its stop, and which trials run once more. Each is
 * a file made or renamed, so killed at any place and called again it comes to the same. */
#ifndef LEVIN_SWEEP_SWEEP_CONTROL_H
#define LEVIN_SWEEP_SWEEP_CONTROL_H

#include "sweep/sweep_records.h"

/* Makes the file `stop` (sweep_records.h): of the sweep, or with trial >= 0 of this trial. */
lvn_status lvni_sweep_stop(const lvni_sweep_plan *plan, int64_t trial);
/* Removes `stop` of the sweep and of all its trials. */
lvn_status lvni_sweep_unstop(const lvni_sweep_plan *plan);
/* Ends the workers of this host that run one of the n trials now, with SIGTERM; each once. *asked:
 * how many. They see the file `stop` as well, with the next beat. */
lvn_status lvni_sweep_stop_here(const lvni_sweep_look *looks, int64_t n, int64_t *asked);

/* A trial that failed or was pruned (look) is pending again, its result renamed to failed.K, with K
 * its last attempt. */
lvn_status lvni_sweep_again(const lvni_sweep_plan *plan, int64_t trial,
                            const lvni_sweep_look *look);

#endif
