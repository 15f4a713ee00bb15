/* Batches of a step, or of an evaluation, on a device: copied there beside the kernels, those of
 * the next wave while the current one computes. Where threads of the loader are late the batch's
 * memory is taken nevertheless: what a run takes does not depend on time. Each waits for its copy
 * on the device alone; the loader gets a batch back when its copy has run. Called by waves.c and
 * evaluate.c, in the order in which the loader gives batches. */
#ifndef LEVIN_TRAINER_PREFETCH_H
#define LEVIN_TRAINER_PREFETCH_H

#include "data/loader.h"
#include "tensor/copies.h"

typedef struct lvni_trainer_prefetch lvni_trainer_prefetch;

/* For loaders that are created on this device. Of `places` batches the loader's may be held at
 * once: see lvni_data_loader_copied. */
lvn_status lvni_trainer_prefetch_create(lvni_tensor_device *device, int places,
                                        lvni_trainer_prefetch **out);
/* The loader that batches came from must still be there; NULL is fine. */
void lvni_trainer_prefetch_destroy(lvni_trainer_prefetch *prefetch);

/* The next batch, on the device for kernels that are submitted from now on: the oldest of those
 * begun by lvni_trainer_prefetch_ahead; else *held, or where that is NULL, the loader's next, which
 * is waited for. *held: the loader's batch; NULL with LVN_OK: there is no more. */
lvn_status lvni_trainer_prefetch_next(lvni_trainer_prefetch *prefetch, lvni_data_loader *loader,
                                      const lvni_data_loader_batch **held,
                                      const lvni_data_loader_batch **on_device);
/* Begins the copy of `held`; NULL: of the loader's next batch, if that is ready. *begun: it did. At
 * most one per lane before they are asked for. */
lvn_status lvni_trainer_prefetch_ahead(lvni_trainer_prefetch *prefetch,
                                       const lvni_data_loader_batch *held, bool *begun);
/* Takes the memory of the loader's n next batches, which are not ready. As above, at most one per
 * lane. */
lvn_status lvni_trainer_prefetch_reserve(lvni_trainer_prefetch *prefetch, int n);
/* All kernels that read the n oldest batches in use are submitted. release: the loader gets them
 * back, but not before the feed needs their place. */
void lvni_trainer_prefetch_done(lvni_trainer_prefetch *prefetch, int n, bool release);
/* Waits for copies under way, and gives all batches back to the loader. */
void lvni_trainer_prefetch_drop(lvni_trainer_prefetch *prefetch);

#endif
