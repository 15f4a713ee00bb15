/* The calls of comm.h: arguments, health and (in check mode) agreement first, then the transport's
 * function. */
#include "dist/comm.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "dist/combine.h"
#include "dist/rank_progress.h"
#include "dist/transport.h"

#include <stdio.h>
#include <string.h>

/* What lvni_dist_comm_alloc gave, newest first. */
typedef struct memory_block {
    struct memory_block *next;
    int64_t number; /* counted up on all ranks alike */
    size_t bytes;
    lvni_dist_region region;
} memory_block;

void lvni_dist_comm_destroy(lvni_dist_comm *comm)
{
    if (comm == NULL) {
        return;
    }
    for (memory_block *b = comm->memory, *next; b != NULL; b = next) {
        next = b->next;
        comm->ops->region_close(comm, &b->region);
        lvni_core_free(b);
    }
    comm->ops->destroy(comm);
}

int lvni_dist_comm_rank(const lvni_dist_comm *comm)
{
    return comm->rank;
}

int lvni_dist_comm_world(const lvni_dist_comm *comm)
{
    return comm->world;
}

bool lvni_dist_comm_reads_any(const lvni_dist_comm *comm)
{
    return (comm->ops->abilities & LVNI_DIST_DEVICE_MEMORY) != 0;
}

bool lvni_dist_comm_adds_between_devices(const lvni_dist_comm *comm)
{
    return comm->between_devices;
}

lvni_dist_comm_bytes lvni_dist_comm_count(const lvni_dist_comm *comm)
{
    lvni_dist_comm_bytes bytes = {.sent = atomic_load_explicit(&comm->sent, memory_order_relaxed),
                                  .received =
                                      atomic_load_explicit(&comm->received, memory_order_relaxed)};
    if (comm->ops->count != NULL) {
        comm->ops->count(comm, &bytes);
    }
    return bytes;
}

bool lvni_dist_comm_claim(lvni_dist_comm *comm)
{
    return comm->ops->claim(comm, false);
}

bool lvni_dist_comm_claim_cut_off(lvni_dist_comm *comm)
{
    return comm->ops->claim(comm, true);
}

void lvni_dist_comm_abort(lvni_dist_comm *comm, const char *why)
{
    comm->ops->abort(comm, -1, why);
}

void lvni_dist_comm_abort_for(lvni_dist_comm *comm, int first, const char *sentence)
{
    comm->ops->abort(comm, first, sentence);
}

int lvni_dist_comm_first_failed(const lvni_dist_comm *comm)
{
    return comm->ops->first_failed(comm);
}

/* After LVN_OK the call ends with lvni_dist_call_end. */
static lvn_status enter(lvni_dist_comm *comm, lvni_dist_call call)
{
    LVN_TRY(comm->ops->health(comm));
    lvni_dist_call_begin(comm, call.kind);
    const lvn_status s = comm->check ? comm->ops->agree(comm, &call) : LVN_OK;
    return s == LVN_OK ? s : lvni_dist_call_end(comm, s);
}

static lvn_status check_numbers(const char *what, int64_t n, lvn_dtype dtype, lvni_dist_reduce how)
{
    LVN_ARG(n >= 0, "%s of %lld elements: 0 is the least", what, (long long)n);
    LVN_ARG(how == LVNI_REDUCE_SUM || how == LVNI_REDUCE_MIN || how == LVNI_REDUCE_MAX,
            "%s: %d is not an lvni_dist_reduce", what, (int)how);
    if (!lvni_dist_combine_has(dtype)) {
        LVN_FAIL(LVN_ERR_DTYPE, "%s adds no %s", what,
                 (int)dtype >= 0 && dtype < LVN_DTYPE_COUNT ? lvn_dtype_name(dtype) : "such type");
    }
    return LVN_OK;
}

lvn_status lvni_dist_comm_barrier(lvni_dist_comm *comm)
{
    LVN_TRY(enter(comm,
                  (lvni_dist_call){.kind = LVNI_CALL_BARRIER, .dtype = -1, .how = -1, .root = -1}));
    return lvni_dist_call_end(comm, comm->ops->barrier(comm));
}

