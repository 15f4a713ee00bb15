/* Ranks of several nodes in two levels. Those of a node share memory (the inner communicator: shm,
 * of processes or threads). Between nodes the k-th rank of each node is connected with the k-th
 * ranks of the others (its channel: an outer communicator over any transport); there are as many
 * channels as the smallest node has ranks, and ranks beyond take part within their node alone.
 *
 *   levels_comm.c              how they are made; the table of operations; the end
 *   levels_connect.c           how parts of the ranks connect while all take part
 *   levels_calls.c             collectives, each in steps within nodes and between them
 *   levels_exchange.c          group exchanges: within a node, or between any two ranks
 *   levels_reduction.c         the gradient of a step (dist/reduction.h)
 *   levels_reduction_create.c  its memory
 *
 * A failure is known where it happens: a rank whose call fails at one level aborts the other, so
 * that it reaches all ranks. */
#ifndef LEVIN_DIST_LEVELS_LEVELS_IMPL_H
#define LEVIN_DIST_LEVELS_LEVELS_IMPL_H

#include "dist/sum_plan.h"
#include "dist/transport.h"

#include <pthread.h>

enum {
    LVNI_LEVELS_MAX_RANKS = 1 << 16,
    LVNI_LEVELS_STAGE = 64 << 10, /* bytes of a rank that are added at once */
    LVNI_LEVELS_PADDED = 4096,    /* bytes of a node that are padded in an all-gather */
    LVNI_LEVELS_ADDRESS = 64
};

/* The channels of the ranks of this process: an abort reaches all of them. */
typedef struct lvni_levels_links {
    pthread_mutex_t lock;
    int held; /* by ranks */
    int n;
    lvni_dist_comm *link[]; /* NULL: none, or gone */
} lvni_levels_links;

/* Sums over the ranks of this node, then over nodes (levels_calls.c). */
typedef struct lvni_levels_sums {
    lvni_dist_region region; /* of the node: a result, and a stage of each rank */
    bool open;
    int n_trees;                                /* sub-trees of the tree over all ranks */
    lvni_dist_sum_plan tree[LVNI_TREE_PENDING]; /* each over ranks of this node */
    int first_of_tree[LVNI_TREE_PENDING];       /* of the node's ranks */
    int most_trees;                             /* of any node */
    int *trees_of;                              /* per node */
    lvni_dist_sum_plan all;                     /* over the sub-trees of all nodes */
    void **source;                              /* room for either */
} lvni_levels_sums;

typedef struct lvni_levels_comm {
    lvni_dist_comm base;
    int nodes, node; /* of this rank */
    int local;       /* its number on the node */
    int channels;
    int *first;       /* nodes + 1: the first rank of each node */
    int *inner_ranks; /* numbers of the node's ranks, then those of the channel */
    int *outer_ranks;
    lvni_dist_comm *inner;
    lvni_dist_comm *outer; /* NULL: the rank has no channel */
    lvni_levels_links *links;
    int place; /* of its channel in links */
    /* any two ranks, made when a group has ranks of several nodes; NULL: none has */
    _Atomic(lvni_dist_comm *) flat;
    const lvni_dist_transport *link; /* how outer and flat are made */
    char address[LVNI_LEVELS_ADDRESS];
    double peer_timeout_s; /* of the options */
    int *host;             /* of each rank, for flat */
    lvni_levels_sums sums;
    char *scratch[2]; /* of the collectives; kept from call to call */
    size_t room[2];
} lvni_levels_comm;

static inline lvni_levels_comm *lvni_levels(lvni_dist_comm *comm)
{
    return (lvni_levels_comm *)comm;
}

static inline int lvni_levels_ranks_of(const lvni_levels_comm *c, int node)
{
    return c->first[node + 1] - c->first[node];
}

static inline int lvni_levels_most_ranks(const lvni_levels_comm *c)
{
    int most = 0;
    for (int node = 0; node < c->nodes; node++) {
        most = lvni_levels_ranks_of(c, node) > most ? lvni_levels_ranks_of(c, node) : most;
    }
    return most;
}

/* levels_comm.c */
/* The status of a call at one level: when a peer is gone, the other level learns of it. */
lvn_status lvni_levels_spread(lvni_levels_comm *c, lvn_status status);
/* This rank cannot go on: all ranks are woken. Returns LVN_ERR_MEMORY. */
lvn_status lvni_levels_no_memory(lvni_levels_comm *c, const char *what);

/* levels_connect.c */
typedef struct lvni_levels_group {
    const lvni_dist_comm_options *all; /* of all ranks */
    const int *member;                 /* ranks that connect */
    int n;
} lvni_levels_group;
/* `make` connects the members among themselves; of other groups, and of ranks that are in none
 * (make NULL), all take part. A collective over all->exchange. */
typedef lvn_status (*lvni_levels_connecting)(const lvni_dist_comm_options *options,
                                             lvni_dist_comm **out);
lvn_status lvni_levels_connect(const lvni_levels_group *group, int rank, const int *host,
                               lvni_levels_connecting make, lvni_dist_comm **out);

/* levels_calls.c */
/* Room in scratch `which`; NULL: no memory. */
char *lvni_levels_scratch(lvni_levels_comm *c, int which, size_t bytes);
lvn_status lvni_levels_sums_init(lvni_levels_comm *c);
void lvni_levels_sums_free(lvni_levels_comm *c);
lvn_status lvni_levels_barrier(lvni_dist_comm *comm);
lvn_status lvni_levels_all_reduce(lvni_dist_comm *comm, const void *in, void *out, int64_t n,
                                  lvn_dtype dtype, lvni_dist_reduce how);
lvn_status lvni_levels_all_gather(lvni_dist_comm *comm, const void *in, size_t bytes, void *out);
lvn_status lvni_levels_broadcast(lvni_dist_comm *comm, void *data, size_t bytes, int root);
bool lvni_levels_claim(lvni_dist_comm *comm, bool cut_off);

/* levels_exchange.c */
lvn_status lvni_levels_exchange_create(lvni_dist_comm *comm, int lo, int hi,
                                       lvni_dist_group_exchange **out);

/* levels_reduction_create.c */
lvn_status lvni_levels_reduction_create(lvni_dist_comm *comm,
                                        const lvni_dist_reduction_options *options, int sets,
                                        lvni_dist_reduction **out);

#endif
