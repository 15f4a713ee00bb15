/* Starts and names threads (thread.h). */
#include "core/thread.h"

#include "core/alloc.h"
#include "core/training.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

typedef struct beginning {
    void *(*main)(void *argument);
    void *argument;
    lvni_core_training *training;
} beginning;

/* The signal stack lies in this frame, at the far end of the thread's own stack: it needs no
 * memory, and what runs over never gets there. */
static void *begin(void *argument)
{
    const beginning b = *(const beginning *)argument;
    lvni_core_free(argument);
    lvni_core_training_set(b.training);
    char room[LVNI_SIGNAL_STACK];
    const stack_t stack = {.ss_sp = room, .ss_size = sizeof room}, none = {.ss_flags = SS_DISABLE};
    stack_t old;
    /* else a sanitizer's */
    const bool own = sigaltstack(NULL, &old) == 0 && (old.ss_flags & SS_DISABLE) != 0 &&
                     sigaltstack(&stack, NULL) == 0;
    void *result = b.main(b.argument);
    if (own) {
        sigaltstack(&none, NULL);
    }
    return result;
}

int lvni_core_thread_start(pthread_t *thread, void *(*main)(void *argument), void *argument)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    beginning *b = LVNI_NEW(LVNI_TAG_CORE, beginning);
    if (b == NULL) {
        return ENOMEM;
    }
    *b = (beginning){main, argument, lvni_core_training_get()};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        sigdelset(&blocked, own[i]);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    const int error = pthread_create(thread, NULL, begin, b);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        lvni_core_free(b);
    }
    return error;
}

void lvni_core_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

void lvni_core_thread_name(const char *role, int index)
{
    enum { KEPT = 15 };
    char number[16] = "";
    char name[2 * KEPT + 5]; /* at most KEPT are used: an int has up to 10 digits */
    const int digits = index >= 0 ? snprintf(number, sizeof number, "%d", index) : 0;
    snprintf(name, sizeof name, "lvn-%.*s%s", KEPT - 4 - digits, role, number);
    /* a name is a courtesy: failing changes nothing */
    (void)pthread_setname_np(pthread_self(), name);
}

/* ---- in the background ---- */

enum { NAP_NS = 4000000, NAPS = 500 };
static _Thread_local const _Atomic bool *pace_hurry;
static _Thread_local size_t pace_bytes;
static _Thread_local int naps;

void lvni_core_thread_pace(const _Atomic bool *hurry)
{
    pace_hurry = hurry;
    pace_bytes = 0;
    naps = 0;
}

/* A MiB takes about 0.1 ms to hash or to copy: a few percent of one core, which threads that share
 * the work of a step evenly would all wait for. */
void lvni_core_thread_worked(size_t bytes)
{
    if (pace_hurry == NULL) {
        return;
    }
    pace_bytes += bytes;
    if (pace_bytes >= LVNI_PACE_BYTES) {
        pace_bytes = 0;
        if (naps < NAPS && !atomic_load_explicit(pace_hurry, memory_order_relaxed)) {
            naps++;
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        }
    }
}
