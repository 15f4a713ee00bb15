/* A trial's program as a process: a group of its own, whose output goes into the trial's log, and
 * which does not outlive this process. */
#ifndef LEVIN_SWEEP_SWEEP_PROCESS_H
#define LEVIN_SWEEP_SWEEP_PROCESS_H

#include <levin/status.h>

#include <sys/types.h>

/* From now on, until _end: a small process that kills the groups of those that run when this one
 * is gone. PR_SET_PDEATHSIG alone reaches what we start, but not what that has started. */
typedef struct lvni_sweep_guard {
    pid_t pid;
    int fd;
} lvni_sweep_guard;
lvn_status lvni_sweep_guard_start(lvni_sweep_guard *out);
void lvni_sweep_guard_end(lvni_sweep_guard *guard);

/* Nothing on its standard input, `log` for its outputs, all signals as in a new process. LVN_OK
 * also where the program cannot be started: *error is the errno then, else 0. From a process
 * without threads. */
lvn_status lvni_sweep_process_start(const lvni_sweep_guard *guard, char *const *argv,
                                    char *const *environment, int log, pid_t *pid, int *error);
/* Has it ended? *exit_code: 128 + n of signal n. What is left of its group is killed. */
bool lvni_sweep_process_ended(const lvni_sweep_guard *guard, pid_t pid, int *exit_code);

#endif
