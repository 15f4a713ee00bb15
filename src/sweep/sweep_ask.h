/* Strategy exec:COMMAND: a program is asked for the next trial. It runs in a shell, as long as its
 * worker, and reads and writes JSON lines:
 *
 *   to it    {"sweep": "lr", "metric": "val/loss", "mode": "min", "seed": 0, "trials": 40,
 *             "space": [["sample", "lr=loguniform(1e-5,1e-1)"], ...]}       first; trials 0: no
 * limit
 *            {"trial": 3, "parameters": {"lr": "0.01"}, "state": "done", "value": 0.31}
 *               each trial that there is, when it becomes known and when it has ended; `value` is
 *               null unless it has one; state: running, done, diverged, failed or pruned
 *            {"ask": 7}
 *   from it  {"parameters": {"lr": 0.003, "layers": 4}}, {"stop": true}, or {"wait": true}: it
 * needs a trial to end first
 *
 * Several workers have a program each, which see the same trials. It must answer within ASK_S. */
#ifndef LEVIN_SWEEP_SWEEP_ASK_H
#define LEVIN_SWEEP_SWEEP_ASK_H

#include "sweep/sweep_records.h"

typedef struct lvni_sweep_asker lvni_sweep_asker;

typedef enum lvni_sweep_answer {
    LVNI_SWEEP_ANSWER_TRIAL, /* plan->n_trials has grown, by this program or by another worker's */
    LVNI_SWEEP_ANSWER_WAIT,
    LVNI_SWEEP_ANSWER_STOP /* also where plan->most are there */
} lvni_sweep_answer;

/* What the worker does while the program thinks, several times a second. false: the answer is not
 * wanted any more. */
typedef bool lvni_sweep_meanwhile(void *user);

/* Both are borrowed. Starts nothing yet. */
lvn_status lvni_sweep_asker_create(lvni_sweep_plan *plan, lvni_sweep_reader *reader,
                                   lvni_sweep_asker **out);
/* LVNI_SWEEP_ANSWER_STOP also where `meanwhile` ended the waiting; it may not be asked again then.
 * LVN_ERR_IO: the program cannot be started, has ended, or does not answer. */
lvn_status lvni_sweep_asker_next(lvni_sweep_asker *a, lvni_sweep_meanwhile *meanwhile, void *user,
                                 lvni_sweep_answer *answer);
void lvni_sweep_asker_destroy(lvni_sweep_asker *a); /* NULL is fine */

#endif
