/* The exit codes of every levin command, every rank and the launcher: this one table and no others.
 * The cause is in the message and in the error record; the code says what kind of thing happened
 * and whether starting again makes sense. */
#ifndef LEVIN_CORE_EXIT_CODE_H
#define LEVIN_CORE_EXIT_CODE_H

#include <levin/status.h>

/* name, code, meaning */
#define LVNI_EXIT_LIST(X)                                                                          \
    X(OK, 0, "finished")                                                                           \
    X(FAILURE, 1,                                                                                  \
      "failure in the work itself: user code, data, a value that is not finite, a file, a check")  \
    X(USAGE, 64, "usage, configuration, identity: unknown key, wrong type, impossible batch plan") \
    X(RESOURCE, 69, "a resource is missing or too small: memory, device, port, a command")         \
    X(RENDEZVOUS, 75, "the ranks did not find each other in time")                                 \
    X(PEER, 76, "stopped because another rank or node is gone")                                    \
    X(REQUEUE, 85, "stopped at the time limit or on the requeue signal, checkpoint written")       \
    X(NO_REQUEUE, 86, "as 85, but the limit of requeues is reached")                               \
    X(TIMEOUT, 124, "the time given with --timeout is over")                                       \
    X(NOT_EXECUTABLE, 126, "the program is not executable")                                        \
    X(NO_PROGRAM, 127, "the program is not found")                                                 \
    X(SIGHUP, 129, "the terminal went away (checkpoint written if it could be)")                   \
    X(SIGINT, 130, "interrupted from the keyboard (checkpoint written if it could be)")            \
    X(SIGTERM, 143, "terminated (checkpoint written if it could be)")

typedef enum lvni_core_exit_code {
#define LVNI_EXIT_ENUM(name, code, text) LVNI_EXIT_##name = code,
    LVNI_EXIT_LIST(LVNI_EXIT_ENUM)
#undef LVNI_EXIT_ENUM
} lvni_core_exit_code;

/* The code a process leaves with because of a status. LVN_ERR_CANCELLED depends on the signal and
 * is the caller's matter (lvni_core_exit_of_signal); here it counts as 1. */
lvni_core_exit_code lvni_core_exit_of_status(lvn_status status);
/* 128 + n. */
int lvni_core_exit_of_signal(int signal_number);

#endif
