/* Time since an arbitrary start, for durations and rates: never goes back, does not follow the wall
 * clock. */
#ifndef LEVIN_CORE_CLOCK_H
#define LEVIN_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

uint64_t lvni_core_now_ns(void);                   /* CLOCK_MONOTONIC */
double lvni_core_seconds_since(uint64_t start_ns); /* (now - start) / 1e9 */
struct timespec lvni_core_timespec(uint64_t ns);   /* for calls of the system */

#endif
