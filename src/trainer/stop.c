/* The stop that a run follows: a signal of this process, or the one its ranks agreed on
 * (trainer.h). The handlers are core/signals.c's. */
#include "core/signals.h"
#include "trainer/trainer.h"

#include <stdatomic.h>

/* apart from this process's own signal: its second Ctrl-C must be its own */
static _Atomic int agreed;

void lvni_trainer_stop_install(void)
{
    agreed = 0;
    lvni_core_signals_install();
}

int lvni_trainer_stop_signal(void)
{
    /* first: the launcher may send this process another one while it saves */
    const int of_all = agreed;
    return of_all != 0 ? of_all : lvni_core_signals_asked();
}

void lvni_trainer_stop_note(int signal_number)
{
    if (signal_number != 0) {
        agreed = signal_number;
    }
}
