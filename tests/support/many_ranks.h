/* Many simulated ranks of a store in one thread: sockets and poll, no thread and no lvni_control
 * each. For the test and the benchmark of 1,024 ranks. */
#ifndef LEVIN_TESTS_MANY_RANKS_H
#define LEVIN_TESTS_MANY_RANKS_H

#include <levin/status.h>

typedef struct many_ranks_times {
    double table_s;  /* from the first connect until all have the table of all */
    double gather_s; /* then: until all have the 64 bytes of all */
    double leave_s;  /* then: until all have left */
} many_ranks_times;

/* Lets this process open so many files. LVN_ERR_RESOURCE: the hard limit is lower. */
lvn_status many_ranks_allow(int world);
/* All ranks of the run "many" at 127.0.0.1:port: rendezvous (8 ranks a host), one gather, leave.
 * Checks what they get. */
lvn_status many_ranks_run(int port, int world, many_ranks_times *times);

#endif
