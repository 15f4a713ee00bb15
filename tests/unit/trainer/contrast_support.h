/* A network whose loss looks at all rows of its group, for the tests of coupled micro-batches. */
#ifndef LEVIN_TESTS_CONTRAST_SUPPORT_H
#define LEVIN_TESTS_CONTRAST_SUPPORT_H

#include "trainer_support.h"

/* Metrics: loss, and rows, those of the group. */
extern const lvn_module_class contrast_class;
/* The same without lvn_builder_couple(). */
extern const lvn_module_class silent_class;

/* What the micro-batch that has this sample does in training. */
typedef enum contrast_trouble {
    CONTRAST_FINE,
    CONTRAST_FAILS,
    CONTRAST_STAYS_AWAY
} contrast_trouble;
extern int64_t contrast_bad_sample; /* -1: none */
extern contrast_trouble contrast_bad;

#endif
