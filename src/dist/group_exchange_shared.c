/* Exchanges of neighbouring ranks (group_exchange.h). Each rank has two channels, one for each run
 * it takes part in, and in each two stages: in round k of a channel it writes the stage of parity k
 * % 2, publishes that it has arrived, waits for the others of the run, and reads theirs. It writes
 * that stage again in round k + 2, after all have arrived in round k + 1, and so have read what
 * they wanted of round k. What is longer than a stage takes as many rounds as the longest of the
 * run needs. */
#include "dist/group_exchange.h"

#include "core/alloc.h"
#include "dist/transport.h"

#include <stdalign.h>
#include <stdio.h>
#include <string.h>

enum { CHANNELS = 2, PARITIES = 2, STAGE = 64 << 10 };

/* A rank's part of the region. */
typedef struct group_exchange_part {
    struct {
        alignas(64) _Atomic uint64_t arrived; /* the last round */
        uint64_t bytes[PARITIES];             /* of the whole message */
    } channel[CHANNELS];
    alignas(64) unsigned char stage[CHANNELS][PARITIES][STAGE];
} group_exchange_part;

typedef struct shared_exchange {
    lvni_dist_group_exchange base;
    lvni_dist_region region;
    uint64_t round[CHANNELS];         /* of this rank */
    lvni_dist_group_message *message; /* world */
    unsigned char *memory;            /* what they point at */
    size_t room;
} shared_exchange;

static group_exchange_part *part_of(const shared_exchange *a, int rank)
{
    return (group_exchange_part *)(void *)lvni_dist_region_part(&a->region, rank);
}

/* A rank's place in a run: the one that begins with it, or the one that begins before. */
static int channel_of(int rank, int lo)
{
    return rank == lo ? 1 : 0;
}

static void destroy(lvni_dist_group_exchange *exchange)
{
    shared_exchange *a = (shared_exchange *)exchange;
    a->base.comm->ops->region_close(a->base.comm, &a->region);
    lvni_core_free(a->message);
    lvni_core_free(a->memory);
    lvni_core_free(a);
}

/* ---- rounds ---- */

typedef struct group_sync_wait {
    const shared_exchange *exchange;
    int lo, hi;
    uint64_t round;
} group_sync_wait;

static bool wait_needs(void *user, int rank)
{
    const group_sync_wait *w = user;
    return rank >= w->lo && rank < w->hi &&
           atomic_load(&part_of(w->exchange, rank)->channel[channel_of(rank, w->lo)].arrived) <
               w->round;
}

static bool wait_over(void *user)
{
    const group_sync_wait *w = user;
    return lvni_dist_wait_is_over(w->exchange->base.comm, wait_needs, user);
}

static size_t piece_of(size_t bytes, size_t at)
{
    return at >= bytes ? 0 : bytes - at < STAGE ? bytes - at : STAGE;
}

/* The piece of `mine` from `at` on; afterwards those of the others can be read. *parity: where they
 * lie. */
static lvn_status run_round(shared_exchange *a, int lo, int hi, const void *mine, size_t bytes,
                            size_t at, int *parity)
{
    lvni_dist_comm *comm = a->base.comm;
    const int channel = channel_of(comm->rank, lo);
    group_exchange_part *own = part_of(a, comm->rank);
    const uint64_t round = ++a->round[channel];
    *parity = (int)(round % PARITIES);
    own->channel[channel].bytes[*parity] = bytes;
    if (piece_of(bytes, at) > 0) {
        memcpy(own->stage[channel][*parity], (const unsigned char *)mine + at, piece_of(bytes, at));
    }
    atomic_store(&own->channel[channel].arrived, round);
    group_sync_wait user = {a, lo, hi, round};
    const lvni_dist_wait wait = {.over = wait_over, .needs = wait_needs, .user = &user};
    if (wait_over(&user)) {
        comm->ops->ring(comm); /* the last one wakes the others */
        return LVN_OK;
    }
    return comm->ops->wait(comm, &wait);
}

