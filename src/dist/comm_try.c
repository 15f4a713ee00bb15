/* Is the transport right? (comm.h) */
#include "dist/comm.h"

#include "core/alloc.h"
#include "core/machine.h"

enum { TRY_FLOATS = (1 << 20) / sizeof(float), PERIOD = 7 };

/* Small whole numbers: their sums are exact in any order. */
static float part_of(int rank, int64_t i)
{
    return (float)(rank + 1) * (float)(i % PERIOD - 3);
}

static lvn_status check_sum(const lvni_dist_comm *comm, const float *sum)
{
    const int world = lvni_dist_comm_world(comm), ranks = world * (world + 1) / 2; /* 1 + 2 + ... */
    for (int64_t i = 0; i < TRY_FLOATS; i++) {
        const float want = (float)ranks * (float)(i % PERIOD - 3);
        if (sum[i] != want) {
            LVN_FAIL(LVN_ERR_INTERNAL,
                     "rank %d of %d: in a sum of 1 MiB over all ranks, tried before the first "
                     "step, element %lld is %g and not %g: what carries the "
                     "gradients here cannot be trusted",
                     lvni_dist_comm_rank(comm), world, (long long)i, (double)sum[i], (double)want);
        }
    }
    return LVN_OK;
}

lvn_status lvni_dist_comm_try(lvni_dist_comm *comm, uint64_t *ns)
{
    *ns = 0;
    float *x = lvni_core_alloc(LVNI_TAG_DIST, TRY_FLOATS * sizeof *x);
    for (int64_t i = 0; x != NULL && i < TRY_FLOATS; i++) {
        x[i] = part_of(lvni_dist_comm_rank(comm), i);
    }
    lvn_status s =
        lvni_dist_comm_agree_status(comm, x == NULL ? LVN_ERR_MEMORY : LVN_OK, "the first sum");
    const uint64_t begin_ns = lvni_core_now_ns();
    if (s == LVN_OK) {
        s = lvni_dist_comm_all_reduce(comm, x, x, TRY_FLOATS, LVN_F32, LVNI_REDUCE_SUM);
    }
    *ns = lvni_core_now_ns() - begin_ns;
    if (s == LVN_OK && x != NULL) {
        s = lvni_dist_comm_agree_status(comm, check_sum(comm, x), "the first sum");
    }
    lvni_core_free(x);
    return s;
}
