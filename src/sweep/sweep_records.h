/* Who runs a trial, and how it ended: files of its folder, on a file system that several nodes
 * share and that has no locks that can be trusted.
 *
 * claim.K   attempt K (from 1 on) has an owner. A file of the owner's own name is finished first
 *           and then gets this name by link(2): one link alone can be made. Whether it was this one
 *           is read from the number of links of the own file, as the answer of link(2) can be
 *           lost on the way (NFS). JSON: attempt, host, pid, start of the process, boot, job, time.
 * beat.K    a counter that the owner of attempt K alone writes, every few seconds.
 * left.K    attempt K ended without a result, and may be followed by K + 1: it was interrupted, or
 *           taken over by a reader that found its owner dead. Linked as a claim is.
 * result    how the trial ended, linked once. A second one is refused and logged.
 * failed.K  what was `result`, after `resume --retry-failed`: renamed.
 *
 * A reader takes the owner of the highest claim without `left` for dead when its counter did not
 * move for plan.dead_after_s on the reader's own monotonic clock, and its job, or the process table
 * of its host, has no such process. Where neither can be asked, after three times that. Clocks
 * are never compared. */
#ifndef LEVIN_SWEEP_SWEEP_RECORDS_H
#define LEVIN_SWEEP_SWEEP_RECORDS_H

#include "sweep/sweep_plan.h"

typedef enum lvni_sweep_state {
    LVNI_SWEEP_PENDING,     /* no claim, or one that was left by a take-over */
    LVNI_SWEEP_RUNNING,     /* claimed, as far as this reader knows alive */
    LVNI_SWEEP_LOST,        /* claimed, and its owner is dead */
    LVNI_SWEEP_INTERRUPTED, /* left by its own owner: goes on from its checkpoint */
    LVNI_SWEEP_DONE,
    LVNI_SWEEP_DIVERGED, /* ended well, its value is not a number */
    LVNI_SWEEP_FAILED,
    LVNI_SWEEP_PRUNED,
    LVNI_SWEEP_STATES
} lvni_sweep_state;
const char *lvni_sweep_state_name(lvni_sweep_state state);

typedef struct lvni_sweep_owner {
    char host[256];
    int64_t pid, started; /* started: of the process, as /proc/PID/stat has it */
    char boot[40];        /* of the host: a pid of another boot is dead */
    char job[64];         /* Slurm's: "123", "123_4"; "": none */
} lvni_sweep_owner;

/* The result of a trial. Texts are copied. */
typedef struct lvni_sweep_result {
    lvni_sweep_state state; /* DONE, DIVERGED, FAILED or PRUNED */
    int64_t attempt;
    int exit_code;
    char error[512];             /* first line of the error; "": none */
    bool has_value;              /* the metric was logged */
    double value, last;          /* best and last value of the metric */
    int64_t step, epoch, epochs; /* of the best value; epochs that ran */
    double seconds;              /* of the last attempt */
    char checkpoint[512];        /* of the best value, relative to the trial; "": none */
} lvni_sweep_result;

/* What a reader finds. */
typedef struct lvni_sweep_look {
    lvni_sweep_state state;
    int64_t attempt; /* the highest claim; 0: none */
    lvni_sweep_owner owner;
    lvni_sweep_result result; /* where state is an end */
} lvni_sweep_look;

/* Is the process of a claim there? A hook, so that a test can answer otherwise. */
typedef enum lvni_sweep_alive {
    LVNI_SWEEP_GONE,
    LVNI_SWEEP_THERE,
    LVNI_SWEEP_UNKNOWN
} lvni_sweep_alive;
typedef lvni_sweep_alive lvni_sweep_ask(const lvni_sweep_owner *owner, void *user);
/* /proc of this host and boot; else `squeue` for a job; else unknown. */
lvni_sweep_ask lvni_sweep_ask_host;

/* Remembers counters of beats between looks. One thread at a time. */
typedef struct lvni_sweep_reader lvni_sweep_reader;
lvn_status lvni_sweep_reader_create(const lvni_sweep_plan *plan, lvni_sweep_ask *ask, void *user,
                                    lvni_sweep_reader **out);
/* The plan is borrowed and must outlive it. A state of one look; LOST needs dead_after_s between
 * two looks, or an owner that is GONE by /proc of this host and this boot, which is certain. */
lvn_status lvni_sweep_reader_look(lvni_sweep_reader *r, int64_t trial, lvni_sweep_look *out);
void lvni_sweep_reader_destroy(lvni_sweep_reader *r);

#endif
