/* A network with a teacher, and a queue of what that made of earlier samples, for the tests of
 * buffers whose rules are more than a mean. */
#ifndef LEVIN_TESTS_STUDENT_SUPPORT_H
#define LEVIN_TESTS_STUDENT_SUPPORT_H

#include "trainer_support.h"

enum { KEY = 4, BANK_ROWS = 23 };

/* `encoder` is w x + b less a running mean, `encoder.mean`. `teacher` follows it with a momentum
 * from 0.9 to 1, `target` with one of 0.5 and a running mean of its own. `bank` is a queue of
 * BANK_ROWS of the teacher's keys, made unit vectors after a step, of which each micro-batch pushes
 * the first student_pushes(sample) ones, `sample` being its first. The loss depends on all of them.
 * `ones` moves towards 1, with a momentum from 0.5 to 0.125 in 3 steps. */
extern const lvn_module_class student_class;
/* The same in two phases: the encoder, then a `head` behind it. */
extern const lvn_module_class phased_student_class;
/* 0 to `size` rows: other micro-batches push other numbers of rows. */
int64_t student_pushes(int64_t sample, int64_t size);

/* The gradient is infinite in this step; -1: never. */
extern int64_t student_overflows_at;
/* Per step: what the loss is multiplied by, a number from 1 to 0.5 in 4 steps; what is added, times
 * the encoder's mean output, one from 0.25 to 0 by the run's end on a cosine. */
enum { STUDENT_STEPS = 16 };
extern _Atomic double student_factor[STUDENT_STEPS], student_extra[STUDENT_STEPS];
extern _Atomic int student_calls; /* of the function of `bank` */

#endif