/* After the first round: the sizes of all messages, and memory for them. A rank without memory does
 * not enter the next round, so it aborts the communicator. */
static lvn_status make_room(shared_exchange *a, int lo, int hi, int parity, size_t *longest)
{
    size_t all = 0;
    *longest = 0;
    for (int rank = lo; rank < hi; rank++) {
        const size_t bytes = part_of(a, rank)->channel[channel_of(rank, lo)].bytes[parity];
        a->message[rank - lo] = (lvni_dist_group_message){.bytes = bytes};
        all += bytes;
        *longest = bytes > *longest ? bytes : *longest;
    }
    if (all > a->room) {
        lvni_core_free(a->memory);
        a->room = 0;
        a->memory = lvni_core_alloc(LVNI_TAG_DIST, all);
        if (a->memory == NULL) {
            char why[128];
            snprintf(why, sizeof why,
                     "rank %d has no memory for the %zu bytes that ranks %d to %d exchange",
                     a->base.comm->rank, all, lo, hi - 1);
            lvni_dist_comm_abort(a->base.comm, why);
            LVN_FAIL(LVN_ERR_MEMORY, "%-s", why);
        }
        a->room = all;
    }
    size_t at = 0;
    for (int i = 0; i < hi - lo && a->memory != NULL; i++) {
        a->message[i].data = a->memory + at;
        at += a->message[i].bytes;
    }
    return LVN_OK;
}

static void read_pieces(const shared_exchange *a, int lo, int hi, int parity, size_t at)
{
    size_t from = 0;
    for (int rank = lo; rank < hi; rank++) {
        const size_t bytes = a->message[rank - lo].bytes, n = piece_of(bytes, at);
        if (n > 0) {
            memcpy(a->memory + from + at, part_of(a, rank)->stage[channel_of(rank, lo)][parity], n);
        }
        from += bytes;
        if (rank != a->base.comm->rank) {
            lvni_dist_comm_add_bytes(a->base.comm, 0, n);
        }
    }
}

static lvn_status run(lvni_dist_group_exchange *exchange, int lo, int hi, const void *mine,
                      size_t bytes, const lvni_dist_group_message **message)
{
    shared_exchange *a = (shared_exchange *)exchange;
    size_t longest = 0, at = 0;
    do {
        int parity;
        LVN_TRY(run_round(a, lo, hi, mine, bytes, at, &parity));
        if (at == 0) {
            LVN_TRY(make_room(a, lo, hi, parity, &longest));
        }
        read_pieces(a, lo, hi, parity, at);
        at += STAGE;
    } while (at < longest);
    lvni_dist_comm_add_bytes(a->base.comm, bytes, 0);
    *message = a->message;
    return LVN_OK;
}

static const lvni_dist_exchange_ops ops = {.destroy = destroy, .run = run};

lvn_status lvni_dist_shared_exchange_create(lvni_dist_comm *comm, int lo, int hi,
                                            lvni_dist_group_exchange **out)
{
    (void)lo, (void)hi;
    *out = NULL;
    shared_exchange *a = LVNI_NEW(LVNI_TAG_DIST, shared_exchange);
    lvni_dist_group_message *message =
        lvni_core_calloc(LVNI_TAG_DIST, (size_t)comm->world, sizeof *message);
    lvn_status s = lvni_dist_comm_agree_status(
        comm, a != NULL && message != NULL ? LVN_OK : LVN_ERR_MEMORY, "the messages of groups");
    if (s != LVN_OK || a == NULL || message == NULL) {
        lvni_core_free(a);
        lvni_core_free(message);
        return s;
    }
    a->base = (lvni_dist_group_exchange){&ops, comm};
    a->message = message;
    s = lvni_dist_region_share(comm, 0, sizeof(group_exchange_part), NULL, NULL,
                               "the messages of groups", &a->region);
    if (s != LVN_OK) {
        lvni_core_free(a);
        lvni_core_free(message);
        return s;
    }
    *out = &a->base;
    return LVN_OK;
}
