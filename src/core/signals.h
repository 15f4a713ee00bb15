/* Signals that ask for a stop or a checkpoint. Handlers only set a flag; the training looks at it
 * between steps (trainer/checkpointing.c). A host program gets its own handlers back.
 *
 * SIGINT, SIGTERM, SIGHUP (unless it is ignored: nohup) and SIGUSR1 ask for a stop. A second SIGINT
 * ends the process at once; the first prints that. SIGUSR2 asks for a checkpoint and no stop.
 * SIGPIPE is ignored. Called by commands, recipes and the trainer, from one thread. In a training
 * of a host program (training.h) these functions change nothing, and what asks for a stop is the
 * program. */
#ifndef LEVIN_CORE_SIGNALS_H
#define LEVIN_CORE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/* From here on there is something to lose. Forgets earlier signals, except those that came since
 * lvni_core_signals_install_early. */
void lvni_core_signals_install(void);
/* Before there is a run directory: SIGINT, SIGTERM and SIGHUP end the process at once, with their
 * exit codes; SIGUSR1, whose exit code promises a checkpoint, is kept for
 * lvni_core_signals_install, which takes over when the first file is about to be written. */
void lvni_core_signals_install_early(void);
/* As soon as a process knows that it will train: SIGUSR1 and SIGUSR2, which ask for a checkpoint
 * and would end it now, wait for lvni_core_signals_install_early, also where another program is
 * executed in between; and they come to nothing after lvni_core_signals_remove. */
void lvni_core_signals_defer(void);
/* Before this process becomes the launcher of its ranks: they wait again, and those that have come
 * come again; SIGINT, SIGTERM and SIGHUP wait for the launcher, too, which knows what is to be
 * removed. Nothing after lvni_core_signals_install, and where no handlers are. */
void lvni_core_signals_hand_over(void);
/* A process that is leaving writes its message and its error record to their end, though it may be
 * sent a signal meanwhile. */
void lvni_core_signals_hold(void);
/* The handlers from before are back; the signal stays noted until the next install. In a process
 * that only trains (lvni_core_signals_defer) one more signal comes to nothing, the next ends it. */
void lvni_core_signals_remove(void);

/* Between the two SIGPIPE does not reach the calling thread, whatever the process does with it: for
 * writes of which only the status counts. Both leave errno. */
typedef struct lvni_core_sigpipe {
    sigset_t before;
    bool was_pending;
} lvni_core_sigpipe;
void lvni_core_sigpipe_block(lvni_core_sigpipe *state);
void lvni_core_sigpipe_unblock(const lvni_core_sigpipe *state);

int lvni_core_signals_asked(void);                    /* that asked this process to stop; 0: none */
bool lvni_core_signals_take_save(void);               /* SIGUSR2 came since the last call */
int lvni_core_signals_saves(void);                    /* SIGUSR2 came so often; from any thread */
const char *lvni_core_signal_name(int signal_number); /* "Ctrl-C", "SIGTERM", ... */

#endif
