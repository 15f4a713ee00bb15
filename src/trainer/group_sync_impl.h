/* Inside of the group sync, for group_sync.c and group_sync_ranks.c. */
#ifndef LEVIN_TRAINER_GROUP_SYNC_IMPL_H
#define LEVIN_TRAINER_GROUP_SYNC_IMPL_H

#include "core/str.h"
#include "trainer/group_sync.h"

#include <pthread.h>

enum { LVNI_GROUP_SYNC_ROUNDS = 2 };

typedef struct lvni_trainer_member {
    lvni_tensor_group group; /* first: what the micro-batch's context points at */
    lvni_trainer_group_sync *group_sync;
    bool expected, left;
    uint64_t round;                      /* syncs that it has begun */
    const char *what;                    /* the op of the last one */
    void *place[LVNI_GROUP_SYNC_ROUNDS]; /* kept from step to step */
    size_t room[LVNI_GROUP_SYNC_ROUNDS];
} lvni_trainer_member;

struct lvni_trainer_group_sync {
    int micro_batches;
    lvni_trainer_member *member;
    lvni_tensor_part *part[LVNI_GROUP_SYNC_ROUNDS];
    pthread_mutex_t lock;
    pthread_cond_t moved;
    lvni_trainer_group_sync_ranks ranks;
    int here;              /* micro-batches of this rank that were expected */
    lvni_core_str message; /* to the other ranks, kept from step to step */
    int expected;          /* micro-batches that run and have not left */
    int waiting;           /* of them, those that wait in this round */
    uint64_t round;        /* syncs that are complete */
    lvn_status status;
    lvn_error error; /* of the first failure */
};

/* With the lock, when all micro-batches of this rank wait, or have ended: adds the other ranks'
 * parts. *more: micro-batches of some rank still take part. */
lvn_status lvni_trainer_group_sync_exchange(lvni_trainer_group_sync *m, int place, bool *more);

#endif
