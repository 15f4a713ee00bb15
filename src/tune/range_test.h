/* The learning-rate range test (Smith 2017, "Cyclical Learning Rates for Training Neural Networks",
 * section 3.3): every step has a larger rate, and the rate to take lies where the loss falls. What
 * is a fall and what is noise is decided by the losses themselves. Pure: no files, no trainer. */
#ifndef LEVIN_TUNE_RANGE_TEST_H
#define LEVIN_TUNE_RANGE_TEST_H

#include <stdbool.h>

enum { LVNI_RANGE_LEAST = 13 }; /* points, for a suggestion */

typedef struct lvni_tune_range_point {
    double lr;
    double loss;     /* of the step */
    double smoothed; /* by the steps on both sides, so that it does not lag; once there is a fit */
    /* of the line through the neighbours, in units of the fit, and its standard error */
    double value, error;
} lvni_tune_range_point;

typedef struct lvni_tune_range_test {
    double min_lr, max_lr;
    int steps;
    bool linear;                  /* else exponential */
    double stop_above;            /* times the least mean loss; 0: never */
    lvni_tune_range_point *point; /* room for `steps`, the caller's */
    int n;
    double average, least;
} lvni_tune_range_test;

/* What the losses have shown. Points by their index. */
typedef struct lvni_tune_range_answer {
    int suggested; /* -1: there is no clear descent */
    int begin,
        end;     /* of the descent; end: the first that is as low as the lowest within the noise */
    double fall; /* at the suggestion, else at `end`: in standard errors */
    bool open;   /* no point is lower than the last one */
} lvni_tune_range_answer;

/* How far below the first losses a suggestion must be, in standard errors: noise alone has such a
 * point in fewer than 2 of 100 tests, of 300 steps in 1 of 200. */
#define LVNI_RANGE_CLEAR 3.0

/* Of step i from 0: min_lr (max_lr / min_lr)^(i / (steps - 1)), or as much of the way between the
 * two. */
double lvni_tune_range_lr(const lvni_tune_range_test *test, int i);
/* The loss of step test->n. false: the test is over, as the mean of the last losses has risen too
 * far or is not finite. */
bool lvni_tune_range_add(lvni_tune_range_test *test, double loss);
/* Sets `smoothed` of all points, at least LVNI_RANGE_LEAST with a finite loss; else false. */
bool lvni_tune_range_fit(lvni_tune_range_test *test);
/* After the fit. The descent goes from the last point that has less than a tenth of the fall behind
 * it to `end`. Where it begins, steps are too small for most of a training; where the loss is
 * lowest they are often too large, unless it is low over a long stretch. So suggested is a rate
 * between the middle of the descent and that of the low stretch, 2/5 of the way, but in the
 * descent, and the next one there that is clearly below the first losses. */
lvni_tune_range_answer lvni_tune_range_find(const lvni_tune_range_test *test);

#endif
