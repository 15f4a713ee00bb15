/* What bench_ddp and its ranks agree on. */
#ifndef LEVIN_BENCH_DDP_RANK_H
#define LEVIN_BENCH_DDP_RANK_H

#include <stdatomic.h>

enum { BENCH_DDP_SEED = 1, BENCH_MEETING_ROUNDS = 4, BENCH_MEETING_CARDS = 1024 };

/* Memory of all ranks of a run, zeros at first: in round k each writes its card, and reads all when
 * all are there. */
typedef struct bench_meeting {
    _Atomic int there[BENCH_MEETING_ROUNDS];
    char card[BENCH_MEETING_ROUNDS][BENCH_MEETING_CARDS];
} bench_meeting;

#endif
