/* rdzv_guard.h. What runs in the handler is limited to what a handler may do: it looks at atomics, and calls stat, unlink and rmdir. */
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
enum { TAKEN = sizeof taken / sizeof *taken, FREE = 0, CHANGING, GUARDED };

static _Atomic int state;  /* who takes it out of FREE or GUARDED alone may touch what follows */
static char guarded[4096];
static size_t made_from;
static struct stat written; /* not the file that another run has put there since */
static pid_t owner;         /* not one of its children */
static struct sigaction before[TAKEN];

static void remove_file(void)
{
    struct stat there;
    int want = GUARDED;
    if (getpid() != owner || !atomic_compare_exchange_strong(&state, &want, CHANGING)) {
        return;
    }
    if (stat(guarded, &there) == 0 && there.st_dev == written.st_dev && there.st_ino == written.st_ino) {
        unlink(guarded);
        lvni_rdzv_remove_dirs(guarded, made_from);
    }
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
    if (sigaction(taken[i], NULL, &now) != 0 || is_mine(&now) || ((now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_IGN)) {
        return;
    }
    before[i] = now;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_signal;
    action.sa_mask = now.sa_mask;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(taken[i], &action, NULL);
}

void lvni_rdzv_guard_begin(const char *path, size_t made)
{
    int want = FREE;
    if (strlen(path) >= sizeof guarded || !atomic_compare_exchange_strong(&state, &want, CHANGING)) {
        return;
    }
    snprintf(guarded, sizeof guarded, "%s", path);
    made_from = made;
    owner = getpid();
    const bool there = stat(path, &written) == 0;
    for (int i = 0; there && i < TAKEN; i++) {
        take(i);
    }
    atomic_store(&state, there ? GUARDED : FREE);
}

void lvni_rdzv_guard_end(const char *path)
{
    int want = GUARDED;
    if (!atomic_compare_exchange_strong(&state, &want, CHANGING)) {
        return;
    }
    const bool mine = strcmp(guarded, path) == 0;
    for (int i = 0; mine && i < TAKEN; i++) {
        struct sigaction now;
        if (sigaction(taken[i], NULL, &now) == 0 && is_mine(&now)) {
            sigaction(taken[i], &before[i], NULL);
        }
    }
    atomic_store(&state, mine ? FREE : GUARDED);
}
