/* A worker's state, and one attempt of a trial. Shared by sweep_work.c and sweep_attempt.c. */
#ifndef LEVIN_SWEEP_SWEEP_ATTEMPT_H
#define LEVIN_SWEEP_SWEEP_ATTEMPT_H

#include "sweep/sweep_ask.h"
#include "sweep/sweep_process.h"
#include "sweep/sweep_work.h"

#include <signal.h>

typedef struct lvni_sweep_slot {
    int64_t trial; /* -1: free */
    int64_t attempt, failed;
    int64_t steps;    /* of the training, before this attempt */
    int64_t log_from; /* where the log of this attempt begins */
    lvni_core_str dir;
    pid_t pid;
    bool asked;   /* to stop */
    bool robbed;  /* taken over: what it does now does not count */
    bool mute;    /* a failed beat was reported */
    int64_t rung; /* the highest one of which the trial has a record (sweep_asha.h) */
    uint64_t begin_ns, asked_ns;
} lvni_sweep_slot;

typedef struct lvni_sweep_worker {
    lvni_sweep_plan *plan;
    const lvni_sweep_work_options *o;
    lvni_sweep_owner owner;
    lvni_sweep_reader *reader;
    lvni_sweep_asker
        *asker; /* strategy exec:CMD; NULL: all trials are planned, or it has stopped */
    lvni_sweep_guard guard;
    int signal_fd;
    sigset_t mask; /* before */
    lvni_sweep_slot *slots;
    int n_slots;
    unsigned char *known; /* of each trial */
    int64_t room;
    lvni_core_str dir;
    /* a pass over all trials begins at `first`, and is at `next` */
    int64_t first, next;
    uint64_t pass_ns, beat_ns, rungs_ns;
    bool waits; /* in this pass: another worker has one */
    bool again; /* in this pass: one was claimed by another meanwhile */
    uint64_t watched_ns;
    bool is_to_wait;   /* by the strategy's program, when it was asked last */
    lvn_status reaped; /* while it was asked */
    bool noted;        /* that it waits */
    bool stopping;     /* because of `signal`; -1: of a file, or a failure */
    int signal;
    uint64_t stop_ns;
    bool failed;                                   /* a trial */
    int64_t ended[LVNI_SWEEP_STATES], interrupted; /* here */
    bool advanced;                                 /* a trial has ended, or made a step */
} lvni_sweep_worker;

/* What becomes of a trial whose attempt is over. */
typedef enum lvni_sweep_after {
    LVNI_SWEEP_AFTER_DONE, /* nothing more in this worker */
    LVNI_SWEEP_AFTER_AGAIN,
    LVNI_SWEEP_AFTER_JOB_ENDS /* the training has seen that the time of its job is over */
} lvni_sweep_after;

/* The claim is won; look: what was found before it. Starts the program; a slot that is free
 * afterwards had one that is over. */
lvn_status lvni_sweep_attempt_begin(lvni_sweep_worker *w, lvni_sweep_slot *slot, int64_t trial,
                                    const lvni_sweep_look *look, lvni_sweep_after *after);
/* Its program has ended: the result, or why there is none. Frees the slot. */
lvn_status lvni_sweep_attempt_end(lvni_sweep_worker *w, lvni_sweep_slot *slot, int code,
                                  lvni_sweep_after *after);
void lvni_sweep_attempt_beat(lvni_sweep_slot *slot);
/* Of trainings of strategy asha: what they have reached; the worse ones are asked to stop. */
lvn_status lvni_sweep_attempt_follow(lvni_sweep_worker *w, lvni_sweep_slot *slot);
/* SIGUSR1 is SIGTERM for programs that are not levin's trainings. */
void lvni_sweep_attempt_stop(const lvni_sweep_worker *w, lvni_sweep_slot *slot, int signal_number);

#endif
