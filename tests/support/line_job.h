/* The smallest job: four points on a line, and modules that draw a linear function of them to zero.
 * For tests that train with lvn_job_train and lvn_main. */
#ifndef LEVIN_TESTS_LINE_JOB_H
#define LEVIN_TESTS_LINE_JOB_H

#include <levin/levin.h>

/* Borrowed: its destroy has nothing to do. */
extern lvn_dataset line_points;

/* One network; metric loss. */
extern const lvn_module_class line_fit_class;
/* Two, one after the other in each step; phases first, second, with a metric of that name each. */
extern const lvn_module_class line_two_class;
/* Called by line_two_class with every micro-batch; true: this one fails. NULL: none does. */
extern bool (*line_two_fails)(const lvn_step *step);

/* The points again, read through a state of each worker, which line_opened counts; borrowed. */
extern lvn_dataset line_decoded;
extern _Atomic int line_opened, line_closed;
/* One network: the points, and the points of the stream "more" where the step has some. */
extern const lvn_module_class line_stream_class;

#endif