lvn_status lvni_dist_comm_all_reduce(lvni_dist_comm *comm, const void *in, void *out, int64_t n,
                                     lvn_dtype dtype, lvni_dist_reduce how)
{
    LVN_TRY(check_numbers("an all-reduce", n, dtype, how));
    LVN_TRY(
        enter(comm, (lvni_dist_call){LVNI_CALL_ALL_REDUCE, (int32_t)dtype, (int32_t)how, -1, n}));
    return lvni_dist_call_end(comm,
                              n > 0 ? comm->ops->all_reduce(comm, in, out, n, dtype, how) : LVN_OK);
}

lvn_status lvni_dist_comm_all_gather(lvni_dist_comm *comm, const void *in, size_t bytes, void *out)
{
    LVN_TRY(enter(comm, (lvni_dist_call){LVNI_CALL_ALL_GATHER, -1, -1, -1, (int64_t)bytes}));
    return lvni_dist_call_end(comm,
                              bytes > 0 ? comm->ops->all_gather(comm, in, bytes, out) : LVN_OK);
}

lvn_status lvni_dist_comm_broadcast(lvni_dist_comm *comm, void *data, size_t bytes, int root)
{
    LVN_ARG(root >= 0 && root < comm->world, "a broadcast from rank %d: there are %d ranks", root,
            comm->world);
    LVN_TRY(enter(comm, (lvni_dist_call){LVNI_CALL_BROADCAST, -1, -1, root, (int64_t)bytes}));
    return lvni_dist_call_end(comm,
                              bytes > 0 ? comm->ops->broadcast(comm, data, bytes, root) : LVN_OK);
}

lvn_status lvni_dist_comm_agree_status(lvni_dist_comm *comm, lvn_status mine, const char *what)
{
    const int64_t message =
        mine == LVN_OK ? 0 : ((int64_t)comm->rank + 1) << 32 | (int64_t) - (int)mine;
    int64_t worst = 0;
    if (comm->world == 1) {
        return mine;
    }
    lvni_dist_call_begin(comm, LVNI_CALL_AGREE_STATUS);
    LVN_TRY(lvni_dist_call_end(
        comm, comm->ops->all_reduce(comm, &message, &worst, 1, LVN_I64, LVNI_REDUCE_MAX)));
    LVN_TRY(mine);
    if (worst != 0) {
        const lvn_status theirs = (lvn_status) - (int)(worst & 0xffffffff);
        LVN_FAIL(theirs, "rank %d cannot do its part of %s: %s", (int)(worst >> 32) - 1, what,
                 lvn_status_text(theirs));
    }
    return LVN_OK;
}

lvn_status lvni_dist_region_share(lvni_dist_comm *comm, size_t common, size_t part,
                                  lvni_dist_region_reserving reserve, void *user, const char *what,
                                  lvni_dist_region *out)
{
    lvni_dist_region region;
    const lvn_status opened = comm->ops->region_open(comm, common, part, &region);
    lvn_status mine = opened;
    if (opened == LVN_OK) {
        mine = reserve != NULL
                   ? reserve(user, &region)
                   : comm->ops->region_reserve(comm, &region,
                                               lvni_dist_region_part(&region, comm->rank), part);
    }
    const lvn_status status = lvni_dist_comm_agree_status(comm, mine, what);
    if (status == LVN_OK) {
        *out = region;
    } else if (opened == LVN_OK && status == LVN_ERR_PEER) {
        comm->ops->region_close(comm, &region); /* nothing was agreed: others may use it */
    } else if (opened == LVN_OK) {
        comm->ops->region_discard(comm, &region);
    }
    return status;
}

lvn_status lvni_dist_local_region_open(lvni_dist_comm *comm, size_t common, size_t part,
                                       lvni_dist_region *out)
{
    const uint64_t most = lvni_core_machine_memory("");
    (void)comm;
    if (common > most || part > most - common) {
        LVN_FAIL(LVN_ERR_MEMORY, "cannot reserve %zu bytes: the machine has less",
                 part > common ? part : common);
    }
    const size_t first = (common + 63) / 64 * 64;
    char *memory = lvni_core_calloc(LVNI_TAG_DIST, 1, first + part);
    if (memory == NULL) {
        return LVN_ERR_MEMORY;
    }
    *out = (lvni_dist_region){.common = memory, .part = memory + first, .handle = memory};
    return LVN_OK;
}

