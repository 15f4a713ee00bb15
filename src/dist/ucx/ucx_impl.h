/* The link of ranks over UCX (net/net_impl.h): InfiniBand, RoCE, TCP or shared memory, whatever UCX
 * finds between two ranks.
 *
 *   ucx_api.c      loads the library
 *   ucx_connect.c  how ranks find each other, the transport's table, the end
 *   ucx_ports.c    is there a network that it serves better?
 *   ucx_link.c     the one thread of a rank that sends and receives
 *
 * A message is an active message: its header lies in UCX's own, and its parts are its data. What is
 * long waits at the sender until the receiver has a place for it, and moves there without a
 * copy if the network can. Only the link's thread calls UCX while there is one, and never with the
 * communicator's lock held: UCX's callbacks take it.
 *
 * UCX connects two ranks when one first sends something, and keeps no order meanwhile: messages are
 * numbered, and ranks greet each other before they use the link. The last message of a rank, BYE,
 * is answered: it leaves only when nothing of it can be lost.
 *
 * UCX's TCP port accepts connections and messages of strangers, which UCX reads before the key in
 * their head is looked at: this link is for networks that are trusted. */
#ifndef LEVIN_DIST_UCX_UCX_IMPL_H
#define LEVIN_DIST_UCX_UCX_IMPL_H

#include "dist/net/net_impl.h"
#include "dist/ucx/ucx_api.h"

/* Numbers of active messages: a rank's messages, the first thing that it sends, and the answer to
 * BYE. */
enum { LVNI_UCX_MESSAGE, LVNI_UCX_HELLO, LVNI_UCX_HEARD };

/* The head of every active message. */
typedef struct lvni_ucx_head {
    lvni_net_header header;
    unsigned char key[LVNI_NET_KEY]; /* the receiver's: others that find its port are not heard */
    int32_t rank;                    /* the sender's */
    uint32_t number;                 /* of its messages to this receiver: 0, 1, ... */
} lvni_ucx_head;

/* A message on its way out; UCX reads head and parts until it is sent. */
typedef struct lvni_ucx_sending {
    struct lvni_ucx_sending *next; /* of those that are spare */
    lvni_net_comm *c;
    lvni_net_job *job; /* NULL: an answer */
    int peer;
    lvni_ucx_head head;
    ucp_dt_iov_t part[LVNI_NET_PARTS];
} lvni_ucx_sending;

/* A long message that is coming in. */
typedef struct lvni_ucx_receiving {
    struct lvni_ucx_receiving *next; /* of those that are coming, or are spare */
    lvni_net_comm *c;
    int peer;
    lvni_net_incoming in;
    ucp_dt_iov_t part[LVNI_NET_PARTS];
} lvni_ucx_receiving;

/* A message that has overtaken another: UCX keeps no order while it connects. */
typedef struct lvni_ucx_early {
    struct lvni_ucx_early *next;
    lvni_ucx_head head;
    void *data; /* as UCX gave it, or of `copy` */
    bool is_long;
    char copy[];
} lvni_ucx_early;

typedef struct lvni_ucx_peer {
    ucp_ep_h ep;                     /* NULL: this rank, or closed */
    unsigned char key[LVNI_NET_KEY]; /* which it wants to see */
    /* the link's thread: */
    bool failed;             /* UCX has reported its end */
    uint32_t sent, expected; /* numbers of the next messages, each way */
    lvni_ucx_early *early;
    /* under the lock: */
    bool met;            /* its hello has come */
    bool bye, heard;     /* its last message has to be answered; it has answered */
    int sends, receives; /* under the lock: not over */
} lvni_ucx_peer;

/* c->wire */
typedef struct lvni_ucx_wire {
    const lvni_ucx_api *api;
    ucp_context_h context;
    ucp_worker_h worker;
    lvni_ucx_peer *peer; /* world */
    unsigned char key[LVNI_NET_KEY];
    int events, wake; /* descriptors: UCX's, and one that ends the thread's poll */
    pthread_t thread;
    bool has_thread;
    /* under the lock */
    bool asleep;
    uint64_t leave_ns; /* a thread waits in leave; 0: none */
    lvni_ucx_sending *spare_sending;
    lvni_ucx_receiving *coming, *spare_receiving;
} lvni_ucx_wire;

static inline lvni_ucx_wire *lvni_ucx_wire_of(const lvni_net_comm *c)
{
    return c->wire;
}

/* UCX's callbacks: of messages, with the communicator as argument, and of a peer's end, with the
 * lvni_ucx_peer. */
ucs_status_t lvni_ucx_message(void *user, const void *head, size_t head_bytes, void *data,
                              size_t bytes, const ucp_am_recv_param_t *param);
ucs_status_t lvni_ucx_hello(void *user, const void *head, size_t head_bytes, void *data,
                            size_t bytes, const ucp_am_recv_param_t *param);
ucs_status_t lvni_ucx_heard(void *user, const void *head, size_t head_bytes, void *data,
                            size_t bytes, const ucp_am_recv_param_t *param);
void lvni_ucx_failed(void *user, ucp_ep_h ep, ucs_status_t status);
/* Without the lock, by the one thread that calls UCX. The peer's messages that came too early. */
void lvni_ucx_drop_early(lvni_net_comm *c, int rank);
/* Without the lock, by the one thread that calls UCX. Nothing more is sent to the peer or comes
 * from it. */
void lvni_ucx_close_peer(lvni_net_comm *c, int rank);
/* The thread, which greets all peers first. */
lvn_status lvni_ucx_start(lvni_net_comm *c);
/* Of lvni_net_link. */
void lvni_ucx_wake(lvni_net_comm *c);
void lvni_ucx_leave(lvni_net_comm *c, uint32_t reduction);
void lvni_ucx_stop(lvni_net_comm *c);

#endif
