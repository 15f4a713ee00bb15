/* Conformance: what takes much memory, and what happens to the others when a rank is killed. */
#include "dist_cases.h"
#include "dist_numbers.h"

#include "core/alloc.h"
#include "dist/reduction.h"

#include <string.h>

enum { LARGE = 64 << 20, PERIOD = 1 << 10 }; /* floats: 256 MB, a pattern again and again */

static bool large_sum(dist_rank *me, float *x)
{
    float mine[PERIOD], want[PERIOD];
    for (int64_t i = 0; i < PERIOD; i++) {
        mine[i] = dist_gradient(me->rank, i, 1);
        want[i] = dist_gradient(0, i, 1) + dist_gradient(1, i, 1);
    }
    for (int64_t i = 0; i < LARGE; i += PERIOD) {
        memcpy(x + i, mine, sizeof mine);
    }
    RANK_CHECK(me,
               lvni_dist_comm_all_reduce(me->comm, x, x, LARGE, LVN_F32, LVNI_REDUCE_SUM) == LVN_OK,
               "all-reduce");
    for (int64_t i = 0; i < LARGE; i += PERIOD) {
        RANK_CHECK(me, memcmp(x + i, want, sizeof want) == 0, "elements %lld to %lld", (long long)i,
                   (long long)i + PERIOD - 1);
    }
    return true;
}

bool dist_case_large(dist_rank *me)
{
    void *shared;
    RANK_CHECK(me, me->world == 2, "two ranks");
    RANK_CHECK(me, lvni_dist_comm_alloc(me->comm, LARGE * sizeof(float), &shared) == LVN_OK,
               "alloc");
    const bool in_place = large_sum(me, shared);
    RANK_CHECK(me, lvni_dist_comm_free(me->comm, shared) == LVN_OK, "free");
    return in_place && large_sum(me, dist_take(me, LARGE * sizeof(float)));
}

static void no_squares(const float *g, int64_t n, double *partial)
{
    (void)g, (void)n, (void)partial;
}

static lvn_status endless_call(dist_rank *me, lvni_dist_reduction *r, float *x, float *y)
{
    enum { N = 40000 };
    size_t size[64];
    void *out = NULL;
    lvn_status status = LVN_OK;
    switch (me->arg) {
    case 0: return lvni_dist_comm_barrier(me->comm);
    case 1: return lvni_dist_comm_all_reduce(me->comm, x, x, N, LVN_F32, LVNI_REDUCE_MAX);
    case 2: return lvni_dist_comm_all_reduce(me->comm, x, x, 8, LVN_F32, LVNI_REDUCE_MAX);
    case 3: return lvni_dist_comm_all_gather(me->comm, x, N, y);
    case 4:
        status = lvni_dist_comm_all_gather_sized(me->comm, x, (size_t)me->rank * 100, &out, size);
        lvni_core_free(out);
        return status;
    case 5: return lvni_dist_comm_broadcast(me->comm, x, N, 1);
    default:
        status = lvni_dist_reduction_begin(r, &(lvni_plan_tree_node){me->rank, me->rank + 1, 0}, 1);
        return status == LVN_OK ? lvni_dist_reduction_finish(r, NULL, 0) : status;
    }
}

bool dist_case_endless(dist_rank *me)
{
    enum { ROOM = 1 << 20 };
    float *x = dist_take(me, ROOM), *y = dist_take(me, ROOM);
    lvni_dist_reduction *r = NULL;
    const lvni_dist_reduction_options o = {.micro_batches = me->world,
                                           .begin = me->world * me->rank / me->world,
                                           .end = me->world * (me->rank + 1) / me->world,
                                           .sets = 1,
                                           .n = 20000,
                                           .n_norm = 20000,
                                           .bucket = 4096,
                                           .sumsq = no_squares};
    /* the end may come as early as that */
    lvn_status status = lvni_dist_reduction_create(me->comm, &o, &r);
    while (status == LVN_OK) {
        status = endless_call(me, r, x, y);
    }
    char want[48];
    snprintf(want, sizeof want,
             me->hosts ? "the connection to rank %d (process " : "rank %d died (process ",
             me->world - 1);
    if (me->nodes > 0) { /* who notices first is on its node or on another one */
        snprintf(want, sizeof want, "rank %d ", me->world - 1);
    }
    const char *named = strstr(lvn_last_error()->message, want);
    RANK_CHECK(me,
               status == LVN_ERR_PEER && named != NULL &&
                   (me->nodes > 0 || named == lvn_last_error()->message),
               "%s", lvn_status_name(status));
    lvni_dist_reduction_destroy(r);
    return true;
}
