/* How far the run is: one line on a terminal, rewritten in place; plain lines elsewhere. Called by the
 * trainer's hooks. epoch 3/20  step 128/341  loss 0.5231  acc 0.812  1234 images/s  lr 0.001  mem 312 MiB
 * left 1m20s */
#ifndef LEVIN_LOG_PROGRESS_H
#define LEVIN_LOG_PROGRESS_H

#include <levin/status.h>

typedef struct lvni_progress_state {
    int64_t epoch;                            /* from 0; shown from 1 */
    int64_t max_epochs;                       /* 0: unknown */
    int64_t step, steps;                      /* done in this epoch, and of how many (0: unknown) */
    double loss, accuracy, samples_per_s, lr; /* NaN: left out */
    uint64_t memory_bytes;                    /* 0: left out */
    double left_s;                            /* seconds to the end of the run; NaN: left out */
} lvni_progress_state;

/* The line without newline, at most `width` columns (0: no limit; fields that do not fit are left out from
 * the end). Returns its length. */
size_t lvni_progress_format(const lvni_progress_state *state, int width, char *out, size_t room);

typedef enum lvni_progress_kind {
    LVNI_PROGRESS_AUTO, /* terminal or plain, as fd is */
    LVNI_PROGRESS_TERMINAL,
    LVNI_PROGRESS_PLAIN
} lvni_progress_kind;

typedef struct lvni_progress_options {
    int fd; /* where to write; the trainer gives 1, standard output */
    lvni_progress_kind kind;
    bool quiet;              /* nothing to fd */
    double redraw_s;         /* terminal: at most one redraw in so many seconds; 0: 0.1 */
    double plain_interval_s; /* plain: at most one line in so many seconds; 0: every logged step */
} lvni_progress_options;

typedef struct lvni_progress {
    lvni_progress_options options;
    bool terminal;
    bool drawn;
    double last_s; /* when something was last shown */
} lvni_progress;

void lvni_progress_init(lvni_progress *p, const lvni_progress_options *options);
/* After a step. now_s: any clock that does not go back. logged: this step is a logging point (plain lines
 * appear at these only, and go to train.log as well). last: the epoch's last step, always shown. */
void lvni_progress_update(lvni_progress *p, const lvni_progress_state *state, double now_s, bool logged,
                          bool last);
/* The end of the run or a long pause: leaves the terminal's line standing. */
void lvni_progress_finish(lvni_progress *p);

#endif
