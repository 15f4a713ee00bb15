/* Ranks that share no memory, and messages between any two of them.
 *
 *   net_comm.c       the communicator, its table of operations, the end
 *   net_calls.c      collectives and group exchanges: a message to and from each other rank
 *   net_reduction.c  the gradient of a step (dist/reduction.h)
 *   net_link.c       messages on both sides of a link, aborts, and what threads wait for
 *   net_connect.c    the link over TCP (net_stream.h): how ranks connect
 *   net_stream.c     its two threads, sender and receiver
 *
 * How messages move is a table, lvni_net_link: stream connections here, UCX in dist/ucx/. The
 * messages from one rank to another are placed and complete in the order in which they were queued,
 * except those of buckets, which may overtake each other. No rank ever waits to send before it
 * receives, so that no two ranks can wait for each other's buffers.
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
    LVNI_NET_PATIENCE_S = 2,   /* that a rank which does not receive keeps another from leaving */
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

/* A message that is coming in. */
typedef struct lvni_net_incoming {
    lvni_net_header header;
    int n_parts; /* where the rest goes */
    lvni_net_part part[LVNI_NET_PARTS];
    lvni_net_mail *mail; /* which has that memory; NULL: a reduction's */
} lvni_net_incoming;

typedef struct lvni_net_peer {
    int32_t pid;    /* for messages */
    bool elsewhere; /* on another host */
    bool bye;       /* its last message has come */
    bool gone;      /* nothing more comes */
    bool claimed;   /* with its bye: lvni_dist_comm_claim was true there */
    bool deaf;      /* nothing can be sent to it */
    lvni_net_mail *mail;
} lvni_net_peer;

typedef struct lvni_net_reduction lvni_net_reduction;

typedef struct lvni_net_comm lvni_net_comm;

/* How messages move between ranks: each takes jobs (lvni_net_job_next), and reports messages that
 * come (lvni_net_place, lvni_net_came) and peers that end (lvni_net_peer_gone). */
typedef struct lvni_net_link {
    /* All ranks call it, over options->exchange; all succeed or all fail. made: this rank's status
     * until here; where it is not LVN_OK `c` may be NULL. Sets c->wire, and pid and elsewhere of
     * the peers. */
    lvn_status (*connect)(lvni_net_comm *c, const lvni_dist_comm_options *options, lvn_status made);
    /* With the lock held: jobs were queued, the communicator was aborted, or c->quit is set. */
    void (*wake)(lvni_net_comm *c);
    /* With the lock held, which may be given up meanwhile: the memory of a reduction goes, and
     * whatever comes for it goes elsewhere. */
    void (*leave)(lvni_net_comm *c, uint32_t reduction);
    /* c->quit is set: sends what is queued, as far as that takes no longer than
     * LVNI_NET_PATIENCE_S, and ends the link's threads. Also of a link that did not connect. */
    void (*stop)(lvni_net_comm *c);
    /* All that is left of the link. */
    void (*close)(lvni_net_comm *c);
} lvni_net_link;

struct lvni_net_comm {
    lvni_dist_comm base;
    const lvni_net_link *link;
    void *wire;          /* the link's; NULL: not yet connected */
    lvni_net_peer *peer; /* world */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something came, was sent, or ended */
    bool quit, claimed;
    lvni_net_job *first, *last, *spare;
    uint64_t quit_ns, aborted_ns;

    bool aborted;
    int first_failed;
    char why[LVNI_NET_WHY];

    uint64_t seq;                   /* of the collectives; the caller's thread */
    lvni_net_reduction *reductions; /* that there are */
    uint32_t n_reductions;          /* ever made */
    lvni_dist_sum_plan plan;        /* one number of each rank */
    void **source;                  /* world */
};

/* ---- net_comm.c ---- */

/* The operations of a transport whose ranks exchange messages over a link. */
#define LVNI_NET_OPERATIONS                                                                        \
    .destroy = lvni_net_destroy, .abort = lvni_net_abort, .first_failed = lvni_net_first_failed,   \
    .health = lvni_net_health, .agree = lvni_dist_agree, .barrier = lvni_net_barrier,              \
    .all_reduce = lvni_net_all_reduce, .all_gather = lvni_net_all_gather,                          \
    .broadcast = lvni_net_broadcast, .region_open = lvni_dist_local_region_open,                   \
    .region_reserve = lvni_dist_local_region_reserve,                                              \
    .region_close = lvni_dist_local_region_close, .region_discard = lvni_dist_local_region_close,  \
    .reduction_create = lvni_net_reduction_create, .exchange_create = lvni_net_exchange_create,    \
    .wait = lvni_net_wait, .ring = lvni_net_ring, .claim = lvni_net_claim

lvn_status lvni_net_comm_create(const lvni_dist_comm_options *options,
                                const lvni_dist_transport *transport, const lvni_net_link *link,
                                lvni_dist_comm **out);
