/* What a transport gives to comm.c and reduction.c: one table of functions, and memory that all
 * ranks see. Copy self/ for a new one; the conformance suite is tests/dist/. */
#ifndef LEVIN_DIST_TRANSPORT_H
#define LEVIN_DIST_TRANSPORT_H

#include "dist/choice.h"
#include "dist/comm.h"
#include "dist/group_exchange.h"
#include "dist/reduction.h"

#include <stdatomic.h>

/* What a rank calls: compared in check mode. */
typedef enum lvni_dist_call_kind {
    LVNI_CALL_BARRIER,
    LVNI_CALL_ALL_REDUCE,
    LVNI_CALL_ALL_GATHER,
    LVNI_CALL_ALL_GATHER_SIZED,
    LVNI_CALL_BROADCAST,
    LVNI_CALL_ALLOC,
    LVNI_CALL_FREE,
    LVNI_CALL_REDUCTION_CREATE,
    LVNI_CALL_REDUCTION_FINISH,
    LVNI_CALL_AGREE_STATUS,   /* never compared */
    LVNI_CALL_GROUP_EXCHANGE, /* never compared */
    LVNI_CALL_MESSAGE,        /* as those */
    LVNI_CALL_COUNT
} lvni_dist_call_kind;

typedef struct lvni_dist_call {
    int32_t kind;  /* lvni_dist_call_kind */
    int32_t dtype; /* -1: bytes */
    int32_t how;   /* lvni_dist_reduce, -1: nothing is added */
    int32_t root;  /* -1: none */
    int64_t n;     /* elements or bytes; 0 where ranks may differ */
} lvni_dist_call;

/* Memory of all ranks: a common part, then one part per rank, all zeros at first and page aligned.
 * Addresses differ between processes. Parts are as long as the longest any rank asks for. Pages
 * come to be where they are first reserved. */
typedef struct lvni_dist_region {
    char *common;
    char *part;    /* of rank 0 */
    size_t stride; /* from one rank's part to the next */
    void *handle;  /* the transport's */
} lvni_dist_region;

/* What a rank waits for. over: it has happened; needs: the wait cannot end without `rank` doing
 * something more. Both look at shared memory with sequentially consistent loads, cheaply and
 * often. */
typedef struct lvni_dist_wait {
    bool (*over)(void *user);
    bool (*needs)(void *user, int rank);
    void *user;
} lvni_dist_wait;

/* What a transport has. */
enum {
    LVNI_DIST_SHARED_MEMORY = 1, /* ranks see each other's sets and buffers */
    LVNI_DIST_DEVICE_MEMORY = 2, /* adds where the sets lie, also on a device */
    LVNI_DIST_MESSAGES = 4       /* ranks may be on several hosts */
};

typedef enum lvni_dist_memory { LVNI_DIST_MEMORY_HOST, LVNI_DIST_MEMORY_DEVICE } lvni_dist_memory;

struct lvni_dist_transport {
    const char *name; /* transport= */
    const char *does; /* "share memory": what ranks do over it */
    unsigned abilities;
    int max_ranks;
    /* How well it does a call with so many bytes in such memory: more is better, 0 is not at all.
     * Free is 100, a copy through memory about 50, one through a network about 10; the unit is the
     * same for all transports and nothing else. */
    int (*score)(lvni_dist_call_kind call, lvni_dist_memory memory, size_t bytes);
    /* Why this process cannot have it; NULL: it can. Loads what it needs, so it is asked only where
     * the transport would be taken. No such function: it is always there. */
    const char *(*missing)(void);
    /* With `missing`: why transport=auto does not take it here, though it is the best; NULL: it
     * does. */
    const char *(*unfit)(void);
    /* of ranks that are processes; a collective over options->exchange */
    lvn_status (*connect)(const lvni_dist_comm_options *options, lvni_dist_comm **out);
    void (*destroy)(lvni_dist_comm *comm);
    /* first: the rank that `why` names as the one that failed first; -1: it names none */
    void (*abort)(lvni_dist_comm *comm, int first, const char *why);
    int (*first_failed)(const lvni_dist_comm *comm); /* of the abort; -1 */
    lvn_status (*health)(lvni_dist_comm *comm);      /* LVN_ERR_PEER once aborted */
    /* check mode: a round in which all calls are compared */
    lvn_status (*agree)(lvni_dist_comm *comm, const lvni_dist_call *call);

    lvn_status (*barrier)(lvni_dist_comm *comm);
    lvn_status (*all_reduce)(lvni_dist_comm *comm, const void *in, void *out, int64_t n,
                             lvn_dtype dtype, lvni_dist_reduce how);
    lvn_status (*all_gather)(lvni_dist_comm *comm, const void *in, size_t bytes, void *out);
    lvn_status (*broadcast)(lvni_dist_comm *comm, void *data, size_t bytes, int root);

    /* In the same order and with the same sizes everywhere. Afterwards every rank reserves what is
     * its own, and before anyone touches any of it the ranks agree that all could. */
    lvn_status (*region_open)(lvni_dist_comm *comm, size_t common, size_t part,
                              lvni_dist_region *out);
    /* LVN_ERR_MEMORY */
    lvn_status (*region_reserve)(lvni_dist_comm *comm, const lvni_dist_region *region,
                                 const void *from, size_t bytes);
    /* no collective: the memory goes with the last rank */
    void (*region_close)(lvni_dist_comm *comm, lvni_dist_region *region);
    /* of an opening that all agreed to give up, some of them without a region */
    void (*region_discard)(lvni_dist_comm *comm, lvni_dist_region *region);

