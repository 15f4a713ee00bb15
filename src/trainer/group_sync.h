/* Group sync: an all-gather by a group of coupled micro-batches. Every lane that runs one of them
 * brings a tensor, waits for the others, and reads the tensors of all. One object serves one group
 * at a time; waves.c opens it before the micro-batches run. */
#ifndef LEVIN_TRAINER_GROUP_SYNC_H
#define LEVIN_TRAINER_GROUP_SYNC_H

#include "dist/group_exchange.h"
#include "tensor/tensor.h"

typedef struct lvni_trainer_group_sync lvni_trainer_group_sync;

/* For groups of `micro_batches`. */
lvn_status lvni_trainer_group_sync_create(int micro_batches, lvni_trainer_group_sync **out);
void lvni_trainer_group_sync_destroy(lvni_trainer_group_sync *group_sync); /* NULL is fine */
/* A new group, without micro-batches yet. While no micro-batch runs. ranks: the group lies on ranks
 * lo .. hi - 1, of which this is `rank`; exchange NULL: on this rank alone. */
typedef struct lvni_trainer_group_sync_ranks {
    lvni_dist_group_exchange *exchange;
    int lo, hi, rank;
} lvni_trainer_group_sync_ranks;
void lvni_trainer_group_sync_open(lvni_trainer_group_sync *group_sync,
                                  const lvni_trainer_group_sync_ranks *ranks);
/* Micro-batch `index` of the group will take part. While no micro-batch runs. */
void lvni_trainer_group_sync_expect(lvni_trainer_group_sync *group_sync, int index);
/* For the context of the micro-batch. */
const lvni_tensor_group *lvni_trainer_group_sync_group(const lvni_trainer_group_sync *group_sync,
                                                       int index);
/* Has the micro-batch exchanged anything with the others yet? */
bool lvni_trainer_group_sync_met(const lvni_tensor_group *group);
/* The micro-batch takes part no more: it is done, or has failed with the thread's last error, which
 * then ends the sync for the others. */
void lvni_trainer_group_sync_leave(lvni_trainer_group_sync *group_sync, int index,
                                   lvn_status status);
/* After this rank's micro-batches: takes part, without them, until the other ranks' micro-batches
 * have ended, too. */
lvn_status lvni_trainer_group_sync_close(lvni_trainer_group_sync *group_sync);
/* After the micro-batches: the first failure, as the thread's error again. */
lvn_status lvni_trainer_group_sync_status(const lvni_trainer_group_sync *group_sync);

/* A group for a dry run: zeros of the same shapes stand for the other micro-batches, of which
 * `present` - 1 have samples. */
typedef struct lvni_trainer_dry_group lvni_trainer_dry_group;
lvn_status lvni_trainer_dry_group_create(int micro_batches, lvni_trainer_dry_group **out);
void lvni_trainer_dry_group_destroy(lvni_trainer_dry_group *group);
const lvni_tensor_group *lvni_trainer_dry_group_get(lvni_trainer_dry_group *group, int present);

#endif
