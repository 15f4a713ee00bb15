/* The allocation sweep: a scenario runs with the k-th allocation failing, for k = 1, 2, ... until
 * it succeeds. Every failure must come out as LVN_ERR_MEMORY and give back all memory. */
#ifndef LEVIN_TESTS_SWEEP_H
#define LEVIN_TESTS_SWEEP_H

#include "support/test.h"

#include <levin/levin.h>

/* A few calls of public functions, run in a new thread, so that the memory a thread keeps is seen,
 * too. */
typedef struct scenario {
    /* names without lvn_, separated by blanks: what the table of all public functions is compared
     * with */
    const char *calls;
    lvn_status (*run)(const void *argument); /* gives back what it made, also when it fails */
    const void *argument;
    /* optional; allocations there do not fail */
    void (*before)(const void *argument), (*after)(const void *argument);
    /* 0: every k; else k grows by this factor from 30 on, for scenarios with thousands of
     * allocations; under sanitizers by 1.1 at least */
    double growth;
    /* some failures may be survived: a line of the log, memory that only saves a copy */
    bool goes_on;
} scenario;

/* The test fails with `what` in its message. Returns how many runs failed, as they should. */
int64_t sweep(const char *what, const scenario *s);

typedef struct scenario_table {
    const scenario *rows;
    size_t n;
} scenario_table;
extern const scenario_table sweep_tensors, sweep_modules, sweep_jobs;

/* The ops: every row of the gradient tests, forwards and backwards, in f32 and f64. */
void sweep_gradient_rows(void);
bool sweep_has_gradient_row(const char *op);

#endif
