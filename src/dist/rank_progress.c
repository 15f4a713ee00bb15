/* The record of a rank's progress (rank_progress.h). */
#include "dist/rank_progress.h"

#include "core/machine.h"
#include "dist/transport.h"

void lvni_dist_comm_at(lvni_dist_comm *comm, lvni_dist_place place, int64_t step)
{
    if (comm != NULL) {
        atomic_store_explicit(&comm->progress.step, step, memory_order_relaxed);
        atomic_store_explicit(&comm->progress.place, (int)place, memory_order_relaxed);
    }
}

lvni_dist_progress lvni_dist_comm_progress(const lvni_dist_comm *comm)
{
    const bool waits = atomic_load(&comm->progress.inside) > 0;
    const uint64_t now = lvni_core_now_ns(), since = atomic_load(&comm->progress.since_ns);
    return (lvni_dist_progress){.entered = atomic_load(&comm->progress.entered),
                                .waits = waits,
                                .call = atomic_load(&comm->progress.call),
                                .place = atomic_load(&comm->progress.place),
                                .step = atomic_load(&comm->progress.step),
                                .waited_s =
                                    waits && now > since ? (double)(now - since) * 1e-9 : 0.0};
}

const char *lvni_dist_place_name(int place)
{
    static const char *const names[LVNI_PLACE_COUNT] = {[LVNI_PLACE_START] = "start",
                                                        [LVNI_PLACE_DATA] = "data",
                                                        [LVNI_PLACE_FORWARD] = "forward",
                                                        [LVNI_PLACE_BACKWARD] = "backward",
                                                        [LVNI_PLACE_REDUCTION] = "reduction",
                                                        [LVNI_PLACE_UPDATE] = "update",
                                                        [LVNI_PLACE_VALIDATION] = "validation",
                                                        [LVNI_PLACE_SAVE] = "save",
                                                        [LVNI_PLACE_END] = "end"};
    return place >= 0 && place < LVNI_PLACE_COUNT ? names[place] : "?";
}

const char *lvni_dist_call_name(int call)
{
    static const char *const names[LVNI_CALL_COUNT] = {
        [LVNI_CALL_BARRIER] = "barrier",
        [LVNI_CALL_ALL_REDUCE] = "all-reduce",
        [LVNI_CALL_REDUCE_SCATTER] = "reduce-scatter",
        [LVNI_CALL_ALL_GATHER] = "all-gather",
        [LVNI_CALL_ALL_GATHER_SIZED] = "all-gather of different sizes",
        [LVNI_CALL_BROADCAST] = "broadcast",
        [LVNI_CALL_ALL_TO_ALL] = "all-to-all",
        [LVNI_CALL_ALLOC] = "allocation of shared memory",
        [LVNI_CALL_FREE] = "release of shared memory",
        [LVNI_CALL_REDUCTION_CREATE] = "creation of a reduction",
        [LVNI_CALL_REDUCTION_FINISH] = "end of a reduction's step",
        [LVNI_CALL_AGREE_STATUS] = "agreement on a status",
        [LVNI_CALL_GROUP_EXCHANGE] = "group exchange",
    };
    return call >= 0 && call < LVNI_CALL_COUNT ? names[call] : "unknown call";
}

/* The time is written before a call counts and before it no longer does: what reads it never takes
 * an old one for this call's. Several lanes may be in group exchanges at once; each that ends is
 * progress, and begins the time again. */
void lvni_dist_call_begin(lvni_dist_comm *comm, int call)
{
    atomic_store(&comm->progress.since_ns, lvni_core_now_ns());
    atomic_store_explicit(&comm->progress.call, call, memory_order_relaxed);
    if (call != LVNI_CALL_GROUP_EXCHANGE) {
        atomic_fetch_add_explicit(&comm->progress.entered, 1, memory_order_relaxed);
    }
    atomic_fetch_add(&comm->progress.inside, 1);
}

lvn_status lvni_dist_call_end(lvni_dist_comm *comm, lvn_status status)
{
    atomic_store(&comm->progress.since_ns, lvni_core_now_ns());
    atomic_fetch_sub(&comm->progress.inside, 1);
    return status;
}
