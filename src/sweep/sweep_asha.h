/* Asynchronous successive halving, the stopping variant: a trial that reports what it has reached
 * at a rung stops there unless it is among the best 1/eta of what has been recorded at that rung.
 *
 * DIR/rungs/000003/record.N   of the rung at epoch 3. N counts from 1 on, without gaps: a record is
 *           a whole file that gets its number by link(2), as a claim does (sweep_records.h). Its
 *           decision rests on records 1 to N alone, which are there when it is linked and never
 *           change, so it can be computed again at any time. JSON: trial, attempt, epoch, value;
 *           saw, the number N; place, the trial's among them; kept, how many go on; stop.
 * DIR/trials/000017/pruned.K  attempt K has been asked to stop at a rung. JSON: rung and record.
 *
 * A trial has one record at each rung. When it reports there once more, as after a kill, it gets
 * the same answer; after `levin sweep resume pruned=[17]` it goes on from there.
 *
 * Called by `levin sweep report`, by workers for trainings, and by what reads the result of a trial
 * (sweep_outcome.c). */
#ifndef LEVIN_SWEEP_SWEEP_ASHA_H
#define LEVIN_SWEEP_SWEEP_ASHA_H

#include "sweep/sweep_records.h"

/* Epoch of the highest rung that `epoch` has reached: min * eta^k, less than max. 0: none yet. */
int64_t lvni_sweep_rung_of(const lvni_sweep_asha *asha, int64_t epoch);

typedef struct lvni_sweep_verdict {
    int64_t place; /* of the last value among all, from 1 on; equal ones in the order they came */
    int64_t kept;  /* so many go on: all while there are fewer than eta, else ceil(n / eta) */
    bool stop;
} lvni_sweep_verdict;
/* About the last of n >= 1 values. One that is not finite is the worst, and stops. */
lvni_sweep_verdict lvni_sweep_asha_decide(int64_t eta, bool maximize, const double *values,
                                          int64_t n);

/* Who reports what. */
typedef struct lvni_sweep_report {
    int64_t trial, attempt, epoch;
    double value;
} lvni_sweep_report;

typedef struct lvni_sweep_record {
    lvni_sweep_report of;
    int64_t saw; /* its number */
    lvni_sweep_verdict verdict;
} lvni_sweep_record;

/* Records 1 to *n of the rung at that epoch, the caller's; a rung without a folder has none. */
lvn_status lvni_sweep_rung_read(const lvni_sweep_plan *plan, int64_t rung, lvni_sweep_record **out,
                                int64_t *n);

/* Is the trial to stop? True also at the last epoch, where it has ended and is not pruned. */
lvn_status lvni_sweep_asha_report(const lvni_sweep_plan *plan, const lvni_sweep_report *report,
                                  const lvni_sweep_owner *by, bool *stop);
/* Of a training: reports what its metrics.jsonl has of rungs above *rung, which becomes the highest
 * one that was reported. Is the trial to stop at one of them? */
lvn_status lvni_sweep_asha_follow(const lvni_sweep_plan *plan, int64_t trial, int64_t attempt,
                                  const lvni_sweep_owner *by, int64_t *rung, bool *stop);
/* Was this attempt of the trial in folder `dir` asked to stop at a rung? */
bool lvni_sweep_was_pruned(const char *dir, int64_t attempt);

#endif
