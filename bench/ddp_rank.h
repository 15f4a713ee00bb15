/* What bench_ddp and its ranks agree on. */
#ifndef LEVIN_BENCH_DDP_RANK_H
#define LEVIN_BENCH_DDP_RANK_H

#include <stdatomic.h>

enum { BENCH_DDP_SEED = 1, BENCH_GROUP_SYNC_ROUNDS = 4, BENCH_GROUP_SYNC_CARDS = 1024 };

/* Memory of all ranks of a run, zeros at first: in round k each writes its card, and reads all when
 * all are there. */
typedef struct bench_group_sync {
    _Atomic int there[BENCH_GROUP_SYNC_ROUNDS];
    char card[BENCH_GROUP_SYNC_ROUNDS][BENCH_GROUP_SYNC_CARDS];
} bench_group_sync;

#endif
