/* The reduction over messages: what net_reduction_create.c makes and net_reduction.c runs. */
#ifndef LEVIN_DIST_NET_NET_REDUCTION_H
#define LEVIN_DIST_NET_NET_REDUCTION_H

#include "dist/net/net_impl.h"
#include "dist/reduction_impl.h"

/* What a rank sends at the beginning of a step. */
typedef struct lvni_net_beginning {
    int64_t used_begin, used_end;
    lvni_plan_tree_node leaf[LVNI_TREE_PENDING]; /* as many as it has */
} lvni_net_beginning;

/* What is known of a rank. */
typedef struct lvni_net_other {
    int n_leaves[2];
    lvni_net_beginning start[2];
    float *theirs[LVNI_TREE_PENDING]; /* sets of addresses: only this rank's slices have memory */
    uint32_t noted;                   /* the last step whose message is here */
    uint64_t totals;                  /* that have come */
    int64_t n_slices;                 /* a step brings so many totals */
    unsigned char *note[2];
    size_t note_bytes[2];
} lvni_net_other;

struct lvni_net_reduction {
    lvni_dist_reduction base;
    lvni_net_reduction *next; /* of the communicator */
    uint32_t id;
    float **set; /* of this rank */
    float *total;
    int64_t own_slices; /* buckets of which this rank adds a slice */
    uint64_t *arrived;  /* per bucket: ranks whose leaves are here */
    uint32_t *reported; /* per bucket: the last step in which ready was called */
    int *left;          /* per bucket: pieces to add */
    int *queue;         /* buckets to add, of this step */
    int n_queue, at;    /* how many, and which one is next */
    int64_t at_piece;   /* of it */
    int64_t added;      /* own slices that are added and sent, all steps together */
    uint32_t step;      /* base.step, under the lock */
    uint32_t planned;   /* the last step whose list of additions is made */
    lvni_dist_sum_plan plan;
    lvni_plan_tree_node *node;
    void **source;
    int64_t jobs;          /* of this reduction that are not sent */
    lvni_net_other *other; /* world */
    _Atomic uint64_t added_ns;
};

extern const lvni_dist_reduction_ops lvni_net_reduction_ops;
void lvni_net_reduction_destroy(lvni_dist_reduction *r);
/* Addresses for n floats, zeros, with memory where they are written; NULL: there are none. */
float *lvni_net_reserve(int64_t n);
void lvni_net_unreserve(float *p, int64_t n); /* NULL is fine */

static inline lvni_plan_range lvni_net_slice(const lvni_net_reduction *r, int64_t b, int rank)
{
    return lvni_plan_exchange_slice(&r->base.exchange, b, rank);
}

#endif