lvn_status lvni_dist_local_region_reserve(lvni_dist_comm *comm, const lvni_dist_region *region,
                                          const void *from, size_t bytes)
{
    (void)comm, (void)region, (void)from, (void)bytes;
    return LVN_OK;
}

void lvni_dist_local_region_close(lvni_dist_comm *comm, lvni_dist_region *region)
{
    (void)comm;
    lvni_core_free(region->handle);
}

/* Sizes first, then all ranks have their memory or the call fails; every rank's bytes are then a
 * broadcast of their own, straight to their place. */
static lvn_status all_gather_sized(lvni_dist_comm *comm, const void *in, size_t bytes, void **out,
                                   size_t *size)
{
    *out = NULL;
    LVN_TRY(comm->ops->all_gather(comm, &bytes, sizeof bytes, size));
    size_t all = 0;
    for (int r = 0; r < comm->world; r++) {
        all += size[r];
    }
    char *data = lvni_core_alloc(LVNI_TAG_DIST, all);
    size_t at = 0;
    lvn_status status;
    LVNI_TRY_DONE(status, lvni_dist_comm_agree_status(comm, data != NULL ? LVN_OK : LVN_ERR_MEMORY,
                                                      "an all-gather"));
    for (int r = 0; r < comm->world && data != NULL; r++) {
        if (r == comm->rank && bytes > 0) {
            memcpy(data + at, in, bytes);
        }
        LVNI_TRY_DONE(status,
                      size[r] > 0 ? comm->ops->broadcast(comm, data + at, size[r], r) : LVN_OK);
        at += size[r];
    }
    *out = data;
    return LVN_OK;
done:
    lvni_core_free(data);
    return status;
}

lvn_status lvni_dist_comm_all_gather_sized(lvni_dist_comm *comm, const void *in, size_t bytes,
                                           void **out, size_t *size)
{
    LVN_TRY(enter(
        comm,
        (lvni_dist_call){.kind = LVNI_CALL_ALL_GATHER_SIZED, .dtype = -1, .how = -1, .root = -1}));
    return lvni_dist_call_end(comm, all_gather_sized(comm, in, bytes, out, size));
}

static lvn_status alloc(lvni_dist_comm *comm, size_t bytes, void **out)
{
    memory_block *b = LVNI_NEW(LVNI_TAG_DIST, memory_block);
    lvn_status status =
        lvni_dist_comm_agree_status(comm, b != NULL ? LVN_OK : LVN_ERR_MEMORY, "shared memory");
    if (status != LVN_OK || b == NULL) {
        lvni_core_free(b);
        return status;
    }
    status = lvni_dist_region_share(comm, 0, bytes, NULL, NULL, "shared memory", &b->region);
    if (status != LVN_OK) {
        lvni_core_free(b);
        return status;
    }
    memory_block *newest = comm->memory;
    b->bytes = bytes;
    b->next = newest;
    b->number = newest != NULL ? newest->number + 1 : 1;
    comm->memory = b;
    *out = lvni_dist_region_part(&b->region, comm->rank);
    return LVN_OK;
}

lvn_status lvni_dist_comm_alloc(lvni_dist_comm *comm, size_t bytes, void **out)
{
    *out = NULL;
    LVN_TRY(enter(comm, (lvni_dist_call){LVNI_CALL_ALLOC, -1, -1, -1, (int64_t)bytes}));
    return lvni_dist_call_end(comm, alloc(comm, bytes, out));
}

lvn_status lvni_dist_comm_free(lvni_dist_comm *comm, void *p)
{
    if (p == NULL) {
        return LVN_OK;
    }
    memory_block *found = NULL, *before = NULL;
    for (memory_block *b = comm->memory; b != NULL; before = b, b = b->next) {
        if (lvni_dist_region_part(&b->region, comm->rank) == (char *)p) {
            found = b;
            break;
        }
    }
    LVN_ARG(found != NULL,
            "lvni_dist_comm_free: rank %d's lvni_dist_comm_alloc did not give this address",
            comm->rank);
    if (before == NULL) {
        comm->memory = found->next;
    } else {
        before->next = found->next;
    }
    const int64_t bytes = (int64_t)found->bytes;
    comm->ops->region_close(comm, &found->region);
    lvni_core_free(found);
    LVN_TRY(enter(comm, (lvni_dist_call){LVNI_CALL_FREE, -1, -1, -1, bytes}));
    return lvni_dist_call_end(comm, LVN_OK);
}

