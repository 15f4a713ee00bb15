/* For ranks.c: what is requested, this process as one rank of several, and the ranks it starts. */
#ifndef LEVIN_RUN_RANK_IMPL_H
#define LEVIN_RUN_RANK_IMPL_H

#include "control/control.h"
#include "control/store.h"
#include "launch/rank_info.h"
#include "run/ranks.h"

#include <stdatomic.h>

/* ---- rank_request.c: what configuration and environment request ---- */

typedef struct lvni_run_rank_request {
    lvni_launch_rank_info info;
    int devices; /* of this node; on the CPU its ranks */
    int *index;  /* their numbers on the machine; NULL: the CPU */
    int mine;    /* one process of several: its number among them, -1: the CPU */
    bool threads;
    bool strict; /* warnings are errors */
} lvni_run_rank_request;

/* Warns, and resolves accelerator=, strategy= and strict=. To be freed in every case. */
lvn_status lvni_run_rank_request_read(lvni_core_config *config,
                                      const lvni_run_ranks_command *command,
                                      lvni_run_rank_request *out);
void lvni_run_rank_request_free(lvni_run_rank_request *request);
bool lvni_run_is_one_of_several(const lvni_launch_rank_info *info); /* processes */

/* ---- rank_process.c: one process of several, which shares memory with the others ---- */

/* Rendezvous with the other processes. rank[n]: of this one, which is one of them or, with
 * `threads`, has n of them; device is given, the rest is filled. A store is opened where this
 * process is its host. LVN_ERR_TIMEOUT when ranks are missing, LVN_ERR_USAGE or LVN_ERR_MISMATCH
 * when they do not fit together (numbered as in docs/launch.md). */
lvn_status lvni_run_rank_process_join(const lvni_core_config *config,
                                      const lvni_launch_rank_info *info, bool threads,
                                      lvni_run_rank *rank, int n, lvni_run_rank_process **out);
/* The run is over for this rank. failed: with the thread's last error, which the others get;
 * where another rank failed first, the error becomes that rank's message (LVN_ERR_PEER). kept
 * (lvni_run_ranks) is the end of its message. NULL is fine. */
lvn_status lvni_run_rank_process_leave(lvni_run_rank_process *process, lvn_status failed,
                                       const char *kept);

/* ---- rank_rendezvous.c: how this process finds the others ---- */

struct lvni_run_rank_process {
    lvni_control_store *store; /* NULL: another process has it */
    lvni_control *control;
    _Atomic(lvni_dist_comm *) comm; /* of the first rank; read by the control channel's thread */
    lvni_dist_comm **comms;         /* of all ranks of this process */
    int n;
    bool threads; /* they are threads: rank numbers are not those of processes */
    int exchanges;
    char *out; /* the run directory, where this rank knows it */
    int rank;
    /* NULL before the rendezvous; read by the control channel's thread */
    _Atomic(const lvni_control_member *) members;
};

typedef void (*lvni_run_on_abort)(void *process, const lvni_control_cause *cause);
/* Authenticates, opens the store where this process is its host, and waits for all ranks, whose
 * facts process->control then has. on_abort: called on the control channel's thread. */
lvn_status lvni_run_rank_rendezvous(const lvni_core_config *config,
                                    const lvni_launch_rank_info *info, const char *device,
                                    lvni_run_on_abort on_abort, lvni_run_rank_process *process);

/* ---- rank_start.c: the command becomes `levin launch`, whose ranks are the same command ---- */

/* LVN_ERR_USAGE for max_restarts= where no launcher of levin could restart ranks: it would have no
 * effect. starts: this command starts its ranks. */
lvn_status lvni_run_check_restarts(const lvni_core_config *config,
                                   const lvni_launch_rank_info *info, bool starts);
/* The same command again, as the ranks of `levin launch`. dir: of the run, for its logs and error
 * records too; NULL: they stay only after a failure. made: of lvni_run_dir_claim, for
 * ranks that then refuse to begin; 0: it was not claimed. Returns when that was not possible; a
 * rank starts no others (LVN_ERR_USAGE). */
lvn_status lvni_run_rank_start(const lvni_core_config *config,
                               const lvni_run_ranks_command *command, const char *dir, size_t made);

#endif
