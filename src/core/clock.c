/* The monotonic clock of clock.h. */
#include "core/clock.h"

uint64_t lvni_core_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double lvni_core_seconds_since(uint64_t start_ns)
{
    return (double)(lvni_core_now_ns() - start_ns) * 1e-9;
}

struct timespec lvni_core_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}
