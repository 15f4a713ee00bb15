/* What the two ways of staged.h have in common: through host memory (staged.c), and between devices
 * (staged_sum.c). For this folder. */
#ifndef LEVIN_TRAINER_STAGED_IMPL_H
#define LEVIN_TRAINER_STAGED_IMPL_H

#include "dist/device_sum.h"
#include "tensor/device.h"
#include "trainer/comm_thread.h"
#include "trainer/deferred.h"
#include "trainer/staged.h"

enum { LVNI_STAGED_JOBS = 2 };

typedef struct lvni_trainer_staged_job {
    lvni_trainer_staged *of;
    void **event; /* (n_events): the bucket is in host memory; of sums: losses are */
    lvni_plan_tree_node leaf[LVNI_TREE_PENDING];
    int n_leaves;
    int64_t begin, end; /* what the phase trains */
    lvni_trainer_deferred_place place;
    void *stream;
    uint64_t number;
    /* sums: */
    float *mine[LVNI_TREE_PENDING]; /* the leaves */
    uint64_t phase;
} lvni_trainer_staged_job;

/* How a rank's message begins in an exchange. */
typedef struct lvni_trainer_staged_head {
    int64_t bytes, leaves;
    struct {
        int32_t begin, end;
    } leaf[LVNI_TREE_PENDING]; /* sums alone */
} lvni_trainer_staged_head;

struct lvni_trainer_staged {
    lvni_trainer_staged_options o;
    const lvn_backend *backend;
    lvni_trainer_comm_thread *thread;
    int n_buckets, n_events, n_jobs;
    /* (o.sets): host memory of the device; the total comes back through the first */
    float **staging;
    double *losses; /* the same, of all micro-batches of all ranks; then their weights */
    size_t set_bytes, losses_bytes;
    unsigned char *numbers; /* this rank's losses, weights and metrics, as they are sent */
    lvni_trainer_staged_job job[LVNI_STAGED_JOBS];
    uint64_t n_sent;                 /* phases */
    unsigned char *mine;             /* this rank's message of an exchange */
    unsigned char *all;              /* (world) */
    size_t room;                     /* of one */
    uint64_t exchanged;              /* job that the last exchange was */
    lvni_dist_reduction_times times; /* of the last job; read when it is done */
    /* sums; else NULL: */
    lvni_dist_device_sum *sum;
    lvni_plan_tree_node *leaves; /* of all ranks; room for n_leaves */
    int n_leaves;
    float *first;              /* host memory of the device: a value of the total */
    uint64_t *bytes;           /* (world): of the numbers */
    unsigned char *numbers_of; /* (world): the numbers */
};

/* What is added of floats [at, at + n) of a set: up to two pieces, of what the phase trains and of
 * what lies behind the weights. */
int lvni_trainer_staged_cut(const lvni_nn_model *model, int64_t begin, int64_t end,
                            lvni_plan_range range, lvni_plan_range piece[2]);
lvni_trainer_staged_head lvni_trainer_staged_head_of(const lvni_trainer_staged *staged, int rank);

/* staged_sum.c: of a staged without a reduction. */
lvn_status lvni_trainer_staged_make_sum(lvni_trainer_staged *staged);
void lvni_trainer_staged_end_sum(lvni_trainer_staged *staged); /* its job is done */
/* This rank owes these. */
lvn_status lvni_trainer_staged_keep(lvni_trainer_staged_job *job, lvni_nn_set *const *set);
/* After the exchange: the sum into total, and the job. */
lvn_status lvni_trainer_staged_add(lvni_trainer_staged_job *job, float *total);

#endif
