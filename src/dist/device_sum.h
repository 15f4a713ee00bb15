/* The gradient of a step over ranks that are devices, without the host: NCCL moves the bytes
 * (nccl/), the devices add. The order of additions is that of reduction.h, and so are the bits. It
 * stands beside a communicator over host memory, which everything else of a run goes over.
 *
 * Of each range of floats every rank adds one slice: ranks send each other the slices of their
 * leaves (nodes of the tree over micro-batches), add in the tree, and send the sum to all. All of
 * it runs on the rank's stream, in its order.
 *
 * A phase of a step, on the step's thread:
 *     lvni_dist_device_sum_begin        all ranks' leaves
 *     lvni_dist_device_sum_add          for each range, the same everywhere
 *     a call of the host in stream order: lvni_dist_device_sum_reached
 * and on another thread lvni_dist_device_sum_wait, which ends all when a rank is lost. */
#ifndef LEVIN_DIST_DEVICE_SUM_H
#define LEVIN_DIST_DEVICE_SUM_H

#include "dist/comm.h"
#include "plan/tree.h"

struct lvni_tensor_device;

typedef struct lvni_dist_device_sum lvni_dist_device_sum;

typedef struct lvni_dist_device_sum_options {
    lvni_dist_comm *comm;              /* borrowed */
    struct lvni_tensor_device *device; /* of this rank alone */
    void *stream;                      /* LVN_STREAM_COMPUTE: all is submitted there */
    int micro_batches;                 /* S */
    int leaves;                        /* the most of all ranks together */
    int64_t bucket;                    /* the most floats of a range */
    /* how long NCCL may take to start, and for sums that all ranks have begun; 0: 120 */
    double timeout_s;
} lvni_dist_device_sum_options;

/* Why this process has no NCCL; NULL: it has. Loads it. */
const char *lvni_dist_device_sum_missing(void);
/* Bytes of the device that it takes. */
uint64_t lvni_dist_device_sum_bytes(int leaves, int64_t bucket, int world);

/* A collective: on all ranks or on none. LVN_ERR_USAGE: a device of several ranks, or one that NCCL
 * has no streams of. */
lvn_status lvni_dist_device_sum_create(const lvni_dist_device_sum_options *options,
                                       lvni_dist_device_sum **out);
/* Nothing of it is on the stream any more. NULL is fine; before the communicator. */
void lvni_dist_device_sum_destroy(lvni_dist_device_sum *sum);

/* leaf: of all ranks, ascending; slot: whose it is. *number: of the phase. */
lvn_status lvni_dist_device_sum_begin(lvni_dist_device_sum *sum, const lvni_plan_tree_node *leaf,
                                      int n_leaves, uint64_t *number);
/* total[begin, begin + n) = the sum of all leaves there; mine: this rank's, which are overwritten.
 * Memory of the device. Submits, and waits for no rank except while NCCL connects. */
lvn_status lvni_dist_device_sum_add(lvni_dist_device_sum *sum, float *const *mine, float *total,
                                    int64_t begin, int64_t n);
/* The stream is behind phase `number`. Any thread. */
void lvni_dist_device_sum_reached(lvni_dist_device_sum *sum, uint64_t number);
/* Any thread but the step's: until reached. When the run is aborted, NCCL reports an error or the
 * time is over, NCCL is aborted, so that the stream goes on (with no sums), and the error is
 * returned. LVN_ERR_PEER for what another rank began. */
lvn_status lvni_dist_device_sum_wait(lvni_dist_device_sum *sum, uint64_t number);

#endif
