/* Collectives that only move bytes, in rounds (shm_impl.h). Large ones read each other's memory
 * where it is lvni_dist_comm_alloc's. */
#include "dist/shm/shm_impl.h"

#include <string.h>

enum { ASK_BYTES = 64 << 10 }; /* from here on a round to ask where the memory lies is worth it */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

lvn_status lvni_shm_barrier(lvni_dist_comm *comm)
{
    return lvni_shm_round((lvni_shm_comm *)comm);
}

/* Everyone reads the others' input where it lies, and stays until all have read. */
static lvn_status gather_in_place(lvni_shm_comm *c, const lvni_dist_region *region, size_t bytes,
                                  char *out)
{
    for (int i = 0; i < c->base.world; i++) {
        const int rank = (c->base.rank + i) % c->base.world; /* not all from the same one at once */
        const char *from =
            lvni_dist_region_part(region, rank) + lvni_shm_place_of(c, rank)->in_offset;
        char *to = out + (size_t)rank * bytes;
        if (to != from) {
            memcpy(to, from, bytes);
        }
    }
    lvni_dist_comm_add_bytes(&c->base, bytes, bytes * (size_t)(c->base.world - 1));
    return lvni_shm_round(c);
}

lvn_status lvni_shm_all_gather(lvni_dist_comm *comm, const void *in, size_t bytes, void *out)
{
    lvni_shm_comm *c = (lvni_shm_comm *)comm;
    if (bytes >= ASK_BYTES) {
        const lvni_dist_region *region, *unused;
        LVN_TRY(lvni_shm_places(c, in, bytes, NULL, 0, &region, &unused));
        if (region != NULL) {
            return gather_in_place(c, region, bytes, out);
        }
    }
    for (size_t at = 0; at < bytes; at += LVNI_SHM_STAGE) {
        const size_t n = least(LVNI_SHM_STAGE, bytes - at);
        memcpy(lvni_shm_mine(c), (const char *)in + at, n);
        LVN_TRY(lvni_shm_round(c));
        for (int rank = 0; rank < comm->world; rank++) {
            memcpy((char *)out + (size_t)rank * bytes + at, lvni_shm_theirs(c, rank), n);
        }
        lvni_dist_comm_add_bytes(comm, n, n * (size_t)(comm->world - 1));
    }
    return LVN_OK;
}

lvn_status lvni_shm_broadcast(lvni_dist_comm *comm, void *data, size_t bytes, int root)
{
    lvni_shm_comm *c = (lvni_shm_comm *)comm;
    const bool sends = comm->rank == root;
    for (size_t at = 0; at < bytes; at += LVNI_SHM_STAGE) {
        const size_t n = least(LVNI_SHM_STAGE, bytes - at);
        if (sends) {
            memcpy(lvni_shm_mine(c), (const char *)data + at, n);
        }
        LVN_TRY(lvni_shm_round(c));
        if (!sends) {
            memcpy((char *)data + at, lvni_shm_theirs(c, root), n);
        }
        lvni_dist_comm_add_bytes(comm, sends ? n : 0, sends ? 0 : n);
    }
    return LVN_OK;
}
