/* A network with a queue of what it made of earlier samples, for the tests of buffers whose rules
 * are more than a mean. */
#ifndef LEVIN_TESTS_STUDENT_SUPPORT_H
#define LEVIN_TESTS_STUDENT_SUPPORT_H

#include "trainer_support.h"

enum { KEY = 4, BANK_ROWS = 23 };

/* The encoder is w x + b less a running mean, `encoder.mean`. `bank` is a queue of BANK_ROWS keys,
 * of which each micro-batch pushes the first student_pushes(sample) ones, `sample` being its first;
 * the loss depends on it. */
extern const lvn_module_class student_class;
/* 0 to `size` rows: other micro-batches push other numbers of rows. */
int64_t student_pushes(int64_t sample, int64_t size);

/* The gradient is infinite in this step; -1: never. */
extern int64_t student_overflows_at;

#endif
