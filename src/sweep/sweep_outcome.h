/* How a trial's program has ended: its result, from the exit code and from what it wrote. */
#ifndef LEVIN_SWEEP_SWEEP_OUTCOME_H
#define LEVIN_SWEEP_SWEEP_OUTCOME_H

#include "sweep/sweep_records.h"

/* In a trial's folder: `out` of a training, and what other programs write for us. */
#define LVNI_SWEEP_RUN "run"
#define LVNI_SWEEP_LOG "log.txt"
#define LVNI_SWEEP_ERROR "error.json" /* a rank's error record (core/error.h) */

/* From DIR/run/metrics.jsonl (best and last value of plan.metric), the error record, and of the
 * log what begins at log_from. exit_code: 128 + n of signal n. out->attempt and out->seconds stay
 * as they are. What cannot be read is not there. */
void lvni_sweep_outcome(const lvni_sweep_plan *plan, const char *dir, int exit_code,
                        int64_t log_from, lvni_sweep_result *out);
/* Steps in DIR/run/metrics.jsonl so far; 0: none. */
int64_t lvni_sweep_steps(const char *dir);

#endif