    /* options are checked and agreed on; sets: the most that a rank has. reduction.h, over shared
     * memory (lvni_dist_shared_create) or messages. */
    lvn_status (*reduction_create)(lvni_dist_comm *comm, const lvni_dist_reduction_options *options,
                                   int sets, lvni_dist_reduction **out);
    /* group_exchange.h, over shared memory (lvni_dist_shared_exchange_create) or messages */
    lvn_status (*exchange_create)(lvni_dist_comm *comm, int lo, int hi,
                                  lvni_dist_group_exchange **out);

    lvn_status (*wait)(lvni_dist_comm *comm, const lvni_dist_wait *wait);
    void (*ring)(lvni_dist_comm *comm); /* something changed that others may wait for; any thread */
    /* cut_off: of lvni_dist_comm_claim_cut_off */
    bool (*claim)(lvni_dist_comm *comm, bool cut_off);
    /* NULL: what lvni_dist_comm_add_bytes has counted */
    void (*count)(const lvni_dist_comm *comm, lvni_dist_comm_bytes *out);
};

/* Those that there are, each in its folder; choice.c has the list. */
extern const lvni_dist_transport lvni_dist_transport_self, lvni_dist_transport_shm,
    lvni_dist_transport_net, lvni_dist_transport_ucx;
/* Made of two others (levels/). */
extern const lvni_dist_transport lvni_dist_transport_levels;

enum { LVNI_DIST_STEPS = 15 }; /* of whose times there is a median */

struct lvni_dist_comm {
    const lvni_dist_transport *ops;
    int rank, world;
    bool check;
    bool between_devices; /* lvni_dist_comm_adds_between_devices */
    const int *number;    /* lvni_dist_comm_options */
    _Atomic uint64_t sent, received;
    void *memory; /* comm.c's list of what lvni_dist_comm_alloc gave */
    struct {
        _Atomic uint64_t entered, since_ns;
        _Atomic int inside, call, place;
        _Atomic int64_t step;
        _Atomic uint64_t step_ns, took_ns[LVNI_DIST_STEPS]; /* begin of this one; of the last */
        _Atomic unsigned steps;
    } progress; /* progress.h */
};

/* The head of a transport's group exchange (group_exchange.h), and its calls. */
typedef struct lvni_dist_exchange_ops {
    void (*destroy)(lvni_dist_group_exchange *exchange);
    lvn_status (*run)(lvni_dist_group_exchange *exchange, int lo, int hi, const void *mine,
                      size_t bytes, const lvni_dist_group_message **message);
} lvni_dist_exchange_ops;
struct lvni_dist_group_exchange {
    const lvni_dist_exchange_ops *ops;
    lvni_dist_comm *comm;
};

/* The rank's number in messages. */
static inline int lvni_dist_comm_number(const lvni_dist_comm *comm, int rank)
{
    return comm->number != NULL ? comm->number[rank] : rank;
}

static inline void lvni_dist_comm_add_bytes(lvni_dist_comm *comm, uint64_t sent, uint64_t received)
{
    if (comm->world == 1) {
        return; /* there are no others */
    }
    atomic_fetch_add_explicit(&comm->sent, sent, memory_order_relaxed);
    atomic_fetch_add_explicit(&comm->received, received, memory_order_relaxed);
}

static inline char *lvni_dist_region_part(const lvni_dist_region *region, int rank)
{
    return region->part + (size_t)rank * region->stride;
}

/* The usual end of a wait: no rank has to do anything more. */
static inline bool lvni_dist_wait_is_over(const lvni_dist_comm *comm,
                                          bool (*needs)(void *user, int rank), void *user)
{
    for (int rank = 0; rank < comm->world; rank++) {
        if (needs(user, rank)) {
            return false;
        }
    }
    return true;
}

/* Is [p, p + bytes) memory that lvni_dist_comm_alloc gave? Then *region is the region, *offset the
 * place in this rank's part, and *number the block's number (same on all ranks). */
bool lvni_dist_comm_find(const lvni_dist_comm *comm, const void *p, size_t bytes,
                         const lvni_dist_region **region, int64_t *number, size_t *offset);
/* A region on all ranks, or on none: then nothing of it is left. reserve: reserves what this rank
 * has to of a region that is open here; NULL: its part. what: as in lvni_dist_comm_agree_status. */
typedef lvn_status (*lvni_dist_region_reserving)(void *user, const lvni_dist_region *region);
lvn_status lvni_dist_region_share(lvni_dist_comm *comm, size_t common, size_t part,
                                  lvni_dist_region_reserving reserve, void *user, const char *what,
                                  lvni_dist_region *out);

/* Regions of transports whose ranks see no other's memory: all parts have the address of this
 * rank's. */
lvn_status lvni_dist_local_region_open(lvni_dist_comm *comm, size_t common, size_t part,
                                       lvni_dist_region *out);
lvn_status lvni_dist_local_region_reserve(lvni_dist_comm *comm, const lvni_dist_region *region,
                                          const void *from, size_t bytes);
void lvni_dist_local_region_close(lvni_dist_comm *comm, lvni_dist_region *region);

/* Check mode: the calls of all ranks, `stride` bytes apart. LVN_ERR_MISMATCH names the first that
 * is not rank 0's. */
lvn_status lvni_dist_compare_calls(const lvni_dist_call *first, size_t stride, int world);

/* `agree` of transports whose ranks gather the calls as any other message. */
lvn_status lvni_dist_agree(lvni_dist_comm *comm, const lvni_dist_call *call);

/* Reductions and group exchanges of transports whose ranks see each other's memory. */
lvn_status lvni_dist_shared_create(lvni_dist_comm *comm, const lvni_dist_reduction_options *options,
                                   int sets, lvni_dist_reduction **out);
lvn_status lvni_dist_shared_exchange_create(lvni_dist_comm *comm, int lo, int hi,
                                            lvni_dist_group_exchange **out);

#endif
