/* How finish waits in a step of a reduction: for reduction.c, and for bench/free_reduction.c, which
 * differs from it in the order of additions alone. */
#ifndef LEVIN_DIST_REDUCTION_WAIT_H
#define LEVIN_DIST_REDUCTION_WAIT_H

#include "core/machine.h"
#include "dist/reduction.h"
#include "dist/transport.h"

/* Has the rank not come to the end of `step`? One without slices may have arrived in the next step
 * already. */
static inline bool lvni_dist_reduction_behind(const _Atomic uint32_t *arrived, uint32_t step)
{
    return (int32_t)(atomic_load(arrived) - step) < 0;
}

/* Waits with the time counted: there was nothing to do. */
static inline lvn_status lvni_dist_reduction_wait(lvni_dist_comm *comm, const lvni_dist_wait *wait,
                                                  lvni_dist_reduction_times *times)
{
    const uint64_t start = lvni_core_now_ns();
    const lvn_status status = wait->over(wait->user) ? LVN_OK : comm->ops->wait(comm, wait);
    times->waited_ns += lvni_core_now_ns() - start;
    return status;
}

#endif
