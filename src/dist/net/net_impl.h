/* Ranks that share no memory: one stream connection between any two of them, and messages.
 *
 *   net_comm.c       how ranks connect, the table of operations, the end
 *   net_link.c       the two threads of a rank, sender and receiver
 *   net_calls.c      collectives and group exchanges: a message to and from each other rank
 *   net_reduction.c  the gradient of a step (dist/reduction.h)
 *
 * The sender sends what is queued, in its order. The receiver receives from all ranks and never
 * waits to send, so that no two ranks can wait for each other's buffers.
 *
 * All state is guarded by one lock. A thread that waits gives a condition, which is looked at
 * under it after every message that is complete. Both ends run on machines of one byte order (the
 * fingerprints of the ranks are compared before). */
#ifndef LEVIN_DIST_NET_NET_IMPL_H
#define LEVIN_DIST_NET_NET_IMPL_H

#include "dist/sum_plan.h"
#include "dist/transport.h"

#include <pthread.h>

enum {
    LVNI_NET_MAX_RANKS = 1024,
    LVNI_NET_SMALL = 64 << 10, /* bytes of all ranks: added everywhere, without a second message */
    LVNI_NET_KEY = 16,         /* bytes that a rank shows to be let in */
    LVNI_NET_WHY = 512,        /* bytes of the reason of an abort */
    LVNI_NET_PARTS = 2 * LVNI_TREE_PENDING + 1 /* of a message */
};

typedef enum lvni_net_kind {
    LVNI_NET_CALL,  /* of a collective: seq */
    LVNI_NET_GROUP, /* of a group exchange: id = first rank of the run, seq = its round */
    LVNI_NET_BEGIN, /* id = reduction, seq = step: what the rank will add, and its leaves */
    LVNI_NET_SLICE, /* place = bucket: the receiver's slice of each leaf, one after the other */
    LVNI_NET_TOTAL, /* place = bucket: the sender's slice of the sum, then its squares */
    LVNI_NET_NOTE,  /* the message of the step */
    LVNI_NET_ABORT, /* place = first rank that failed, or -1; the reason */
    LVNI_NET_BYE    /* the last message of a rank */
} lvni_net_kind;

typedef struct lvni_net_header {
    uint32_t kind, id;
    uint64_t seq;
    int64_t place;
    uint64_t bytes; /* that follow */
} lvni_net_header;

/* Bytes that a message is sent from, or received into. */
typedef struct lvni_net_part {
    void *p;
    size_t bytes;
} lvni_net_part;

/* A message on its way out. */
typedef struct lvni_net_job {
    struct lvni_net_job *next;
    int peer;
    lvni_net_header header;
    int n_parts;
    lvni_net_part part[LVNI_NET_PARTS];
    size_t uncounted; /* bytes of the parts that lvni_dist_comm_count leaves out */
    void *own; /* freed with the job; NULL: the parts are memory of the thread that waits for `left`
                */
    int64_t *left; /* counted down when the job is sent or dropped; NULL: no thread waits */
} lvni_net_job;

/* A message of a collective or of a group exchange that has come and is not taken yet. */
typedef struct lvni_net_mail {
    struct lvni_net_mail *next;
    lvni_net_header header;
    void *data;
} lvni_net_mail;

typedef struct lvni_net_peer {
    int fd;         /* -1: this rank */
    int32_t pid;    /* for messages */
    bool elsewhere; /* on another host */
    bool bye;       /* its last message has come */
    bool gone;      /* nothing more comes */
    bool claimed;   /* with its bye: lvni_dist_comm_claim was true there */
    bool deaf;      /* nothing can be sent to it */
    lvni_net_mail *mail;
    /* the message that is coming in */
    lvni_net_header header;
    size_t got; /* bytes of the header */
    int n_parts, at_part;
    size_t at; /* bytes of part[at_part] */
    lvni_net_part part[LVNI_NET_PARTS];
    lvni_net_mail *coming; /* CALL, GROUP, ABORT */
} lvni_net_peer;

typedef struct lvni_net_reduction lvni_net_reduction;