/* Gives `mine` to all ranks and gets theirs. The first member of these `bytes` bytes is the rank's
 * lvn_status so far, an int32_t: fails where that of any rank is not LVN_OK. */
lvn_status lvni_net_exchange_cards(const lvni_dist_comm_options *options, const void *mine,
                                   size_t bytes, void *all);
/* The same once more, of what has come of the connecting: where it failed for this rank, the error
 * is set, and options->fail ends the run, nothing is exchanged. */
lvn_status lvni_net_exchange_outcome(const lvni_dist_comm_options *options, void *mine,
                                     size_t bytes, void *all, lvn_status outcome);
void lvni_net_destroy(lvni_dist_comm *comm);
void lvni_net_abort(lvni_dist_comm *comm, int first, const char *why);
int lvni_net_first_failed(const lvni_dist_comm *comm);
lvn_status lvni_net_health(lvni_dist_comm *comm);
lvn_status lvni_net_wait(lvni_dist_comm *comm, const lvni_dist_wait *wait);
void lvni_net_ring(lvni_dist_comm *comm);
bool lvni_net_claim(lvni_dist_comm *comm, bool cut_off);

/* ---- net_link.c: all with the lock held ---- */

void lvni_net_abort_locked(lvni_net_comm *c, int first, const char *why);
lvn_status lvni_net_health_locked(const lvni_net_comm *c);
/* A job with header and peer, for the caller to fill; NULL: no memory. */
lvni_net_job *lvni_net_job_new(lvni_net_comm *c, int peer, lvni_net_kind kind, uint32_t id,
                               uint64_t seq, int64_t place);
/* header.bytes is counted from the parts. */
void lvni_net_job_send(lvni_net_comm *c, lvni_net_job *job);
/* Waits until wait->over; fails once the communicator is aborted, or a rank that is needed has
 * ended. */
lvn_status lvni_net_wait_locked(lvni_net_comm *c, const lvni_dist_wait *wait);
/* Until no job with this counter is left; does not fail. */
void lvni_net_flush_locked(lvni_net_comm *c, const int64_t *left);
/* Queues the last messages of this rank (nothing more is sent after an abort). */
void lvni_net_bye_locked(lvni_net_comm *c);

/* For links, which report here: */

/* The next job, which is the link's until lvni_net_job_over; NULL: none. */
lvni_net_job *lvni_net_job_next(lvni_net_comm *c);
/* It is sent, or dropped. */
void lvni_net_job_over(lvni_net_comm *c, lvni_net_job *job);
/* Is it to be sent? After an abort only the news of it is. */
bool lvni_net_job_wanted(const lvni_net_comm *c, const lvni_net_job *job);
/* A peer has had LVNI_NET_PATIENCE_S to take what is left for it. */
bool lvni_net_is_late(const lvni_net_comm *c);
/* in->header is there: where does the rest go? false: nowhere, the communicator is aborted. */
bool lvni_net_place(lvni_net_comm *c, int rank, lvni_net_incoming *in);
/* Room for `bytes` bytes as a message of its own. false: no memory. */
bool lvni_net_place_mail(lvni_net_incoming *in, uint64_t bytes);
/* All of it is there, in->mail is taken. */
void lvni_net_came(lvni_net_comm *c, int rank, lvni_net_incoming *in);
/* It does not come any more. */
void lvni_net_drop(lvni_net_incoming *in);
void lvni_net_peer_gone(lvni_net_comm *c, int rank);

/* ---- net_calls.c ---- */

lvn_status lvni_net_barrier(lvni_dist_comm *comm);
lvn_status lvni_net_all_reduce(lvni_dist_comm *comm, const void *in, void *out, int64_t n,
                               lvn_dtype dtype, lvni_dist_reduce how);
lvn_status lvni_net_all_gather(lvni_dist_comm *comm, const void *in, size_t bytes, void *out);
lvn_status lvni_net_broadcast(lvni_dist_comm *comm, void *data, size_t bytes, int root);
lvn_status lvni_net_exchange_create(lvni_dist_comm *comm, int lo, int hi,
                                    lvni_dist_group_exchange **out);

/* ---- net_reduction.c ---- */

lvn_status lvni_net_reduction_create(lvni_dist_comm *comm,
                                     const lvni_dist_reduction_options *options, int sets,
                                     lvni_dist_reduction **out);
/* With the lock held: does a reduction of this number exist? */
bool lvni_net_reduction_is(const lvni_net_comm *c, uint32_t id);
/* With the lock held, by the receiver: where the payload of a message goes, and what it means
 * when it is complete. false: it does not fit. */
bool lvni_net_reduction_place(lvni_net_comm *c, int rank, lvni_net_incoming *in);
void lvni_net_reduction_came(lvni_net_comm *c, int rank, const lvni_net_header *header);

#endif
