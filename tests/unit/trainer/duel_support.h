/* A critic and a generator of vectors (Gulrajani et al. 2017), small enough to be followed in
 * double precision, for the tests of phases. */
#ifndef LEVIN_TESTS_DUEL_SUPPORT_H
#define LEVIN_TESTS_DUEL_SUPPORT_H

#include "trainer_support.h"

enum { NOISE = 3, HIDDEN = 4 };

/* generator(z) = w z + b; critic(x) = a (w x + b)^2. Phases: critic, generator. The generator's
 * buffer `seen` has momentum 0.1 and is pushed the mean of what it makes, in both phases; `every`
 * belongs to no network, and is pushed 1 + phase. Metrics: d_loss, g_loss, and both as loss. */
extern const lvn_module_class duel_class;
/* The same with networks of several blocks; their borders are not borders of blocks. */
extern const lvn_module_class wide_duel_class;
/* The small one, with coupled micro-batches in both phases: each loss has the square of the
 * group's mean score. */
extern const lvn_module_class coupled_duel_class;

/* Which samples the phases saw, in the order of calls, when `on`. */
typedef struct duel_samples {
    bool on;
    int n[2];
    int64_t sample[2][MEMORY_MAX];
    char order[32]; /* "001": two micro-batches of the first phase, one of the second */
} duel_samples;
extern duel_samples duel_seen;

/* The second phase fails at this step; -1: never. overflow: the phase (1: the critic's, 2: the
 * generator's, 3: both) has an infinite gradient at this step. */
extern int64_t duel_fails_at, duel_overflows_at;
extern int duel_overflow;

#endif
