/* The inside of a meeting, for meeting.c and meeting_ranks.c. */
#ifndef LEVIN_TRAINER_MEETING_IMPL_H
#define LEVIN_TRAINER_MEETING_IMPL_H

#include "core/str.h"
#include "trainer/meeting.h"

#include <pthread.h>

enum { LVNI_MEETING_ROUNDS = 2 };

typedef struct lvni_member {
    lvni_group group; /* first: what the shard's context points at */
    lvni_meeting *meeting;
    bool expected, left;
    uint64_t round;                   /* meetings it came to */
    const char *what;                 /* it came for */
    void *place[LVNI_MEETING_ROUNDS]; /* kept from step to step */
    size_t room[LVNI_MEETING_ROUNDS];
} lvni_member;

struct lvni_meeting {
    int shards;
    lvni_member *member;
    lvni_part *part[LVNI_MEETING_ROUNDS];
    pthread_mutex_t lock;
    pthread_cond_t moved;
    lvni_meeting_ranks ranks;
    int here;       /* shards of this rank that were expected */
    lvni_str said;  /* to the other ranks, kept from step to step */
    int expected;   /* shards that run and have not left */
    int waiting;    /* of them, those who came to this round */
    uint64_t round; /* meetings that are over */
    lvn_status status;
    lvn_error error; /* of the first failure */
};

/* With the lock, when all shards of this rank are here, or have ended: the others' join them.
 * *more: shards of some rank came. */
lvn_status lvni_meeting_meet_ranks(lvni_meeting *m, int place, bool *more);

#endif
