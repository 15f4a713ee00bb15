/* One micro-batch: its way to the device, forward, backward. Called by the lanes of a step
 * (waves.c), by the prediction of memory on a device without memory (memory.c), and, for the way to
 * the device, by prefetch.c and evaluate.c. */
#ifndef LEVIN_TRAINER_MICRO_BATCH_H
#define LEVIN_TRAINER_MICRO_BATCH_H

#include "data/loader.h"
#include "dist/rank_progress.h"
#include "nn/model.h"
#include "nn/step_metrics.h"
#include "plan/plan.h"
#include "tensor/copies.h"
#include "trainer/group_sync.h"
#include "trainer/scaler.h"

/* What becomes of a micro-batch whose loss is not finite. Nothing of it is kept but its count: its
 * gradient is zeros, on any layout, and its weight 0 (skip) or what it is (zero). */
typedef enum lvni_trainer_bad_batch {
    LVNI_BAD_BATCH_STOP,
    LVNI_BAD_BATCH_SKIP,
    LVNI_BAD_BATCH_ZERO
} lvni_trainer_bad_batch;

/* Of "stop", "skip", "zero". */
lvni_trainer_bad_batch lvni_trainer_bad_batch_of(const char *name);

/* A phase of a step, as its micro-batches see it: the same for all of them. */
typedef struct lvni_trainer_pass {
    const lvni_nn_model *model;
    lvni_dist_comm *comm; /* which has the place in the step (dist/rank_progress.h); NULL: none */
    uint64_t seed;
    int64_t step, epoch;           /* that are done before this one */
    const int64_t *step_on_device; /* the step in memory of the device; NULL: nowhere */
    int phase;
    double loss_factor;             /* lvni_trainer_loss_factor */
    const double *factor_on_device; /* the same in memory of the device, and newer; NULL: nowhere */
    double number[LVNI_NUMBERS];    /* values of the model's numbers */
    const double *numbers_on_device; /* the same in memory of the device; NULL: nowhere */
    bool scaled; /* 16-mixed: a loss that is not finite is an overflow, the step is skipped */
    bool detect_anomaly; /* the op that makes the first number that is not finite ends the run */
    lvni_trainer_bad_batch on_bad_batch;
} lvni_trainer_pass;

typedef struct lvni_trainer_micro_batch_job {
    const lvni_data_loader_batch *batch;     /* of the loader, in host memory */
    const lvni_data_loader_batch *on_device; /* where lanes compute; NULL: the same */
    lvni_nn_set *set;                        /* NULL: it has no samples */
    lvni_nn_step step;                       /* what it reports */
    /* memory of the device for the loss, and terms for what it logs, read later; NULL: read at
     * once */
    double *loss;
    lvni_nn_terms *terms;
    /* of its group; NULL: the micro-batches are not coupled, or this one has no samples */
    lvni_trainer_group_sync *group_sync;
    lvn_tensor *result; /* between the two passes: the loss; NULL: of another stage */
} lvni_trainer_micro_batch_job;

/* A micro-batch's loss goes into the backward pass times its weight and this, which divides the
 * summed gradient again: 1, and in 16-mixed the loss scale over the samples of the largest
 * micro-batch. f16 gradients are then those of scale x mean loss in a micro-batch of that size, and
 * per sample the same in a smaller one. In the seed and not in the merge: a coupled micro-batch's
 * gradient goes on into other micro-batches'. */
double lvni_trainer_loss_factor(const lvni_plan *plan, const lvni_trainer_scaler *scaler);

/* Forward and backward of job->there, which lies where the thread's context computes. Writes
 * job->set and job->step. LVN_ERR_NON_FINITE: the loss is not finite. */
lvn_status lvni_trainer_run_micro_batch(const lvni_trainer_pass *pass,
                                        lvni_trainer_micro_batch_job *job);

/* The same in two calls, of a model in stages (stages.h), in one context; after a failure of the
 * first not the second. */
lvn_status lvni_trainer_forward_micro_batch(const lvni_trainer_pass *pass,
                                            lvni_trainer_micro_batch_job *job);
lvn_status lvni_trainer_backward_micro_batch(const lvni_trainer_pass *pass,
                                             lvni_trainer_micro_batch_job *job);

/* LVN_ERR_NON_FINITE, with the message of a loss. batch: names its samples; NULL: unknown. */
lvn_status lvni_trainer_fail_loss(const lvni_trainer_pass *pass, double value, int64_t micro_batch,
                                  const lvn_batch *batch);

/* Memory of the device for the fields of a batch that is not there yet: zeros are an empty one. */
typedef struct lvni_trainer_batch_room {
    lvn_tensor *field[1 + LVN_MAX_STREAMS][LVN_MAX_FIELDS];
} lvni_trainer_batch_room;
/* Free it also after a failure. */
lvn_status lvni_trainer_batch_room_make(const lvni_data_loader_shape *shape,
                                        lvni_tensor_device *device, lvni_trainer_batch_room *out);
void lvni_trainer_batch_room_free(lvni_trainer_batch_room *room);

/* The batch with its fields on the device of `copies`, copied beside its kernels: of a batch in
 * memory of lvni_tensor_host_take. Nothing to copy when it has no samples. They get the room, as
 * far as it fits, which is empty afterwards; NULL: none. Free with lvni_trainer_device_batch_free,
 * also after a failure. */
lvn_status lvni_trainer_device_batch_begin(const lvni_data_loader_batch *from,
                                           lvni_tensor_copies *copies,
                                           lvni_trainer_batch_room *room,
                                           lvni_data_loader_batch *out);
void lvni_trainer_device_batch_free(lvni_data_loader_batch *batch);

#endif
