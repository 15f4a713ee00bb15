/* Threads of levin: how they are started, and their names as `top -H` and debuggers show them. */
#ifndef LEVIN_CORE_THREAD_H
#define LEVIN_CORE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* bytes: a stack that ran over cannot carry the handler that reports it */
enum { LVNI_SIGNAL_STACK = 64 << 10 };

/* Starts every thread of levin: main(argument) runs with a signal stack of its own and with all
 * signals blocked, except those that its own instructions cause (SIGSEGV, ...): blocked, these
 * would end the process without an error record (error.h). The thread belongs to the training of
 * the calling one (training.h). Returns 0, or an errno value when no thread was started. To be
 * joined.
 */
int lvni_core_thread_start(pthread_t *thread, void *(*main)(void *argument), void *argument);

/* Timed waits on it use the clock of lvni_core_now_ns (as lvni_core_timespec). */
void lvni_core_cond_init(pthread_cond_t *cond);

/* Names the calling thread "lvn-<role>" or, with index >= 0, "lvn-<role><index>"; the system keeps
 * 15 bytes, so the role is cut before the index is. Every thread calls this first. */
void lvni_core_thread_name(const char *role, int index);

/* Work beside a training, which needs the processor: from now on the calling thread sleeps a moment
 * after each MiB that it reports, unless *hurry, 2 s in all. NULL: it does not. */
void lvni_core_thread_pace(const _Atomic bool *hurry);
/* Called by what reads or writes much, in pieces of at most LVNI_PACE_BYTES. */
enum { LVNI_PACE_BYTES = 1 << 20 };
void lvni_core_thread_worked(size_t bytes);

#endif
