/* The transport of one node: ranks that are processes or threads, and the segment they share.
 *
 * ROUNDS. Everything but reductions (dist/reduction.c) is made of rounds. In round k each rank may
 * write its stage of parity k % 2, publishes that it has arrived, waits until all have, and then
 * reads the others' stages of that parity. A rank writes the stage of round k again in round k + 2,
 * after all have arrived in round k + 1, which each does only when it has read what it wanted of
 * round k. So one wait per round is enough. */
#ifndef LEVIN_DIST_SHM_SHM_IMPL_H
#define LEVIN_DIST_SHM_SHM_IMPL_H

#include "dist/doorbell.h"
#include "dist/shm/segment.h"
#include "dist/sum_plan.h"
#include "dist/transport.h"

#include <stdalign.h>
#include <sys/types.h>

enum {
    LVNI_SHM_MAX_RANKS = 1024,
    LVNI_SHM_HALF = 256 << 10, /* bytes: a rank's input, or its result, of a round */
    LVNI_SHM_STAGE = 2 * LVNI_SHM_HALF,
    LVNI_SHM_CORE_WORDS = 16 /* 1024 cores */
};

/* Where a rank's buffers lie, when both are of lvni_dist_comm_alloc: number of the block (0:
 * elsewhere) and offset in the rank's part. */
typedef struct lvni_shm_place {
    int64_t in, out;
    uint64_t in_offset, out_offset;
} lvni_shm_place;

typedef struct lvni_shm_slot {
    alignas(128) _Atomic uint32_t arrived; /* the last round */
    _Atomic uint32_t left;
    int32_t pid;
    uint64_t core[LVNI_SHM_CORE_WORDS]; /* that the rank may run on */
    lvni_dist_call call[2];             /* by parity of the round, like stages */
    lvni_shm_place place[2];
} lvni_shm_slot;

enum { LVNI_SHM_WHY = 512 };

typedef struct lvni_shm_control {
    unsigned char token[16];
    int32_t world;
    _Atomic uint32_t claimed;
    alignas(128) lvni_dist_doorbell bell;
    alignas(128) _Atomic int32_t aborted; /* 0; 1: `why` is being written; 2: it is written */
    int32_t first;                        /* that `why` names; -1 */
    char why[LVNI_SHM_WHY];
    lvni_shm_slot slot[]; /* world; then world x 2 stages */
} lvni_shm_control;

typedef struct lvni_shm_comm {
    lvni_dist_comm base;
    lvni_shm_segment *segment;
    lvni_shm_control *control;
    char *stage;
    uint32_t round;       /* under way, from 1 */
    uint64_t next_region; /* offset in the segment; the same on all ranks */
    bool own_core;        /* there are as many cores as ranks */
    /* per rank; NULL: ranks are threads. -1: this rank, or the system has none */
    int *pidfd;
    lvni_dist_sum_plan plan; /* over ranks */
    void **source;           /* world */
} lvni_shm_comm;

static inline char *lvni_shm_stage_of(const lvni_shm_comm *c, int rank, uint32_t round)
{
    return c->stage + ((size_t)rank * 2 + (round & 1)) * LVNI_SHM_STAGE;
}

/* The stage to fill in the round under way; after lvni_shm_round(): what `rank` wrote in it. */
static inline char *lvni_shm_mine(const lvni_shm_comm *c)
{
    return lvni_shm_stage_of(c, c->base.rank, c->round);
}

static inline char *lvni_shm_theirs(const lvni_shm_comm *c, int rank)
{
    return lvni_shm_stage_of(c, rank, c->round - 1);
}

/* shm_round.c */
lvn_status lvni_shm_round(lvni_shm_comm *c); /* arrives, waits, and begins the next */
lvn_status lvni_shm_wait(lvni_dist_comm *comm, const lvni_dist_wait *wait);
lvn_status lvni_shm_health(lvni_dist_comm *comm);
void lvni_shm_abort(lvni_dist_comm *comm, int first, const char *why);
int lvni_shm_first_failed(const lvni_dist_comm *comm);
void lvni_shm_ring(lvni_dist_comm *comm);
bool lvni_shm_claim(lvni_dist_comm *comm, bool cut_off);
lvn_status lvni_shm_agree(lvni_dist_comm *comm, const lvni_dist_call *call);
/* A round in which ranks exchange the places of their buffers; *region: the one of the in (or out)
 * buffers when all have theirs in one block. */
lvn_status lvni_shm_places(lvni_shm_comm *c, const void *in, size_t in_bytes, const void *out,
                           size_t out_bytes, const lvni_dist_region **in_region,
                           const lvni_dist_region **out_region);
/* as of lvni_shm_places, before the next round */
const lvni_shm_place *lvni_shm_place_of(const lvni_shm_comm *c, int rank);

/* shm_calls.c */
lvn_status lvni_shm_barrier(lvni_dist_comm *comm);
lvn_status lvni_shm_all_gather(lvni_dist_comm *comm, const void *in, size_t bytes, void *out);
lvn_status lvni_shm_broadcast(lvni_dist_comm *comm, void *data, size_t bytes, int root);

/* shm_reduce.c */
lvn_status lvni_shm_all_reduce(lvni_dist_comm *comm, const void *in, void *out, int64_t n,
                               lvn_dtype dtype, lvni_dist_reduce how);

#endif
