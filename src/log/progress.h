/* How far the run is: one line on a terminal, rewritten in place; elsewhere a line a minute. Called
 * by the trainer's hooks. epoch 3/20  step 128/341  loss_step 0.5231  acc_step 0.812  1234 images/s
 * data wait 12%  lr 0.001 mem 312 MiB  left 1m20s */
#ifndef LEVIN_LOG_PROGRESS_H
#define LEVIN_LOG_PROGRESS_H

#include <levin/status.h>

#include <stdio.h>

#define LVNI_PROGRESS_WAIT 0.1 /* a run that waits for data so much could be faster */

typedef struct lvni_log_progress_state {
    int64_t epoch;                            /* from 0; shown from 1; below 0: left out */
    int64_t max_epochs;                       /* 0: unknown */
    int64_t step, steps;                      /* done in this epoch, and of how many (0: unknown) */
    double loss, accuracy, samples_per_s, lr; /* NaN: left out */
    double wait_share;     /* of the time, for data; below LVNI_PROGRESS_WAIT: left out */
    uint64_t memory_bytes; /* 0: left out */
    double left_s;         /* seconds to the end of the run; NaN: left out */
} lvni_log_progress_state;

/* The line without newline, at most `width` columns (0: no limit; fields that do not fit are left
 * out from the end). Returns its length. */
size_t lvni_log_progress_format(const lvni_log_progress_state *state, int width, char *out,
                                size_t room);

typedef struct lvni_log_progress_options {
    int fd;          /* the terminal, from lvni_log_progress_terminal; -1: there is none */
    bool quiet;      /* nothing on the screen */
    double redraw_s; /* terminal: at most one redraw in so many seconds; 0: 0.1 */
    /* elsewhere: a line at the first logging point after so many seconds */
    double plain_interval_s;
    FILE *plain; /* for those lines, which then are not in the log; NULL: the log */
} lvni_log_progress_options;

typedef struct lvni_log_progress {
    lvni_log_progress_options options;
    bool drawn;
    double last_s; /* when something was last shown; NaN: never */
} lvni_log_progress;

/* Where the line can be rewritten: standard output, else standard error, else -1. */
int lvni_log_progress_terminal(void);
void lvni_log_progress_init(lvni_log_progress *p, const lvni_log_progress_options *options);
/* After a step. now_s: any clock that does not go back. logged: this step is a logging point (its
 * line goes to train.log, and plain lines appear at these only). last: the epoch's last step,
 * always drawn. */
void lvni_log_progress_update(lvni_log_progress *p, const lvni_log_progress_state *state,
                              double now_s, bool logged, bool last);
/* The end of an epoch or of the run: erases the terminal's line. */
void lvni_log_progress_finish(lvni_log_progress *p);

#endif
