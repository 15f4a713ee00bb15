/* Handlers of signals (signals.h). */
#include "core/signals.h"

#include "core/error.h"
#include "core/machine.h"
#include "core/training.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* `levin train ... | head`: a reader that went away is not a reason to stop training,
 * hence SIGPIPE. */
static const int taken[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};
enum { TAKEN = sizeof taken / sizeof *taken };

static volatile sig_atomic_t early, save_asked;
static _Atomic int saves_asked;
static _Atomic int asked; /* exchanged: two signals may be handled at once, by two threads */
static struct sigaction before[TAKEN];
static bool installed;
static bool deferring; /* this process trains, and does nothing else */

/* The training has no signals: they are its host program's. */
static bool is_hosted(void)
{
    return lvni_core_training_get()->hosted;
}

const char *lvni_core_signal_name(int signal_number)
{
    return signal_number == SIGINT    ? "Ctrl-C"
           : signal_number == SIGTERM ? "SIGTERM"
           : signal_number == SIGHUP  ? "SIGHUP"
           : signal_number == SIGUSR1 ? "SIGUSR1"
                                      : "a request of the program";
}

/* Nothing is there yet that a stop could harm, and what goes on (a long list of files, a long
 * download of weights) is not worth waiting for. */
static void leave(int signal_number, bool keyboard)
{
    lvni_core_terminal_print_from_signal(keyboard, "stopped: ");
    lvni_core_terminal_print_from_signal(false, lvni_core_signal_name(signal_number));
    lvni_core_terminal_print_from_signal(false, " before the first step: nothing was written\n");
    _exit(lvni_core_exit_of_signal(signal_number));
}

static void record(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    const bool keyboard = info->si_code == SI_KERNEL; /* else kill(), or a launcher */
    if (signal_number == SIGUSR2) {
        save_asked = 1;
        atomic_fetch_add(&saves_asked, 1);
        return;
    }
    if (early && signal_number != SIGUSR1) {
        leave(signal_number, keyboard);
    }
    if (atomic_exchange(&asked, signal_number) == SIGINT && signal_number == SIGINT) {
        struct sigaction standard;
        memset(&standard, 0, sizeof standard);
        standard.sa_handler = SIG_DFL;
        sigaction(SIGINT, &standard, NULL);
        lvni_core_terminal_print_from_signal(
            keyboard, "stopped at once: what came after the last checkpoint is lost\n");
        raise(SIGINT);
    } else if (signal_number == SIGINT) {
        lvni_core_terminal_print_from_signal(
            keyboard, "stopping after this step; Ctrl-C again stops at once, without saving\n");
    }
}

static void install(void)
{
    struct sigaction action;
    if (installed) {
        return;
    }
    memset(&action, 0, sizeof action);
    for (int i = 0; i < TAKEN; i++) {
        action.sa_flags = SA_RESTART;
        if (taken[i] == SIGPIPE) {
            action.sa_handler = SIG_IGN;
        } else {
            action.sa_flags |= SA_SIGINFO;
            action.sa_sigaction = record;
        }
        sigaction(taken[i], &action, &before[i]);
        if (taken[i] == SIGHUP && before[i].sa_handler == SIG_IGN) {
            sigaction(SIGHUP, &before[i], NULL); /* nohup: the run is to outlive its terminal */
        }
    }
    installed = true;
}

static sigset_t deferred(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    return set;
}

void lvni_core_signals_defer(void)
{
    const sigset_t set = deferred();
    deferring = true;
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void lvni_core_signals_install_early(void)
{
    const sigset_t set = deferred();
    asked = 0;
    save_asked = 0;
    early = 1;
    install();
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* Those that end the process, except one that is ignored (nohup): blocked, it would be delivered
 * later. */
static void hold_ends(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct sigaction now;
        if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN) {
            sigaddset(&set, ends[i]);
        }
    }
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void lvni_core_signals_hand_over(void)
{
    if (is_hosted() || !installed || !early) {
        return;
    }
    lvni_core_signals_defer();
    hold_ends();
    if (asked == SIGUSR1) {
        kill(getpid(), SIGUSR1);
    }
    if (save_asked) {
        kill(getpid(), SIGUSR2);
    }
}

void lvni_core_signals_install(void)
{
    if (is_hosted()) {
        return;
    }
    if (!early) {
        asked = 0; /* never read and written back: a signal that comes in between would be lost */
        save_asked = 0;
    }
    early = 0;
    install();
}

void lvni_core_signals_hold(void)
{
    if (is_hosted()) {
        return;
    }
    early = 0;
    install();
}

static void do_nothing(int signal_number)
{
    (void)signal_number;
}

/* All is saved, and the process is about to end: the first of these signals must not turn its exit
 * code into a failure. The second one ends it, should it hang. */
static void let_end(int i)
{
    struct sigaction once;
    memset(&once, 0, sizeof once);
    once.sa_handler = do_nothing;
    once.sa_flags = SA_RESTART | (int)SA_RESETHAND;
    sigaction(taken[i], taken[i] == asked ? &before[i] : &once, NULL);
}

void lvni_core_signals_remove(void)
{
    if (is_hosted()) {
        return;
    }
    for (int i = 0; installed && i < TAKEN; i++) {
        if (!deferring || taken[i] == SIGPIPE || before[i].sa_handler == SIG_IGN) {
            sigaction(taken[i], &before[i], NULL);
        } else if (taken[i] == SIGUSR1 || taken[i] == SIGUSR2) {
            /* there is nothing left to save: the request must not end the process */
            signal(taken[i], SIG_IGN);
        } else {
            let_end(i);
        }
    }
    installed = false;
    early = 0;
}

static sigset_t sigpipe_alone(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    return set;
}

void lvni_core_sigpipe_block(lvni_core_sigpipe *state)
{
    const sigset_t alone = sigpipe_alone();
    sigset_t pending;
    sigpending(&pending);
    state->was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &alone, &state->before);
}

void lvni_core_sigpipe_unblock(const lvni_core_sigpipe *state)
{
    const sigset_t alone = sigpipe_alone();
    const struct timespec now = {0};
    const int error = errno;
    while (!state->was_pending && sigtimedwait(&alone, NULL, &now) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &state->before, NULL);
    errno = error;
}

int lvni_core_signals_asked(void)
{
    const lvni_core_training *t = lvni_core_training_get();
    return !t->hosted ? asked : t->stops ? t->stop : 0;
}

int lvni_core_signals_saves(void)
{
    return is_hosted() ? 0 : atomic_load(&saves_asked);
}

bool lvni_core_signals_take_save(void)
{
    const bool wanted = save_asked != 0 && !is_hosted();
    if (wanted) {
        save_asked = 0;
    }
    return wanted;
}
