/* The watchdog of a process with ranks: a thread that ends the run when a rank has waited for the
 * others longer than collective_timeout= allows, because another one's thread hangs or has left a
 * collective out. (Processes that end and networks that fail are found by the control channel.)
 *
 * It looks at the records of dist/rank_progress.h. Once one rank's wait is over, the watchdogs of
 * all processes answer over the store where their ranks are; the rank on which the others wait, or
 * the one that found it, reports it as the cause: LVN_ERR_PEER on all ranks, whose message is a
 * table of the ranks. A process whose rank does not come back from its work then ends with code 76.
 */
#ifndef LEVIN_RUN_WATCHDOG_H
#define LEVIN_RUN_WATCHDOG_H

#include "run/ranks.h"

typedef struct lvni_run_watchdog lvni_run_watchdog;

/* Of these ranks, which are borrowed until it stops. process: of its processes the one that this
 * is; 0 without a control channel. *out NULL: there is nothing to watch. */
lvn_status lvni_run_watchdog_start(const lvni_core_config *config, const lvni_run_ranks *ranks,
                                   lvni_control *control, int process, lvni_run_watchdog **out);
/* The ranks of this process have ended. The thread's last error stays; NULL is fine. */
void lvni_run_watchdog_stop(lvni_run_watchdog *watchdog);

#endif
