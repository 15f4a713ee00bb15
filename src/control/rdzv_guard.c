/* rdzv_guard.h. What runs in the handler is limited to what a handler may do: it looks at atomics,
 * and calls stat, unlink and rmdir. */
#include "rdzv_guard.h"

#include "rdzv_file.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const int taken[] = {SIGINT, SIGTERM, SIGHUP};
enum { TAKEN = sizeof taken / sizeof *taken, FREE = 0, CHANGING, BEGUN, WRITTEN };

static _Atomic int state; /* who has made it CHANGING may touch what follows, and nobody else */
static char guarded[4096], temporary[4096 + 32];
static size_t made_from;
/* before: what an earlier run has left, or another one has put there, is not this one's */
static bool was_there;
static struct stat old, ours; /* ours: from WRITTEN on */
static pid_t owner;           /* not one of its children */
static struct sigaction before[TAKEN];

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static void remove_file(void)
{
    struct stat there;
    int now = atomic_load(&state);
    if (getpid() != owner || (now != BEGUN && now != WRITTEN) ||
        !atomic_compare_exchange_strong(&state, &now, CHANGING)) {
        return;
    }
    unlink(temporary);
    if (stat(guarded, &there) == 0 &&
        (now == WRITTEN ? same_file(&there, &ours) : !was_there || !same_file(&there, &old))) {
        unlink(guarded);
    }
    lvni_control_rdzv_remove_dirs(guarded, made_from);
    atomic_store(&state, FREE);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    const int error = errno;
    int i = 0;
    while (i < TAKEN - 1 && taken[i] != number) {
        i++;
    }
    remove_file();
    if ((before[i].sa_flags & SA_SIGINFO) != 0) {
        before[i].sa_sigaction(number, info, context);
    } else if (before[i].sa_handler == SIG_DFL) {
        sigaction(number, &before[i], NULL);
        raise(number); /* ends the process when this handler returns */
    } else {
        before[i].sa_handler(number);
    }
    errno = error;
}

static bool is_mine(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) != 0 && action->sa_sigaction == on_signal;
}

static void take(int i)
{
    struct sigaction now, action;
    if (sigaction(taken[i], NULL, &now) != 0 || is_mine(&now) ||
        ((now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_IGN)) {
        return;
    }
    before[i] = now;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_signal;
    action.sa_mask = now.sa_mask;
    action.sa_flags = SA_SIGINFO | (now.sa_flags & (SA_RESTART | SA_ONSTACK));
    sigaction(taken[i], &action, NULL);
}

void lvni_control_rdzv_guard_begin(const char *path, size_t made)
{
    int want = FREE;
    if (strlen(path) >= sizeof guarded ||
        !atomic_compare_exchange_strong(&state, &want, CHANGING)) {
        return;
    }
    made_from = made;
    owner = getpid();
    snprintf(guarded, sizeof guarded, "%s", path);
    /* as lvni_core_file_write names it */
    snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path, (long)owner);
    was_there = stat(path, &old) == 0;
    for (int i = 0; i < TAKEN; i++) {
        take(i);
    }
    atomic_store(&state, BEGUN);
}

void lvni_control_rdzv_guard_written(const char *path)
{
    int want = BEGUN;
    if (atomic_load(&state) == BEGUN && strcmp(guarded, path) == 0 && stat(path, &ours) == 0) {
        atomic_compare_exchange_strong(&state, &want, WRITTEN);
    }
}

void lvni_control_rdzv_guard_end(const char *path)
{
    if (strcmp(guarded, path) != 0) {
        return;
    }
    for (int i = 0; i < TAKEN; i++) { /* also where a signal has removed the file already */
        struct sigaction is;
        if (sigaction(taken[i], NULL, &is) == 0 && is_mine(&is)) {
            sigaction(taken[i], &before[i], NULL);
        }
    }
    int now = atomic_load(&state);
    if (now == BEGUN || now == WRITTEN) {
        atomic_compare_exchange_strong(&state, &now, FREE);
    }
}
