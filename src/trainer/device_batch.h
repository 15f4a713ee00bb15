/* Batches on their way from the loader, which fills host memory, to the device of the thread that
 * computes with them. Called by step.c, evaluate.c and, for what that takes, memory.c. */
#ifndef LEVIN_TRAINER_DEVICE_BATCH_H
#define LEVIN_TRAINER_DEVICE_BATCH_H

#include "data/loader.h"

/* The batch with its fields on the device of the calling thread's context (on the host: the same
 * fields). `from` may be given back to the loader when this returns. Free with
 * lvni_trainer_device_batch_free, also after a failure. */
lvn_status lvni_trainer_device_batch_make(const lvni_data_loader_batch *from,
                                          lvni_data_loader_batch *out);
void lvni_trainer_device_batch_free(lvni_data_loader_batch *batch);

#endif
