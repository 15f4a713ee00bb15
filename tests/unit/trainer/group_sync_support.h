/* Micro-batches of a group in lanes, without a trainer: a formula runs in each, and its gradients
 * are compared with differences. */
#ifndef LEVIN_TESTS_GROUP_SYNC_SUPPORT_H
#define LEVIN_TESTS_GROUP_SYNC_SUPPORT_H

#include "autograd/tape.h"
#include "trainer/lanes.h"
#include "trainer/group_sync.h"
#include "support/test.h"

enum { MOST_MICRO_BATCHES = 6, INPUTS = 4 };

typedef struct micro_batches micro_batches;
/* y of one micro-batch, from its inputs. */
typedef lvn_tensor *(*micro_batch_formula)(const micro_batches *all, int micro_batch,
                                           lvn_tensor *const *in);

struct micro_batches {
    int n;
    bool empty[MOST_MICRO_BATCHES];
    lvn_tensor *in[MOST_MICRO_BATCHES][INPUTS]; /* NULL: no such input */
    micro_batch_formula f;
    bool plain; /* r is 1 */
    /* of the last run */
    bool backward;
    bool keep; /* leave y behind, for the test to release */
    lvn_tensor *y[MOST_MICRO_BATCHES];
    double loss[MOST_MICRO_BATCHES]; /* sum(r y), r by micro-batch and element */
    lvn_status status[MOST_MICRO_BATCHES];
    lvni_trainer_lanes *lanes;
    lvni_trainer_group_sync *group_sync;
};

void micro_batches_open(micro_batches *s, int n, micro_batch_formula f);
void micro_batches_close(micro_batches *s);
/* Standard normal values of (micro-batch, input), a leaf. */
lvn_tensor *micro_batches_input(micro_batches *s, int micro_batch, int input, lvn_dtype dtype,
                                int ndim, const int64_t *shape);
/* Every micro-batch once; the status is that of the group sync, or of the lowest micro-batch that
 * failed. */
lvn_status micro_batches_run(micro_batches *s, bool backward);
/* Gradients of all inputs of all micro-batches against central differences, relative to the
 * largest. f64. */
void micro_batches_check_gradients(micro_batches *s, const char *name, double tolerance);

#endif
