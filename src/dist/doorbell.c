/* The futex behind doorbell.h. Who rings changes first and looks for sleepers then; who sleeps
 * counts itself first and looks at what is shared then. All of it is sequentially consistent, so at
 * least one of the two sees the other. */
#include "dist/doorbell.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void lvni_dist_doorbell_ring(lvni_dist_doorbell *bell)
{
    if (atomic_load(&bell->sleepers) != 0) {
        atomic_fetch_add(&bell->rings, 1);
        /* not PRIVATE: sleepers may be other processes */
        syscall(SYS_futex, &bell->rings, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

void lvni_dist_doorbell_enter(lvni_dist_doorbell *bell)
{
    atomic_fetch_add(&bell->sleepers, 1);
}

void lvni_dist_doorbell_leave(lvni_dist_doorbell *bell)
{
    atomic_fetch_sub(&bell->sleepers, 1);
}

uint32_t lvni_dist_doorbell_seen(lvni_dist_doorbell *bell)
{
    return atomic_load(&bell->rings);
}

void lvni_dist_doorbell_sleep(lvni_dist_doorbell *bell, uint32_t seen, int timeout_ms)
{
    const struct timespec timeout = {.tv_sec = timeout_ms / 1000,
                                     .tv_nsec = timeout_ms % 1000 * 1000000L};
    syscall(SYS_futex, &bell->rings, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

void lvni_dist_doorbell_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}
