/* The transport of one rank: every call is a copy or nothing. The smallest transport there is, and
 * the one to start a new one from. */
#include "core/alloc.h"
#include "dist/doorbell.h"
#include "dist/self/self_impl.h"
#include "dist/transport.h"

#include <string.h>

enum { LOOK_MS = 50 };

typedef struct self_comm {
    lvni_dist_comm base;
    _Atomic bool claimed;
    lvni_dist_doorbell bell; /* between lanes */
    _Atomic int aborted;     /* 0, 1: being written, 2: `why` is there */
    int first;               /* that `why` names; -1 */
    char why[256];
} self_comm;

static void self_destroy(lvni_dist_comm *comm)
{
    lvni_core_free(comm);
}

static void self_abort(lvni_dist_comm *comm, int first, const char *why)
{
    self_comm *c = (self_comm *)comm;
    int none = 0;
    if (atomic_compare_exchange_strong(&c->aborted, &none, 1)) {
        c->first = first;
        strncpy(c->why, why, sizeof c->why - 1);
        atomic_store(&c->aborted, 2);
        lvni_dist_doorbell_ring(&c->bell);
    }
}

static int self_first_failed(const lvni_dist_comm *comm)
{
    const self_comm *c = (const self_comm *)comm;
    return atomic_load(&c->aborted) == 2 ? c->first : -1;
}

static lvn_status self_health(lvni_dist_comm *comm)
{
    self_comm *c = (self_comm *)comm;
    if (atomic_load(&c->aborted) == 2) {
        LVN_FAIL(LVN_ERR_PEER, "%-s", c->why);
    }
    return LVN_OK;
}

static lvn_status self_agree(lvni_dist_comm *comm, const lvni_dist_call *call)
{
    (void)comm, (void)call;
    return LVN_OK;
}

static lvn_status self_barrier(lvni_dist_comm *comm)
{
    (void)comm;
    return LVN_OK;
}

static void copy(void *out, const void *in, size_t bytes)
{
    if (in != out) {
        memcpy(out, in, bytes);
    }
}

static lvn_status self_reduce(lvni_dist_comm *comm, const void *in, void *out, int64_t n,
                              lvn_dtype dtype, lvni_dist_reduce how)
{
    (void)comm, (void)how;
    copy(out, in, (size_t)n * lvn_dtype_size(dtype));
    return LVN_OK;
}

static lvn_status self_gather(lvni_dist_comm *comm, const void *in, size_t bytes, void *out)
{
    (void)comm;
    copy(out, in, bytes);
    return LVN_OK;
}

static lvn_status self_broadcast(lvni_dist_comm *comm, void *data, size_t bytes, int root)
{
    (void)comm, (void)data, (void)bytes, (void)root;
    return LVN_OK;
}

static lvn_status self_wait(lvni_dist_comm *comm, const lvni_dist_wait *wait)
{
    self_comm *c = (self_comm *)comm;
    lvn_status status = LVN_OK;
    lvni_dist_doorbell_enter(&c->bell);
    for (;;) {
        const uint32_t seen = lvni_dist_doorbell_seen(&c->bell);
        if (wait->over(wait->user)) {
            break;
        }
        status = self_health(comm);
        if (status != LVN_OK) {
            break;
        }
        lvni_dist_doorbell_sleep(&c->bell, seen, LOOK_MS);
    }
    lvni_dist_doorbell_leave(&c->bell);
    return status;
}

static void self_ring(lvni_dist_comm *comm)
{
    lvni_dist_doorbell_ring(&((self_comm *)comm)->bell);
}

static bool self_claim(lvni_dist_comm *comm, bool cut_off)
{
    (void)cut_off;
    return !atomic_exchange(&((self_comm *)comm)->claimed, true);
}

/* Nothing moves. */
static int score(lvni_dist_call_kind call, lvni_dist_memory memory, size_t bytes)
{
    (void)call, (void)memory, (void)bytes;
    return 100;
}

static lvn_status connect_self(const lvni_dist_comm_options *options, lvni_dist_comm **out)
{
    (void)options;
    return lvni_dist_comm_self(out);
}

const lvni_dist_transport lvni_dist_transport_self = {
    .name = "self",
    .does = "adds in place",
    .max_ranks = 1,
    .score = score,
    .connect = connect_self,
    .abilities = LVNI_DIST_SHARED_MEMORY | LVNI_DIST_DEVICE_MEMORY,
    .destroy = self_destroy,
    .abort = self_abort,
    .first_failed = self_first_failed,
    .health = self_health,
    .agree = self_agree,
    .barrier = self_barrier,
    .all_reduce = self_reduce,
    .all_gather = self_gather,
    .broadcast = self_broadcast,
    .region_open = lvni_dist_local_region_open,
    .region_reserve = lvni_dist_local_region_reserve,
    .region_close = lvni_dist_local_region_close,
    .region_discard = lvni_dist_local_region_close,
    .reduction_create = lvni_self_reduction_create,
    .exchange_create = lvni_dist_shared_exchange_create,
    .wait = self_wait,
    .ring = self_ring,
    .claim = self_claim,
};

lvn_status lvni_dist_comm_self(lvni_dist_comm **out)
{
    *out = NULL;
    self_comm *c = LVNI_NEW(LVNI_TAG_DIST, self_comm);
    if (c == NULL) {
        return LVN_ERR_MEMORY;
    }
    c->base = (lvni_dist_comm){.ops = &lvni_dist_transport_self, .world = 1};
    *out = &c->base;
    return LVN_OK;
}
