/* How a thread sleeps until another one, maybe of another process, has changed something that both
 * see. The bell itself carries no news:
 *
 *     one side:   change what is shared (sequentially consistent); lvni_dist_doorbell_ring
 *     the other:  lvni_dist_doorbell_enter; while what is shared is not as wanted:
 *       lvni_dist_doorbell_sleep; lvni_dist_doorbell_leave
 *
 * Ringing costs one load while no thread sleeps. A bell lies in memory of its own cache line; all
 * its threads use one bell per communicator. */
#ifndef LEVIN_DIST_DOORBELL_H
#define LEVIN_DIST_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct lvni_dist_doorbell {
    _Atomic uint32_t rings; /* the futex */
    /* a process that dies in its sleep stays counted: rings then cost a call, no more */
    _Atomic uint32_t sleepers;
} lvni_dist_doorbell;

void lvni_dist_doorbell_ring(lvni_dist_doorbell *bell);
void lvni_dist_doorbell_enter(lvni_dist_doorbell *bell);
void lvni_dist_doorbell_leave(lvni_dist_doorbell *bell);
/* `seen`: lvni_dist_doorbell_seen() from before the caller looked at what is shared. Returns at the
 * next ring, or after timeout_ms. */
uint32_t lvni_dist_doorbell_seen(lvni_dist_doorbell *bell);
void lvni_dist_doorbell_sleep(lvni_dist_doorbell *bell, uint32_t seen, int timeout_ms);
/* A breath between two looks of a thread that spins. */
void lvni_dist_doorbell_pause(void);

#endif
