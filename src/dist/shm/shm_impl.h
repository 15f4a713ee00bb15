/* The transport of one node: ranks that are processes or threads, and the segment they share.
 *
 * ROUNDS. Everything but reductions (dist/reduction.c) is made of rounds. In round k each rank may
 * write its stage of parity k % 2, tells that it has arrived, waits until all have, and then reads
 * the others' stages of that parity. A rank writes the stage of round k again in round k + 2, after
 * all have arrived in round k + 1, which each does only when it has read what it wanted of round k.
 * So one wait per round is enough. */
#ifndef LEVIN_DIST_SHM_IMPL_H
#define LEVIN_DIST_SHM_IMPL_H

#include "dist/doorbell.h"
#include "dist/shm/segment.h"
#include "dist/sum_plan.h"
#include "dist/transport.h"

#include <stdalign.h>
#include <sys/types.h>

enum {
    SHM_MAX_RANKS = 1024,
    SHM_HALF = 256 << 10, /* bytes: a rank's input, or its result, of a round */
    SHM_STAGE = 2 * SHM_HALF,
    SHM_CORE_WORDS = 16 /* 1024 cores */
};

/* Where a rank's buffers lie, when both are of lvni_comm_alloc: number of the block (0: elsewhere)
 * and offset in the rank's part. */
typedef struct shm_place {
    int64_t in, out;
    uint64_t in_offset, out_offset;
} shm_place;

typedef struct shm_slot {
    alignas(128) _Atomic uint32_t arrived; /* the last round */
    _Atomic uint32_t left;
    int32_t pid;
    uint64_t core[SHM_CORE_WORDS]; /* that the rank may run on */
    lvni_call call[2];             /* by parity of the round, like stages */
    shm_place place[2];
} shm_slot;

enum { SHM_WHY = 512 };

typedef struct shm_control {
    unsigned char token[16];
    int32_t world;
    _Atomic uint32_t claimed;
    alignas(128) lvni_doorbell bell;
    alignas(128) _Atomic int32_t aborted; /* 0; 1: somebody writes `why`; 2: it is written */
    int32_t first;                        /* that `why` names; -1 */
    char why[SHM_WHY];
    shm_slot slot[]; /* world; then world x 2 stages */
} shm_control;

typedef struct shm_comm {
    lvni_comm base;
    shm_segment *segment;
    shm_control *control;
    char *stage;
    uint32_t round;       /* under way, from 1 */
    uint64_t next_region; /* offset in the segment; the same on all ranks */
    bool own_core;        /* there are as many cores as ranks */
    /* per rank; NULL: ranks are threads. -1: this rank, or the system has none */
    int *pidfd;
    lvni_sum_plan plan; /* over ranks */
    void **source;      /* world */
} shm_comm;

static inline char *shm_stage_of(const shm_comm *c, int rank, uint32_t round)
{
    return c->stage + ((size_t)rank * 2 + (round & 1)) * SHM_STAGE;
}

/* The stage to fill in the round under way; after shm_round(): what `rank` wrote in it. */
static inline char *shm_mine(const shm_comm *c)
{
    return shm_stage_of(c, c->base.rank, c->round);
}

static inline char *shm_theirs(const shm_comm *c, int rank)
{
    return shm_stage_of(c, rank, c->round - 1);
}

/* shm_round.c */
lvn_status shm_round(shm_comm *c); /* tell, wait, and on to the next */
lvn_status shm_wait(lvni_comm *comm, const lvni_wait *wait);
lvn_status shm_health(lvni_comm *comm);
void shm_abort(lvni_comm *comm, int first, const char *why);
int shm_first_failed(const lvni_comm *comm);
void shm_ring(lvni_comm *comm);
bool shm_claim(lvni_comm *comm);
lvn_status shm_agree(lvni_comm *comm, const lvni_call *call);
/* A round in which ranks tell where their buffers lie; *region: the one of the in (or out) buffers
 * when all have theirs in one block. */
lvn_status shm_places(shm_comm *c, const void *in, size_t in_bytes, const void *out,
                      size_t out_bytes, const lvni_region **in_region,
                      const lvni_region **out_region);
/* as of shm_places, before the next round */
const shm_place *shm_place_of(const shm_comm *c, int rank);

/* shm_calls.c */
lvn_status shm_barrier(lvni_comm *comm);
lvn_status shm_all_gather(lvni_comm *comm, const void *in, size_t bytes, void *out);
lvn_status shm_broadcast(lvni_comm *comm, void *data, size_t bytes, int root);
lvn_status shm_all_to_all(lvni_comm *comm, const void *in, size_t bytes, void *out);

/* shm_reduce.c */
lvn_status shm_all_reduce(lvni_comm *comm, const void *in, void *out, int64_t n, lvn_dtype dtype,
                          lvni_reduce how);
lvn_status shm_reduce_scatter(lvni_comm *comm, const void *in, void *out, int64_t n,
                              lvn_dtype dtype, lvni_reduce how);

#endif
