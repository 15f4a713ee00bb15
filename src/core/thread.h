/* Threads of levin: how they are started, and their names as `top -H` and debuggers show them. */
#ifndef LEVIN_CORE_THREAD_H
#define LEVIN_CORE_THREAD_H

#include <pthread.h>

/* bytes: a stack that ran over cannot carry the handler that tells of it */
enum { LVNI_SIGNAL_STACK = 64 << 10 };

/* Every thread of levin comes from here: main(argument) runs with a signal stack of its own and
 * takes no signals, which are the program's, but for those that its own instructions cause: with
 * these blocked it would die without a word (error_record.h). 0, or an errno value; then there is
 * no thread. To be joined. */
int lvni_core_thread_start(pthread_t *thread, void *(*main)(void *argument), void *argument);

/* Timed waits on it go by lvni_core_now_ns (lvni_core_timespec makes the time of it). */
void lvni_core_cond_init(pthread_cond_t *cond);

/* Names the calling thread "lvn-<role>" or, with index >= 0, "lvn-<role><index>"; the system keeps
 * 15 bytes, so the role is cut before the index is. Every thread calls this first. */
void lvni_core_thread_name(const char *role, int index);

#endif