bool lvni_dist_comm_find(const lvni_dist_comm *comm, const void *p, size_t bytes,
                         const lvni_dist_region **region, int64_t *number, size_t *offset)
{
    for (const memory_block *b = comm->memory; b != NULL; b = b->next) {
        const uintptr_t start = (uintptr_t)lvni_dist_region_part(&b->region, comm->rank),
                        at = (uintptr_t)p;
        if (at >= start && at - start <= b->bytes && bytes <= b->bytes - (at - start)) {
            *region = &b->region;
            *number = b->number;
            *offset = (size_t)(at - start);
            return true;
        }
    }
    return false;
}

/* ---- check mode ---- */

static void describe(const lvni_dist_call *call, char *out, size_t room)
{
    static const char *const ops[] = {"sum", "minimum", "maximum"};
    int at = snprintf(out, room, "%s", lvni_dist_call_name(call->kind));
    if (call->how >= 0 && call->how < 3) {
        at += snprintf(out + at, room - (size_t)at, " (%s)", ops[call->how]);
    }
    if (call->n > 0) {
        at += snprintf(out + at, room - (size_t)at, " of %lld %s", (long long)call->n,
                       call->dtype >= 0 ? lvn_dtype_name((lvn_dtype)call->dtype) : "bytes");
    }
    if (call->root >= 0) {
        snprintf(out + at, room - (size_t)at, " from rank %d", call->root);
    }
}

lvn_status lvni_dist_compare_calls(const lvni_dist_call *first, size_t stride, int world)
{
    for (int rank = 1; rank < world; rank++) {
        const lvni_dist_call *other = (const void *)((const char *)first + (size_t)rank * stride);
        if (memcmp(first, other, sizeof *first) != 0) {
            char a[128], b[128];
            describe(first, a, sizeof a);
            describe(other, b, sizeof b);
            LVN_FAIL(LVN_ERR_MISMATCH, "rank 0 calls %s, rank %d calls %s", a, rank, b);
        }
    }
    return LVN_OK;
}

lvn_status lvni_dist_agree(lvni_dist_comm *comm, const lvni_dist_call *call)
{
    lvni_dist_call *all = lvni_core_alloc(LVNI_TAG_DIST, (size_t)comm->world * sizeof *all);
    if (all == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status s = comm->ops->all_gather(comm, call, sizeof *call, all);
    if (s == LVN_OK) {
        s = lvni_dist_compare_calls(all, sizeof *all, comm->world);
    }
    lvni_core_free(all);
    return s;
}

/* ---- messages among neighbouring ranks ---- */

lvn_status lvni_dist_group_exchange_create(lvni_dist_comm *comm, int lo, int hi,
                                           lvni_dist_group_exchange **out)
{
    *out = NULL;
    return comm->ops->exchange_create(comm, lo, hi, out);
}

void lvni_dist_group_exchange_destroy(lvni_dist_group_exchange *exchange)
{
    if (exchange != NULL) {
        exchange->ops->destroy(exchange);
    }
}

lvn_status lvni_dist_group_exchange_run(lvni_dist_group_exchange *exchange, int lo, int hi,
                                        const void *mine, size_t bytes,
                                        const lvni_dist_group_message **message)
{
    lvni_dist_comm *comm = exchange->comm;
    LVN_ARG(lo >= 0 && lo <= comm->rank && comm->rank < hi && hi <= comm->world,
            "rank %d of %d is not one of ranks %d to %d, which exchange messages", comm->rank,
            comm->world, lo, hi - 1);
    LVN_TRY(comm->ops->health(comm));
    lvni_dist_call_begin(comm, LVNI_CALL_GROUP_EXCHANGE);
    return lvni_dist_call_end(comm, exchange->ops->run(exchange, lo, hi, mine, bytes, message));
}
