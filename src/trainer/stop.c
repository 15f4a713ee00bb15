/* Signals only set a flag; the loop looks at it between steps (trainer.h). */
#include "trainer/trainer.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t asked;

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
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = note;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action,
              NULL); /* `levin train ... | head`: a reader that went away is no reason to stop training */
}

int lvni_stop_signal(void)
{
    return asked;
}
