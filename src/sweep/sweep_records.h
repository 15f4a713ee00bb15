/* Who runs a trial, and how it ended: files of its folder, on a file system that several nodes
 * share and that has no locks that can be trusted.
 *
 * claim.K   attempt K (from 1 on) has an owner. A file of the owner's own name is finished first
 *           and then gets this name by link(2): one link alone can be made. Whether it was this one
 *           is read from the number of links of the own file, as the answer of link(2) can be
 *           lost on the way (NFS). JSON: the owner, and the time (for people).
 * beat.K    one byte more for each beat of the owner of attempt K, who alone writes it.
 * left.K    attempt K is over. Linked as a claim is, so it is over once: by its owner, or by a
 *           reader that found the owner dead. JSON: why (lvni_sweep_end), by whom, and the result
 *           where it has one. Only behind it comes attempt K + 1.
 * result    one more link to the left.K whose `why` is "ended". An owner that was killed between
 *           the two links has ended the trial all the same: left.K counts.
 * failed.K  what was `result`, after `resume --retry-failed`: renamed, or linked to left.K where
 *           there was no result yet. left.K has ended the attempt then, and no longer the trial.
 * stop      in the sweep's folder, or in a trial's: made by `levin sweep stop`. Workers look for it
 *           before each claim, and with each beat, and treat it as SIGTERM.
 * own.*     a file that was to become one of these, of a process that was killed.
 *
 * A worker that was taken for dead and comes back finds left.K: it stops its trial, and its result
 * is refused and logged.
 *
 * A reader takes the owner of the highest claim without `left` for dead when the size of beat.K did
 * not change for plan.dead_after_s on the reader's own monotonic clock, and its job, or the process
 * table of its host, has no such process. Where neither can be asked, after three times that.
 * Clocks are never compared. */
#ifndef LEVIN_SWEEP_SWEEP_RECORDS_H
#define LEVIN_SWEEP_SWEEP_RECORDS_H

#include "core/str.h"
#include "sweep/sweep_plan.h"

typedef enum lvni_sweep_state {
    LVNI_SWEEP_PENDING,     /* no claim, or its last attempt is to be repeated */
    LVNI_SWEEP_RUNNING,     /* claimed, as far as this reader knows alive */
    LVNI_SWEEP_LOST,        /* claimed, and its owner is dead */
    LVNI_SWEEP_INTERRUPTED, /* left by its own owner: goes on from its checkpoint */
    LVNI_SWEEP_DONE,
    LVNI_SWEEP_DIVERGED, /* its value is not a number */
    LVNI_SWEEP_FAILED,
    LVNI_SWEEP_PRUNED,
    LVNI_SWEEP_STATES
} lvni_sweep_state;
const char *lvni_sweep_state_name(lvni_sweep_state state);
static inline bool lvni_sweep_state_is_end(lvni_sweep_state state)
{
    return state >= LVNI_SWEEP_DONE;
}

typedef struct lvni_sweep_owner {
    char host[256];
    int64_t pid, started; /* started: of the process, as /proc/PID/stat has it */
    char boot[40];        /* of the host: a pid of another boot is dead */
    uint64_t space;       /* of numbers of processes: containers of one host have several */
    char job[64];         /* Slurm's: "123", "123_4"; "": none */
    char node[256];       /* as Slurm calls the host; "": not in a job */
    int64_t restarts;     /* of the job, before this start of it */
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

/* ---- reading ---- */

/* What a reader finds. */
typedef struct lvni_sweep_look {
    lvni_sweep_state state;
    int64_t attempt; /* the highest claim; 0: none */
    int64_t failed;  /* attempts that failed and are to be repeated */
    lvni_sweep_owner owner;
    double silent_s;          /* that this reader saw no beat of it */
    bool there;               /* its process is known to be there */
    lvni_sweep_result result; /* where state is an end */
} lvni_sweep_look;

/* Is the process of a claim there? A hook, so that a test can answer otherwise. */
typedef enum lvni_sweep_alive {
    LVNI_SWEEP_GONE,    /* dead, if it does not beat either */
    LVNI_SWEEP_THERE,   /* alive, whether it beats or not */
    LVNI_SWEEP_UNKNOWN, /* cannot be asked */
    LVNI_SWEEP_DEAD     /* for certain: no beat is waited for */
} lvni_sweep_alive;
typedef lvni_sweep_alive lvni_sweep_ask(const lvni_sweep_owner *owner, void *user);
/* /proc of this host and boot; else `squeue` for a job, once for all of them in half a minute; else
 * unknown. Also unknown where the job runs on: whether this one of its processes does cannot be
 * asked from elsewhere. */
lvni_sweep_ask lvni_sweep_ask_host;

/* Remembers sizes of beats between looks. One thread at a time. */
typedef struct lvni_sweep_reader lvni_sweep_reader;
/* The plan is borrowed and must outlive it; it may have grown since. now_ns: a monotonic clock;
 * NULL: that of this machine. */
lvn_status lvni_sweep_reader_create(const lvni_sweep_plan *plan, lvni_sweep_ask *ask, void *user,
                                    uint64_t (*now_ns)(void), lvni_sweep_reader **out);
/* LOST needs dead_after_s between two looks, or an owner that is DEAD. A trial of which nothing can
 * be read is an error; its folder may be missing: PENDING. */
lvn_status lvni_sweep_reader_look(lvni_sweep_reader *r, int64_t trial, lvni_sweep_look *out);
void lvni_sweep_reader_destroy(lvni_sweep_reader *r);

/* DIR/trials/000017, appended to out. */
void lvni_sweep_trial_path(const lvni_sweep_plan *plan, int64_t trial, lvni_core_str *out);
/* Has the sweep been asked to stop, or with trial >= 0 this trial? */
bool lvni_sweep_is_stopped(const lvni_sweep_plan *plan, int64_t trial);

/* A trial's program has its folder, an absolute path, and the number of the attempt in these. */
#define LVNI_SWEEP_TRIAL_NAME "LEVIN_SWEEP_TRIAL"
#define LVNI_SWEEP_ATTEMPT_NAME "LEVIN_SWEEP_ATTEMPT"

/* ---- writing: workers, each for itself ---- */

/* This process. */
void lvni_sweep_owner_self(lvni_sweep_owner *out);

/* *won: attempt `attempt` of the trial in folder `dir` is the caller's, who has looked and found
 * that the attempt before it was left, and no end. */
lvn_status lvni_sweep_claim(const char *dir, int64_t attempt, const lvni_sweep_owner *owner,
                            bool *won);
/* One beat of the owner. *left: the attempt is over, by another's hand. */
lvn_status lvni_sweep_beat(const char *dir, int64_t attempt, bool *left);

/* Why an attempt is over. */
typedef enum lvni_sweep_end {
    LVNI_SWEEP_END_ENDED,       /* with it the trial; has a result */
    LVNI_SWEEP_END_RETRY,       /* failed, and is to be repeated; has a result */
    LVNI_SWEEP_END_INTERRUPTED, /* by its owner, who was asked to stop */
    LVNI_SWEEP_END_LOST,        /* taken over: by a reader */
    LVNI_SWEEP_ENDS
} lvni_sweep_end;
/* *won: it was this call. Else it was over already, and what this call brought is refused: the
 * caller logs that. result: NULL where `why` has none. */
lvn_status lvni_sweep_leave(const char *dir, int64_t attempt, lvni_sweep_end why,
                            const lvni_sweep_owner *by, const lvni_sweep_result *result, bool *won);

#endif
