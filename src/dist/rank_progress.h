/* How far a rank is: which collective it has entered, and what it does in its step. Written by the
 * calls of comm.h, of reductions and group exchanges, and by the trainer; read by the watchdog of a
 * process from another thread (run/watchdog.c). A few relaxed stores for each call. */
#ifndef LEVIN_DIST_RANK_PROGRESS_H
#define LEVIN_DIST_RANK_PROGRESS_H

#include "dist/comm.h"

typedef enum lvni_dist_place {
    LVNI_PLACE_START,
    LVNI_PLACE_DATA,
    LVNI_PLACE_FORWARD,
    LVNI_PLACE_BACKWARD,
    LVNI_PLACE_REDUCTION,
    LVNI_PLACE_UPDATE,
    LVNI_PLACE_RESULT,  /* of a device, which computes on its own */
    LVNI_PLACE_BETWEEN, /* steps */
    LVNI_PLACE_VALIDATION,
    LVNI_PLACE_SAVE,
    LVNI_PLACE_END,
    LVNI_PLACE_COUNT
} lvni_dist_place;

typedef struct lvni_dist_progress {
    uint64_t entered; /* collectives; the same one has the same number on all ranks */
    bool waits;       /* in a call that needs other ranks */
    int call;         /* lvni_dist_call_kind, of the last one */
    int place;        /* lvni_dist_place */
    int64_t step;     /* of the place */
    double waited_s;  /* since a call began or ended on this rank; 0 where it does not wait */
    double step_s;    /* since the step began, from data to update; 0: outside */
    double usual_s;   /* the median of the last steps; 0: there are too few */
} lvni_dist_progress;

/* From here on the rank is at this place; any thread of the rank, forward and backward, else the
 * trainer's. comm NULL: one rank, which no
 * other waits for. */
void lvni_dist_comm_at(lvni_dist_comm *comm, lvni_dist_place place, int64_t step);
/* Any thread. */
lvni_dist_progress lvni_dist_comm_progress(const lvni_dist_comm *comm);
const char *lvni_dist_place_name(int place); /* "forward"; "?" for none of them */
const char *lvni_dist_call_name(int call);   /* "all-reduce" */

/* For the calls: each begins once and ends once; calls within calls count as well. Group exchanges
 * and messages are not numbered, as each is of some ranks alone. */
void lvni_dist_call_begin(lvni_dist_comm *comm, int call);
lvn_status lvni_dist_call_end(lvni_dist_comm *comm, lvn_status status); /* returns status */

#endif