typedef struct lvni_net_comm {
    lvni_dist_comm base;
    lvni_net_peer *peer; /* world */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something came, was sent, or ended */
    pthread_cond_t queued;  /* for the sender */
    pthread_t sender, receiver;
    bool has_sender, has_receiver, quit, claimed;
    int wake[2]; /* a pipe that ends the receiver's poll */
    lvni_net_job *first, *last, *spare;
    bool quit_receiving;
    uint64_t quit_ns, aborted_ns;

    bool aborted;
    int first_failed;
    char why[LVNI_NET_WHY];

    uint64_t seq;                   /* of the collectives; the caller's thread */
    lvni_net_reduction *reductions; /* that there are */
    uint32_t n_reductions;          /* ever made */
    lvni_dist_sum_plan plan;        /* one number of each rank */
    void **source;                  /* world */
} lvni_net_comm;

/* ---- net_link.c ---- */

lvn_status lvni_net_start(lvni_net_comm *c);
/* Sends what is queued (nothing more after an abort), sends bye, and ends both threads. */
void lvni_net_stop(lvni_net_comm *c);
/* With the lock held. */
void lvni_net_abort_locked(lvni_net_comm *c, int first, const char *why);
lvn_status lvni_net_health_locked(const lvni_net_comm *c);
/* With the lock held: a job with header and peer, for the caller to fill; NULL: no memory. */
lvni_net_job *lvni_net_job_new(lvni_net_comm *c, int peer, lvni_net_kind kind, uint32_t id,
                               uint64_t seq, int64_t place);
/* With the lock held. header.bytes is counted from the parts. */
void lvni_net_job_send(lvni_net_comm *c, lvni_net_job *job);
/* With the lock held: room for `bytes` bytes of what comes from a peer, as a message of its own.
 * false: no memory. */
bool lvni_net_place_mail(lvni_net_peer *peer, uint64_t bytes);
/* With the lock held. Waits until wait->over; fails once the communicator is aborted, or a rank
 * that is needed has ended. */
lvn_status lvni_net_wait_locked(lvni_net_comm *c, const lvni_dist_wait *wait);
/* With the lock held. Until no job with this counter is left; does not fail. */
void lvni_net_flush_locked(lvni_net_comm *c, const int64_t *left);

/* ---- net_calls.c ---- */

lvn_status lvni_net_barrier(lvni_dist_comm *comm);
lvn_status lvni_net_all_reduce(lvni_dist_comm *comm, const void *in, void *out, int64_t n,
                               lvn_dtype dtype, lvni_dist_reduce how);
lvn_status lvni_net_reduce_scatter(lvni_dist_comm *comm, const void *in, void *out, int64_t n,
                                   lvn_dtype dtype, lvni_dist_reduce how);
lvn_status lvni_net_all_gather(lvni_dist_comm *comm, const void *in, size_t bytes, void *out);
lvn_status lvni_net_broadcast(lvni_dist_comm *comm, void *data, size_t bytes, int root);
lvn_status lvni_net_all_to_all(lvni_dist_comm *comm, const void *in, size_t bytes, void *out);
lvn_status lvni_net_agree(lvni_dist_comm *comm, const lvni_dist_call *call);
lvn_status lvni_net_exchange_create(lvni_dist_comm *comm, lvni_dist_group_exchange **out);

/* ---- net_reduction.c ---- */

lvn_status lvni_net_reduction_create(lvni_dist_comm *comm,
                                     const lvni_dist_reduction_options *options, int sets,
                                     lvni_dist_reduction **out);
/* With the lock held: does a reduction of this number exist? */
bool lvni_net_reduction_is(const lvni_net_comm *c, uint32_t id);
/* With the lock held, by the receiver: where the payload of a message goes (parts of the peer), and
 * what it means when it is complete. false: it does not fit. */
bool lvni_net_reduction_place(lvni_net_comm *c, int rank, lvni_net_peer *peer);
void lvni_net_reduction_came(lvni_net_comm *c, int rank, const lvni_net_header *header);

#endif
