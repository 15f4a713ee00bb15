/* The ranks of a run as one process sees them: all of them as its threads (strategy dp), itself as
 * one of several processes (ddp), or its threads, where other nodes have more (ddp2). Opened by a
 * command before it reads its data, used by fit.c. */
#ifndef LEVIN_RUN_RANKS_H
#define LEVIN_RUN_RANKS_H

#include "control/control.h"
#include "core/config.h"
#include "core/pins.h"
#include "dist/choice.h"

/* One rank of this process. */
typedef struct lvni_run_rank {
    int rank, world;
    lvni_dist_comm *comm;  /* NULL: world is 1 */
    lvni_control *control; /* NULL: ranks are threads */
    int nodes;             /* each with threads that are ranks (dp, ddp2); 0: ranks are processes */
    /* what the run's backends record, one list for the ranks of a process; NULL: `levin plan` */
    lvni_core_pin_entries *pins;
    int device;                 /* number of the accelerator's device; CPU: 0 */
    int cores;                  /* that this rank may use */
    int cores_all;              /* of all ranks */
    int workers;                /* threads that load its data */
    lvni_dist_choice transport; /* of several ranks */
    const int *bounds;          /* shares of the ranks (plan.h); NULL: equal */
} lvni_run_rank;

typedef struct lvni_run_rank_process lvni_run_rank_process; /* rank_process.c */

typedef struct lvni_run_ranks {
    lvni_run_rank *rank; /* of this process, ascending */
    int n;
    int world;
    const char *how;                    /* "threads", "processes"; NULL: one rank */
    lvni_run_rank_process *process;     /* NULL: all ranks are here; else how others are reached */
    lvni_core_pin_entries *pins;        /* of all of them */
    struct lvni_run_watchdog *watchdog; /* watchdog.h; NULL: none */
    /* where a failed run can be resumed (trainer.h), for the end of the message */
    char kept[768];
} lvni_run_ranks;

/* A command and its arguments, as they would be given to `levin`. */
typedef struct lvni_run_ranks_command {
    /* "train", "classify"; NULL: a user's program, whose ranks are threads unless it was started as
     * several */
    const char *command[2];
    int n;
    const char *const *args;
    /* for the run directory, which is checked before anything that takes long; NULL: a command that
     * has none */
    const char *recipe;
    bool keeps_no_logs; /* of ranks that it started, whatever comes of them */
    /* Errors that every rank would find, reported before ranks are started, and by rank 0. NULL:
     * none. */
    lvn_status (*check)(const lvni_core_config *config);
    /* a trained model: devices=auto is one device, except where several ranks were started */
    bool uses;
    /* What the command does once its ranks are known: called once, on the thread of the first. */
    lvn_status (*run)(void *user, lvni_run_ranks *ranks);
    void *user;
} lvni_run_ranks_command;

/* Runs a command on its ranks: command->run(command->user, ranks). Which they are follows from
 * devices=, strategy=, accelerator=, which become what they stand for, and from the environment,
 * which shows whether this process is one of several. Alone and with several devices under ddp it
 * becomes `levin launch`, which starts the ranks: no return. LVN_ERR_USAGE, LVN_ERR_RESOURCE, as
 * lvni_run_rank_process_join, and what the command returns: status and error are those of the
 * rank that failed first, with ranks->kept at the end of its message. */
lvn_status lvni_run_ranks_run(lvni_core_config *config, const lvni_run_ranks_command *command);
/* The work of one rank; `rank` is one of lvni_run_ranks.rank. */
typedef lvn_status (*lvni_run_rank_work)(void *user, const lvni_run_rank *rank);
/* work(user, rank) for all ranks of this process at once, the first on the calling thread. When one
 * fails the others are woken. Status and error are those of the rank that failed first. */
lvn_status lvni_run_ranks_each(const lvni_run_ranks *ranks, lvni_run_rank_work work, void *user);
/* Rank 0's text of `room` bytes in every process: what one rank has looked up for all, as files may
 * look different on other machines. A collective of the processes. */
lvn_status lvni_run_ranks_share(const lvni_run_ranks *ranks, char *text, size_t room);
/* All processes go on, or none: `mine` is this one's status, with the thread's last error. Returns
 * the status of the first rank that has another than LVN_OK, with its error. A collective of the
 * processes, before which no rank may have failed in one. */
lvn_status lvni_run_ranks_agree(const lvni_run_ranks *ranks, lvn_status mine);
/* Between two parts of a work that has no steps: LVN_ERR_CANCELLED in every process once one of
 * their ranks was asked to stop (trainer.h: lvni_trainer_stop_signal). A collective of the
 * processes. */
lvn_status lvni_run_ranks_check_stop(const lvni_run_ranks *ranks);
/* Wakes the others before this rank's work is over, with the thread's last error. Nothing after
 * LVN_OK and LVN_ERR_CANCELLED. */
void lvni_run_rank_give_up(const lvni_run_rank *rank, lvn_status status);
/* The variables by which launchers number this process: those of the process; none in a training
 * that is to be alone (core/training.h). */
char *const *lvni_run_environment(void);
/* The ranks of `levin plan`: rank 0 alone, without any other. */
lvn_status lvni_run_ranks_estimate(lvni_core_config *config, lvni_run_rank *out);

#endif
