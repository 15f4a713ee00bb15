/* An all-gather of messages by some neighbouring ranks while the others do something else: the
 * values that the micro-batches of a group exchange in a step, when the group lies on several
 * ranks. Works over whatever memory the transport shares, beside its collectives and a reduction
 * under way. */
#ifndef LEVIN_DIST_GROUP_EXCHANGE_H
#define LEVIN_DIST_GROUP_EXCHANGE_H

#include "dist/comm.h"

typedef struct lvni_dist_group_exchange lvni_dist_group_exchange;

/* A collective of all ranks. [lo, hi): holds all ranks of the runs that this one takes part in. */
lvn_status lvni_dist_group_exchange_create(lvni_dist_comm *comm, int lo, int hi,
                                           lvni_dist_group_exchange **out);
/* not a collective; NULL is fine; before the communicator */
void lvni_dist_group_exchange_destroy(lvni_dist_group_exchange *exchange);

typedef struct lvni_dist_group_message {
    const void *data;
    size_t bytes;
} lvni_dist_group_message;

/* Each of ranks lo .. hi - 1, which include this one, sends `mine` to the others; (*message)[i]:
 * that of rank lo + i, valid until this rank's next exchange. They call it equally often, and a
 * rank takes part in two such runs at most, which stay the same: one that begins with it, and one
 * that begins before it. Any thread, one at a time. LVN_ERR_PEER as all of comm.h. */
lvn_status lvni_dist_group_exchange_run(lvni_dist_group_exchange *exchange, int lo, int hi,
                                        const void *mine, size_t bytes,
                                        const lvni_dist_group_message **message);

#endif
