/* Names of threads, as `top -H` and debuggers show them. Every thread of levin calls this first. */
#ifndef LEVIN_CORE_THREAD_H
#define LEVIN_CORE_THREAD_H

/* Names the calling thread "lvn-<role>" or, with index >= 0, "lvn-<role><index>"; the system keeps 15 bytes,
 * so the role is cut before the index is. */
void lvni_thread_name(const char *role, int index);

#endif
