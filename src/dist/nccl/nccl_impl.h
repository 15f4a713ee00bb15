/* One rank's NCCL communicator. Its calls do not block: what NCCL is still at is asked for, beside
 * the health of the run, until it is done or given up. For this folder.
 *
 *   nccl_api.c    the library
 *   nccl_comm.c   a communicator: beginning, ending, what went wrong
 *   nccl_sum.c    device_sum.h */
#ifndef LEVIN_DIST_NCCL_NCCL_IMPL_H
#define LEVIN_DIST_NCCL_NCCL_IMPL_H

#include "dist/comm.h"
#include "dist/nccl/nccl_api.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct lvni_nccl_comm {
    const lvni_nccl_api *api;
    lvni_dist_comm *comm; /* of the run */
    double timeout_s;
    /* of what follows; held while NCCL is called, which takes no time */
    pthread_mutex_t lock;
    void *handle; /* ncclComm_t; NULL: none, or it was aborted */
    /* NCCL gives memory of the device back as it aborts, for which it may wait for the stream; and
     * that for the thread that aborts */
    pthread_t aborting;
    bool has_thread;
    void *ending; /* the handle, of that thread */
} lvni_nccl_comm;

/* A collective; the thread's current device is the rank's. */
lvn_status lvni_nccl_comm_init(lvni_nccl_comm *c, lvni_dist_comm *comm, double timeout_s);
/* Nothing is under way, or it was aborted. Also of one that was not made, all zeros. */
void lvni_nccl_comm_end(lvni_nccl_comm *c);
/* What is under way ends at once, without result. Any thread, more than once. */
void lvni_nccl_comm_abort(lvni_nccl_comm *c);

/* Around calls with c->handle. LVN_ERR_PEER when it was aborted: then without leave. */
lvn_status lvni_nccl_comm_enter(lvni_nccl_comm *c);
void lvni_nccl_comm_leave(lvni_nccl_comm *c);
/* NCCL's answer to `what` (its name for it): waits while it is in progress. */
lvn_status lvni_nccl_comm_complete(lvni_nccl_comm *c, const char *what, int result);
/* What went wrong as far as is known now: with the run, or with NCCL. */
lvn_status lvni_nccl_comm_health(lvni_nccl_comm *c);

#endif
