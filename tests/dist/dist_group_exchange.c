/* Conformance of exchanges among neighbouring ranks: overlapping runs at once, sizes that differ, a
 * rank that gives up. */
#include "dist_cases.h"

#include "dist/group_exchange.h"

#include <string.h>

enum { MOST = 200000 };

/* The length of rank r's message in round k: 0 bytes, few, more than a stage. */
static size_t length_of(int rank, int k)
{
    static const size_t lengths[] = {0, 1, 100, 65536, 65537, MOST, 7};
    return lengths[(size_t)(rank * 3 + k) % (sizeof lengths / sizeof *lengths)];
}

static unsigned char byte_of(int rank, int k, size_t i)
{
    return (unsigned char)((size_t)rank * 31 + (size_t)k * 7 + i * 13 + i / 251);
}

static bool exchange(dist_rank *me, lvni_dist_group_exchange *a, int lo, int hi, int k,
                     unsigned char *memory)
{
    const size_t n = length_of(me->rank, k);
    const lvni_dist_group_message *message;
    for (size_t i = 0; i < n; i++) {
        memory[i] = byte_of(me->rank, k, i);
    }
    RANK_CHECK(me, lvni_dist_group_exchange_run(a, lo, hi, memory, n, &message) == LVN_OK,
               "round %d among %d to %d", k, lo, hi - 1);
    for (int rank = lo; rank < hi; rank++) {
        const unsigned char *got = message[rank - lo].data;
        RANK_CHECK(me, message[rank - lo].bytes == length_of(rank, k),
                   "round %d, rank %d sends %zu bytes", k, rank, message[rank - lo].bytes);
        for (size_t i = 0; i < message[rank - lo].bytes; i++) {
            RANK_CHECK(me, got[i] == byte_of(rank, k, i), "round %d, rank %d, byte %zu", k, rank,
                       i);
        }
    }
    return true;
}

/* Every rank with its neighbour below, then with the one above, each pair as often as its number;
 * and all together between. */
bool dist_case_group_exchange(dist_rank *me)
{
    lvni_dist_group_exchange *a;
    static _Thread_local unsigned char memory[MOST];
    RANK_CHECK(me, lvni_dist_group_exchange_create(me->comm, 0, me->world, &a) == LVN_OK, "create");
    bool good = true;
    for (int step = 0; step < 3 && good; step++) {
        for (int k = 0; k < 7 + me->rank && me->rank > 0 && good; k++) {
            good = exchange(me, a, me->rank - 1, me->rank + 1, k, memory);
        }
        for (int k = 0; k < 8 + me->rank && me->rank + 1 < me->world && good; k++) {
            good = exchange(me, a, me->rank, me->rank + 2, k, memory);
        }
        RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_OK, "collectives go on beside them");
    }
    const lvni_dist_group_message *message;
    RANK_CHECK(me,
               lvni_dist_group_exchange_run(a, me->rank + 1, me->rank + 2, NULL, 0, &message) ==
                   LVN_ERR_INVALID,
               "a run without this rank");
    lvni_dist_group_exchange_destroy(a);
    RANK_CHECK(me, lvni_dist_group_exchange_create(me->comm, 0, me->world, &a) == LVN_OK,
               "create again");
    for (int k = 0; k < 9 && good; k++) {
        good = exchange(me, a, 0, me->world, k, memory);
    }
    RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_OK, "before the memory goes");
    lvni_dist_group_exchange_destroy(a);
    return good;
}

/* The last rank gives up; the others are freed with its reason. */
bool dist_case_group_exchange_abort(dist_rank *me)
{
    lvni_dist_group_exchange *a;
    const lvni_dist_group_message *message;
    lvn_status s = lvni_dist_group_exchange_create(me->comm, 0, me->world, &a);
    if (me->messages && s == LVN_ERR_PEER) { /* given up while the last message was on its way */
        return strcmp(lvn_last_error()->message, "micro-batch 3 failed") == 0;
    }
    RANK_CHECK(me, s == LVN_OK, "create");
    if (me->rank == me->world - 1) {
        lvni_dist_comm_abort(me->comm, "micro-batch 3 failed");
    }
    s = lvni_dist_group_exchange_run(a, 0, me->world, "x", 1, &message);
    RANK_CHECK(me,
               s == LVN_ERR_PEER && strcmp(lvn_last_error()->message, "micro-batch 3 failed") == 0,
               "status %d", (int)s);
    lvni_dist_group_exchange_destroy(a);
    return true;
}
