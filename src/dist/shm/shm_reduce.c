/* Collectives that add, in the fixed tree over ranks (plan/tree.h), so that every way below gives
 * the same bits:
 *
 *   small      one round: everyone stages its numbers and adds all of them
 *   staged     a chunk per round: stage it; add the slice that is mine of all, stage that; copy the
 *     others' slices out in the next round
 *   in place   memory of lvni_dist_comm_alloc: everyone adds its slice where it lies and writes it
 *     into everyone's result */
#include "dist/shm/shm_impl.h"

#include <string.h>

enum {
    TINY = 2 << 10,  /* bytes: not worth a round to ask where the numbers lie */
    SMALL = 16 << 10 /* less than this is staged at once */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static lvn_status reduce_small(lvni_shm_comm *c, const void *in, void *out, int64_t n,
                               lvn_dtype dtype, lvni_dist_reduce how)
{
    const size_t bytes = (size_t)n * lvn_dtype_size(dtype);
    memcpy(lvni_shm_mine(c), in, bytes);
    LVN_TRY(lvni_shm_round(c));
    for (int rank = 0; rank < c->base.world; rank++) {
        c->source[rank] = lvni_shm_theirs(c, rank);
    }
    lvni_dist_sum_run(&c->plan, c->source, out, 0, n, dtype, how);
    lvni_dist_comm_add_bytes(&c->base, bytes, bytes * (size_t)(c->base.world - 1));
    return LVN_OK;
}

/* The results of a chunk of n elements that the last round brought. */
static void collect(lvni_shm_comm *c, char *out, int64_t n, size_t size)
{
    for (int rank = 0; rank < c->base.world; rank++) {
        const int64_t from = lvni_dist_slice_begin(n, c->base.world, rank),
                      to = lvni_dist_slice_begin(n, c->base.world, rank + 1);
        const size_t at = (size_t)from * size, bytes = (size_t)(to - from) * size;
        memcpy(out + at, lvni_shm_theirs(c, rank) + LVNI_SHM_HALF + at, bytes);
        lvni_dist_comm_add_bytes(&c->base, 0, rank == c->base.rank ? 0 : bytes);
    }
}

static lvn_status reduce_staged(lvni_shm_comm *c, const char *in, char *out, int64_t n,
                                lvn_dtype dtype, lvni_dist_reduce how)
{
    const size_t size = lvn_dtype_size(dtype);
    const int world = c->base.world, me = c->base.rank;
    const int64_t chunk = LVNI_SHM_HALF / (int64_t)size, chunks = (n + chunk - 1) / chunk;
    for (int64_t k = 0; k <= chunks; k++) {
        /* chunk k's numbers and chunk k - 1's results travel in one round */
        const int64_t count = k < chunks ? least(chunk, n - k * chunk) : 0;
        memcpy(lvni_shm_mine(c), in + (size_t)(k < chunks ? k * chunk : 0) * size,
               (size_t)count * size);
        LVN_TRY(lvni_shm_round(c));
        if (k > 0) {
            collect(c, out + (size_t)((k - 1) * chunk) * size, least(chunk, n - (k - 1) * chunk),
                    size);
        }
        const int64_t from = lvni_dist_slice_begin(count, world, me),
                      to = lvni_dist_slice_begin(count, world, me + 1);
        for (int rank = 0; rank < world; rank++) {
            c->source[rank] = lvni_shm_theirs(c, rank);
        }
        lvni_dist_sum_run(&c->plan, c->source, lvni_shm_mine(c) + LVNI_SHM_HALF, from, to - from,
                          dtype, how);
        const uint64_t slice = (uint64_t)(to - from) * size;
        /* the own slice: a result now, not read as input */
        lvni_dist_comm_add_bytes(&c->base, (uint64_t)count * size, slice * (uint64_t)(world - 1));
    }
    return LVN_OK;
}

static lvn_status reduce_in_place(lvni_shm_comm *c, const lvni_dist_region *in,
                                  const lvni_dist_region *out, int64_t n, lvn_dtype dtype,
                                  lvni_dist_reduce how)
{
    const size_t size = lvn_dtype_size(dtype);
    const int world = c->base.world, me = c->base.rank;
    const int64_t from = lvni_dist_slice_begin(n, world, me),
                  to = lvni_dist_slice_begin(n, world, me + 1),
                  block = LVNI_SUM_BLOCK / (int64_t)size;
    char *own = lvni_dist_region_part(out, me) + lvni_shm_place_of(c, me)->out_offset;
    for (int rank = 0; rank < world; rank++) {
        c->source[rank] = lvni_dist_region_part(in, rank) + lvni_shm_place_of(c, rank)->in_offset;
    }
    for (int64_t at = from; at < to; at += block) {
        /* no other thread touches this block, in any buffer */
        const int64_t count = least(block, to - at);
        lvni_dist_sum_run(&c->plan, c->source, own, at, count, dtype, how);
        for (int rank = 0; rank < world; rank++) {
            char *other = lvni_dist_region_part(out, rank) + lvni_shm_place_of(c, rank)->out_offset;
            if (rank != me) {
                memcpy(other + (size_t)at * size, own + (size_t)at * size, (size_t)count * size);
            }
        }
    }
    const uint64_t all = (uint64_t)n * size, slice = (uint64_t)(to - from) * size;
    lvni_dist_comm_add_bytes(&c->base, all, slice * (uint64_t)(world - 1) + (all - slice));
    return lvni_shm_round(c);
}

lvn_status lvni_shm_all_reduce(lvni_dist_comm *comm, const void *in, void *out, int64_t n,
                               lvn_dtype dtype, lvni_dist_reduce how)
{
    lvni_shm_comm *c = (lvni_shm_comm *)comm;
    const size_t bytes = (size_t)n * lvn_dtype_size(dtype);
    const lvni_dist_region *in_region, *out_region;
    if (bytes <= TINY) {
        return reduce_small(c, in, out, n, dtype, how);
    }
    LVN_TRY(lvni_shm_places(c, in, bytes, out, bytes, &in_region, &out_region));
    if (in_region != NULL && out_region != NULL) {
        return reduce_in_place(c, in_region, out_region, n, dtype, how);
    }
    return bytes <= SMALL ? reduce_small(c, in, out, n, dtype, how)
                          : reduce_staged(c, in, out, n, dtype, how);
}
