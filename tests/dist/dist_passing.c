/* Messages from rank to rank (dist/passing.h): found by their streams, whole, in order; a wrong
 * number and an abort end who waits. */
#include "dist_cases.h"

#include "core/alloc.h"
#include "dist/passing.h"

#include <string.h>

enum { STREAMS = 3, ROUNDS = 20 };

static int64_t value_of(int from, int to, int stream, int k)
{
    return ((int64_t)from * 100 + to) * 1000 + (int64_t)stream * 100 + k;
}

static bool send_all(dist_rank *me, lvni_dist_passing *p)
{
    for (int k = 0; k < ROUNDS; k++) {
        for (int i = 0; i < STREAMS * me->world; i++) {
            const int to = i % me->world, stream = i / me->world;
            const int64_t head = k, value = value_of(me->rank, to, stream, k);
            RANK_CHECK(me,
                       lvni_dist_passing_send(p, to, (lvni_dist_tag){stream, k}, &head, sizeof head,
                                              &value, k % 2 == 0 ? sizeof value : 0) == LVN_OK,
                       "message %d to rank %d", k, to);
        }
    }
    return true;
}

/* The streams in another order than they were sent. */
static bool receive_all(dist_rank *me, lvni_dist_passing *p)
{
    for (int i = STREAMS * me->world - 1; i >= 0; i--) {
        const int from = i % me->world, stream = i / me->world;
        for (int k = 0; k < ROUNDS; k++) {
            int64_t got[2];
            void *message;
            size_t bytes;
            RANK_CHECK(me,
                       lvni_dist_passing_receive(p, from, (lvni_dist_tag){stream, k}, &message,
                                                 &bytes) == LVN_OK,
                       "message %d of rank %d", k, from);
            RANK_CHECK(me, bytes == (k % 2 == 0 ? 2 : 1) * sizeof *got, "%zu bytes", bytes);
            memcpy(got, message, bytes);
            lvni_core_free(message);
            RANK_CHECK(me, got[0] == k, "the head of message %d", k);
            RANK_CHECK(me, k % 2 != 0 || got[1] == value_of(from, me->rank, stream, k),
                       "message %d of rank %d, stream %d", k, from, stream);
        }
    }
    return true;
}

/* Each to itself: the next message has another number. */
static bool receive_another(dist_rank *me, lvni_dist_passing *p)
{
    void *message;
    size_t bytes;
    RANK_CHECK(me,
               lvni_dist_passing_send(p, me->rank, (lvni_dist_tag){7, 3}, "", 0, "", 0) == LVN_OK,
               "to itself");
    RANK_CHECK(me,
               lvni_dist_passing_receive(p, me->rank, (lvni_dist_tag){7, 4}, &message, &bytes) ==
                       LVN_ERR_MISMATCH &&
                   strstr(lvn_last_error()->message, "message 4 of rank") != NULL,
               "another number is taken");
    return true;
}

/* All but the last rank wait for what never comes. */
static bool wait_in_vain(dist_rank *me, lvni_dist_passing *p)
{
    void *message;
    size_t bytes;
    RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_OK, "the barrier");
    if (me->rank == me->world - 1) {
        lvni_dist_comm_abort(me->comm, "it is over");
        return true;
    }
    RANK_CHECK(me,
               lvni_dist_passing_receive(p, me->world - 1, (lvni_dist_tag){9, 0}, &message,
                                         &bytes) == LVN_ERR_PEER,
               "nothing came, and nothing was reported");
    return true;
}

bool dist_case_passing(dist_rank *me)
{
    lvni_dist_passing *p;
    RANK_CHECK(me, lvni_dist_passing_create(me->comm, &p) == LVN_OK, "it is made");
    const bool good =
        send_all(me, p) && receive_all(me, p) && receive_another(me, p) && wait_in_vain(me, p);
    lvni_dist_passing_destroy(p);
    return good;
}
