/* Shards of a group in lanes, without a trainer: a formula runs in each, and its gradients are
 * compared with differences. */
#ifndef LEVIN_TESTS_MEETING_SUPPORT_H
#define LEVIN_TESTS_MEETING_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "autograd/tape.h"
#include "trainer/lanes.h"
#include "trainer/meeting.h"

enum { MOST_SHARDS = 6, INPUTS = 4 };

typedef struct shards shards;
/* y of one shard, from its inputs. */
typedef lvn_tensor *(*shard_formula)(const shards *all, int shard, lvn_tensor *const *in);

struct shards {
    int n;
    bool empty[MOST_SHARDS];
    lvn_tensor *in[MOST_SHARDS][INPUTS]; /* NULL: no such input */
    shard_formula f;
    /* of the last run */
    bool backward;
    bool keep; /* leave y behind, for the test to release */
    lvn_tensor *y[MOST_SHARDS];
    double loss[MOST_SHARDS]; /* sum(r y), r by shard and element */
    lvn_status status[MOST_SHARDS];
    lvni_lanes *lanes;
    lvni_meeting *meeting;
};

void shards_open(shards *s, int n, shard_formula f);
void shards_close(shards *s);
/* Standard normal values of (shard, input), a leaf. */
lvn_tensor *shards_input(shards *s, int shard, int input, lvn_dtype dtype, int ndim,
                         const int64_t *shape);
/* Every shard once; the status is that of the meeting, or of the lowest shard that failed. */
lvn_status shards_run(shards *s, bool backward);
/* Gradients of all inputs of all shards against central differences, relative to the largest.
 * f64. */
void shards_check_gradients(shards *s, const char *name, double tolerance);

#endif
