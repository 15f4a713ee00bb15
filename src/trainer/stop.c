/* Signals only set a flag; the loop looks at it between steps (trainer.h). A host program gets its own handlers back. */
#include "trainer/trainer.h"

#include <signal.h>
#include <string.h>

/* `levin train ... | head`: a reader that went away is no reason to stop training, hence SIGPIPE. */
static const int taken[] = {SIGINT, SIGTERM, SIGUSR1, SIGPIPE};
enum { TAKEN = sizeof taken / sizeof *taken };

static volatile sig_atomic_t asked;
static struct sigaction before[TAKEN];
static bool installed;

static void note(int signal_number)
{
    if (asked == SIGINT && signal_number == SIGINT) {
        struct sigaction standard;
        memset(&standard, 0, sizeof standard);
        standard.sa_handler = SIG_DFL;
        sigaction(SIGINT, &standard, NULL);
        raise(SIGINT);
    }
    asked = signal_number;
}

void lvni_stop_install(void)
{
    asked = 0;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_flags = SA_RESTART;
    for (int i = 0; i < TAKEN; i++) {
        action.sa_handler = taken[i] == SIGPIPE ? SIG_IGN : note;
        sigaction(taken[i], &action, &before[i]);
    }
    installed = true;
}

void lvni_stop_remove(void)
{
    for (int i = 0; installed && i < TAKEN; i++) {
        sigaction(taken[i], &before[i], NULL);
    }
    installed = false;
}

int lvni_stop_signal(void)
{
    return asked;
}
