/* Early stopping: a run ends when a metric has not improved for some validations (or epochs), is as
 * good as asked for, or is lost. Every rank has the same sums, and so comes to the same end. */
#ifndef LEVIN_TRAINER_EARLY_H
#define LEVIN_TRAINER_EARLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lvni_trainer_early_options {
    const char
        *monitor; /* "val/NAME": after each validation; "train/NAME": each epoch; NULL: off */
    bool larger_is_better;
    double min_delta; /* what an improvement has to exceed */
    int64_t patience; /* that many in a row without improvement end the run; 0 as 1 */
    /* as good as this, or as bad as this, ends the run; NaN: no such limit */
    double stopping_threshold, divergence_threshold;
} lvni_trainer_early_options;

typedef enum lvni_trainer_early_reason {
    LVNI_EARLY_GOES_ON,
    LVNI_EARLY_GOOD,
    LVNI_EARLY_DIVERGED,
    LVNI_EARLY_PATIENCE,
    LVNI_EARLY_NOT_FINITE,
    LVNI_EARLY_REASONS
} lvni_trainer_early_reason;

/* What a checkpoint keeps of it. */
typedef struct lvni_trainer_early {
    double best, last; /* NaN: none yet; last: the newest value that was looked at */
    int64_t waited;
    lvni_trainer_early_reason reason;
} lvni_trainer_early;

void lvni_trainer_early_begin(lvni_trainer_early *early);
/* Looks at a value. True: this one ends the run, for `reason`. */
bool lvni_trainer_early_follow(lvni_trainer_early *early, const lvni_trainer_early_options *options,
                               double value);
/* "best=BITS waited=2 reason=0 last=BITS by=min val/loss"; by: monitor and mode. Reading: false
 * when it is anything else. A run that ended for want of patience goes on with more of it, one that
 * came to a threshold with another threshold. *same false: it is about another monitor or mode, and
 * early stopping begins; without last and by it is not. */
void lvni_trainer_early_print(const lvni_trainer_early *early, const char *by, char *text,
                              size_t size);
bool lvni_trainer_early_read(const char *text, const lvni_trainer_early_options *options,
                             const char *by, lvni_trainer_early *out, bool *same);

#endif
