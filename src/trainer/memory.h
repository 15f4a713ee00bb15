/* The peak memory of a run, and what it computes, estimated without running it: printed at its
 * start and by `levin plan`; a search for the largest batch asks it. */
#ifndef LEVIN_TRAINER_MEMORY_H
#define LEVIN_TRAINER_MEMORY_H

#include "trainer/trainer.h"

/* Bytes. */
typedef struct lvni_trainer_memory_need {
    uint64_t weights;   /* parameters, buffers, their averages */
    uint64_t gradients; /* all sets, the sum over all ranks, and host copies */
    uint64_t sum;       /* of the gradients, that sum */
    uint64_t optimizer;
    uint64_t lane;     /* tensors and scratch memory of the lane that takes most */
    uint64_t lanes;    /* of all lanes */
    uint64_t copies;   /* reordered weights, shared by the lanes */
    uint64_t batches;  /* of the loaders */
    uint64_t decoding; /* files and pixels on the way into the batches */
    uint64_t saving;   /* the copy that checkpoints and exported models are written from */
    uint64_t total;
    /* tensors of one lane, in the end of that which takes most */
    uint64_t device_lane;
    /* of the total, on the run's device: weights, averages, gradients, optimizer */
    uint64_t device_fixed;
    uint64_t device; /* and with the tensors of all lanes. 0: it computes on the host */
    uint64_t device_limit;
    uint64_t device_val;     /* so much more do tensors of validation take than those of training */
    const char *device_name; /* NULL on the host */
    /* floating-point operations of products for a sample, forward and backward: of the largest
     * micro-batch, which has so many samples; 0: none is known */
    double sample_flops;
    int64_t flops_samples;
    /* samples of the micro-batch or chunk that failed, when the prediction does; 0: it was
     * something else */
    int64_t refused;
    /* the prediction failed with LVN_ERR_UNSUPPORTED: the device's backend lacks kernels */
    bool lacks_kernels;
} lvni_trainer_memory_need;

/* Zeros in host memory, shaped as a batch of the loader. To be freed in every case, by the thread
 * that made it. zeros.c */
typedef struct lvni_trainer_zeros {
    lvni_data_loader_batch batch;
    int64_t *sample;
} lvni_trainer_zeros;
typedef struct lvni_trainer_samples {
    int64_t n, stream[LVN_MAX_STREAMS];
    int64_t in_group; /* of coupled ones: micro-batches of its group that have samples; else 0 */
} lvni_trainer_samples;
lvn_status lvni_trainer_zeros_make(const lvni_trainer_options *options, bool training,
                                   const lvni_trainer_samples *samples, lvni_trainer_zeros *out);
/* The largest micro-batch of a step. */
lvn_status lvni_trainer_zeros_create(const lvni_trainer_options *options, lvni_trainer_zeros *out);
void lvni_trainer_zeros_free(lvni_trainer_zeros *zeros);
/* Calls `use` with each size of micro-batch that a step has, on any rank, also of steps that come
 * only when the run is resumed with another end; of those with most accumulation where that
 * changes by the epoch. memory.c */
typedef lvn_status (*lvni_trainer_zeros_use)(void *user, const lvni_data_loader_batch *batch);
lvn_status lvni_trainer_zeros_each(const lvni_trainer_options *options, lvni_trainer_zeros_use use,
                                   void *user);
/* How long forward and backward of it take where this rank computes, with all of its cores; after
 * lvni_trainer_predict_memory, and not of coupled micro-batches. speed.c */
lvn_status lvni_trainer_measure_micro_batch(const lvni_trainer_options *options, double *seconds);
/* autotune=true: forward and backward of each size, once, while the backend measures its candidates
 * for each problem and records them in the plan's pinned choices (levin/pins.h). On a device.
 * *problems: measured; *others: computed with another candidate than the first. speed.c */
lvn_status lvni_trainer_measure_choices(const lvni_trainer_options *options, int *problems,
                                        int *others);

/* The model exists, nothing else has to. Runs the module's steps on zeros, without kernels. */
lvn_status lvni_trainer_predict_memory(const lvni_trainer_options *options,
                                       lvni_trainer_memory_need *need);
/* The units of the model (units.h), by a dry run of the largest micro-batch. */
struct lvni_trainer_units;
lvn_status lvni_trainer_predict_units(const lvni_trainer_options *options,
                                      struct lvni_trainer_units *units);
/* The host memory of one more rank that is a thread of this process: it has gradient sets, lanes
 * and loaders of its own and shares the rest. The numbers of the device stay, each rank has its
 * own. */
void lvni_trainer_memory_add_thread(lvni_trainer_memory_need *sum,
                                    const lvni_trainer_memory_need *more);
/* Of the total: what lies on a device is not the host's memory, but the simulated device has none
 * of its own. */
uint64_t lvni_trainer_memory_on_host(const lvni_trainer_memory_need *need, bool simulated);
/* "memory: about 1.2 GiB at peak (...)", no newline. */
void lvni_trainer_memory_print(const lvni_trainer_memory_need *need, int lanes, lvni_core_str *out);

#endif
