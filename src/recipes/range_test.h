/* The learning-rate range test (Smith 2017, "Cyclical Learning Rates for Training Neural Networks",
 * section 3.3): every step has a larger rate, and the rate to take is where the smoothed loss falls
 * most steeply. Pure: no files, no trainer. */
#ifndef LEVIN_RECIPES_RANGE_TEST_H
#define LEVIN_RECIPES_RANGE_TEST_H

#include <stdbool.h>

enum {
    LVNI_RANGE_SKIP_FIRST = 10, /* points that the suggestion does not look at */
    LVNI_RANGE_SKIP_LAST = 1,
    LVNI_RANGE_LEAST = LVNI_RANGE_SKIP_FIRST + LVNI_RANGE_SKIP_LAST + 2
};

typedef struct lvni_recipes_range_point {
    double lr;
    double loss; /* of the step */
    double
        smoothed; /* the mean over past steps with weights 0.98^age, corrected for their number */
} lvni_recipes_range_point;

typedef struct lvni_recipes_range_test {
    double min_lr, max_lr;
    int steps;
    bool linear;                     /* else exponential */
    double stop_above;               /* times the least smoothed loss; 0: never */
    lvni_recipes_range_point *point; /* room for `steps`, the caller's */
    int n;
    double average, least;
} lvni_recipes_range_test;

/* Of step i from 0: min_lr, and from then on min_lr (max_lr / min_lr)^((i + 1) / steps), or as much
 * of the way between the two. */
double lvni_recipes_range_lr(const lvni_recipes_range_test *test, int i);
/* The loss of step test->n. false: the test is over, as the loss has risen too far or is not
 * finite.
 */
bool lvni_recipes_range_add(lvni_recipes_range_test *test, double loss);
/* The point where the smoothed loss falls most steeply over the logarithm of the rate (over the
 * rate itself a fall of any size among small rates is the steepest), by differences of second
 * order, of one side at the ends; -1: there are too few points. */
int lvni_recipes_range_suggest(const lvni_recipes_range_test *test);

#endif
