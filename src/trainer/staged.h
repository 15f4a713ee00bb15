/* The gradient of a step over ranks whose reduction does not read the memory of their devices
 * (dist/reduction.h): it goes through host memory that the device copies to and from, bucket by
 * bucket, and the step's thread waits for none of it. It submits the copies of what this rank owes
 * and gives the communication thread (comm_thread.h) a job: wait for each bucket, reduce, exchange
 * losses, weights and metrics. Then it submits the way back, which the device begins when it is
 * done, the update, and the next step. What the update depends on beside the device's numbers
 * (weights and marks of micro-batches) is exchanged first, by the same thread.
 *
 * Where the communicator adds between devices (lvni_dist_comm_adds_between_devices) there is no
 * reduction and no copy: the sums are submitted instead (dist/device_sum.h, staged_sum.c), and the
 * thread exchanges the rest.
 *
 * A phase of a step, after its last wave:
 *     lvni_trainer_staged_send
 *     lvni_trainer_staged_exchange
 *     lvni_trainer_staged_receive     unless no rank has a leaf
 *
 * Called by gradient_sync.c. */
#ifndef LEVIN_TRAINER_STAGED_H
#define LEVIN_TRAINER_STAGED_H

#include "dist/reduction.h"
#include "nn/model.h"
#include "trainer/trainer.h"

struct lvni_trainer_deferred;

typedef struct lvni_trainer_staged lvni_trainer_staged;

typedef struct lvni_trainer_staged_options {
    /* no other part of a step uses these two */
    lvni_dist_comm *comm;
    lvni_dist_reduction *reduction;         /* NULL: gradients are added between devices */
    int64_t bucket;                         /* then: floats that are added at once */
    const lvni_nn_model *model;             /* borrowed */
    struct lvni_trainer_deferred *deferred; /* borrowed: what a step finds out */
    struct lvni_tensor_device *device;
    int sets;       /* of the reduction */
    size_t message; /* the most bytes of a message that is exchanged */
} lvni_trainer_staged_options;

/* Scratch memory of sums between devices. */
uint64_t lvni_trainer_staged_bytes(const lvni_trainer_options *options);
/* LVN_ERR_MEMORY; without a reduction a collective. */
lvn_status lvni_trainer_staged_create(const lvni_trainer_staged_options *options,
                                      lvni_trainer_staged **out);
/* Waits for the job under way. Before the reduction and the communicator; NULL is fine. */
void lvni_trainer_staged_destroy(lvni_trainer_staged *staged);

/* What this rank owes: n nodes, leaf[i] in set[i], in memory of the device. */
lvn_status lvni_trainer_staged_send(lvni_trainer_staged *staged, const lvni_plan_tree_node *leaf,
                                    lvni_nn_set *const *set, int n);
/* A collective: all ranks' messages, when the phase before is reduced. */
lvn_status lvni_trainer_staged_exchange(lvni_trainer_staged *staged, const void *message,
                                        size_t bytes);
/* Valid until the next exchange. */
const void *lvni_trainer_staged_reported(const lvni_trainer_staged *staged, int rank,
                                         size_t *bytes);
/* Some rank has a leaf. */
bool lvni_trainer_staged_any(const lvni_trainer_staged *staged);
/* For what is submitted from now on `total`, in memory of the device, holds the sum of all leaves
 * in what the phase trains and behind the weights, and the late step its losses and sums of
 * squares. */
lvn_status lvni_trainer_staged_receive(lvni_trainer_staged *staged, float *total);
/* Waits for the job under way: what comes next uses the communicator itself. */
lvn_status lvni_trainer_staged_rest(lvni_trainer_staged *staged);
lvni_dist_reduction_times lvni_trainer_staged_times(lvni_trainer_staged *staged);

#endif
