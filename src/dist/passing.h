/* Messages from one rank to another, for ranks that are threads of one process. Sending copies and
 * never waits; a message is found by its tag, so that two that are under way between the same ranks
 * may be received in any order. */
#ifndef LEVIN_DIST_PASSING_H
#define LEVIN_DIST_PASSING_H

#include "dist/comm.h"

typedef struct lvni_dist_passing lvni_dist_passing;

/* Messages with the same `stream` are received in the order in which they were sent, and `number`
 * counts them: another one than expected is an error of the ranks, and no reason to wait. */
typedef struct lvni_dist_tag {
    int64_t stream;
    int64_t number;
} lvni_dist_tag;

/* A collective. LVN_ERR_UNSUPPORTED: a rank is another process. */
lvn_status lvni_dist_passing_create(lvni_dist_comm *comm, lvni_dist_passing **out);
/* Not a collective; the communicator must still be there. NULL is fine. */
void lvni_dist_passing_destroy(lvni_dist_passing *passing);

/* Of two parts, which arrive as one. */
lvn_status lvni_dist_passing_send(lvni_dist_passing *passing, int to, lvni_dist_tag tag,
                                  const void *head, size_t head_bytes, const void *data,
                                  size_t bytes);
/* Waits. *out: owned by the caller (lvni_core_free). LVN_ERR_PEER once the communicator is aborted;
 * LVN_ERR_MISMATCH: the next message of the stream has another number. */
lvn_status lvni_dist_passing_receive(lvni_dist_passing *passing, int from, lvni_dist_tag tag,
                                     void **out, size_t *bytes);
/* Bytes of messages that this rank has sent. */
uint64_t lvni_dist_passing_sent(const lvni_dist_passing *passing);

#endif
