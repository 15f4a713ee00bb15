/* The monotonic clock of clock.h. */
#include "core/clock.h"

#include <time.h>

uint64_t lvni_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double lvni_seconds_since(uint64_t start_ns)
{
    return (double)(lvni_now_ns() - start_ns) * 1e-9;
}
