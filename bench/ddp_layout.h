/* levin's sides of bench_ddp: processes that take steps as ranks of a run, in the layouts that are
 * compared. */
#ifndef LEVIN_BENCH_DDP_LAYOUT_H
#define LEVIN_BENCH_DDP_LAYOUT_H

#include "bench_child.h"

#include <stdint.h>

enum { BENCH_DDP_RANKS = 2, BENCH_DDP_MOST_STEPS = 8 };

typedef struct ddp_duel {
    const char *net;
    int side;      /* of an image */
    int64_t batch; /* of all ranks */
    int64_t bucket_bytes;
} ddp_duel;

typedef enum ddp_side {
    DDP_TOGETHER,
    DDP_WHOLE,
    DDP_WHOLE_ONE,
    DDP_FREE,
    DDP_APART,
    DDP_LEVINS
} ddp_side;

/* `processes` processes that are runs of `world` ranks. */
typedef struct ddp_layout {
    const char *name, *key; /* in reports; in the file */
    int processes, world, micro_batches, cores;
    bool free_order; /* ddp_rank_free */
    bool same_bits;  /* as DDP_TOGETHER */
} ddp_layout;

extern const ddp_layout ddp_layouts[DDP_LEVINS];

/* What came of a turn, per step. Seconds of the slowest process, seconds of all cores of all, and
 * of the rank that waited longest: the reduction's pieces, those added before its backward pass was
 * over, time of adding and of waiting. */
typedef struct ddp_turn {
    double seconds, core_s, pieces, early, adding_s, waiting_s, loss[BENCH_DDP_MOST_STEPS];
    char hash[20]; /* of the weights */
} ddp_turn;

bool ddp_layout_start(const ddp_layout *l, const ddp_duel *d, bench_child child[BENCH_DDP_RANKS]);
bool ddp_layout_steps(const ddp_layout *l, bench_child child[BENCH_DDP_RANKS], int steps,
                      ddp_turn *out);

#endif
