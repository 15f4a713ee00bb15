/* The record of a rank's progress (rank_progress.h). */
#include "dist/rank_progress.h"

#include "core/machine.h"
#include "dist/transport.h"

static void clock_step(lvni_dist_comm *comm, lvni_dist_place place)
{
    const uint64_t begun = atomic_load(&comm->progress.step_ns);
    const bool inside = place >= LVNI_PLACE_DATA && place <= LVNI_PLACE_RESULT;
    if (inside && begun == 0) {
        atomic_store(&comm->progress.step_ns, lvni_core_now_ns());
    } else if (!inside && begun != 0) {
        const unsigned n = atomic_load(&comm->progress.steps);
        atomic_store(&comm->progress.took_ns[n % LVNI_DIST_STEPS], lvni_core_now_ns() - begun);
        atomic_store(&comm->progress.steps, n + 1);
        atomic_store(&comm->progress.step_ns, 0);
    }
}

static double find_median_s(const lvni_dist_comm *comm)
{
    uint64_t sorted[LVNI_DIST_STEPS] = {0};
    if (atomic_load(&comm->progress.steps) < LVNI_DIST_STEPS) {
        return 0.0;
    }
    for (int i = 0; i < LVNI_DIST_STEPS; i++) {
        const uint64_t took = atomic_load(&comm->progress.took_ns[i]);
        int at = i;
        for (; at > 0 && sorted[at - 1] > took; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = took;
    }
    const int middle = LVNI_DIST_STEPS / 2;
    return (double)sorted[middle] * 1e-9;
}

void lvni_dist_comm_at(lvni_dist_comm *comm, lvni_dist_place place, int64_t step)
{
    if (comm != NULL) {
        atomic_store_explicit(&comm->progress.step, step, memory_order_relaxed);
        atomic_store_explicit(&comm->progress.place, (int)place, memory_order_relaxed);
        if (place != LVNI_PLACE_FORWARD && place != LVNI_PLACE_BACKWARD) { /* of lanes */
            clock_step(comm, place);
        }
    }
}

lvni_dist_progress lvni_dist_comm_progress(const lvni_dist_comm *comm)
{
    const bool waits = atomic_load(&comm->progress.inside) > 0;
    const uint64_t since = atomic_load(&comm->progress.since_ns),
                   begun = atomic_load(&comm->progress.step_ns), now = lvni_core_now_ns();
    return (lvni_dist_progress){
        .entered = atomic_load(&comm->progress.entered),
        .waits = waits,
        .call = atomic_load(&comm->progress.call),
        .place = atomic_load(&comm->progress.place),
        .step = atomic_load(&comm->progress.step),
        .waited_s = waits && now > since ? (double)(now - since) * 1e-9 : 0.0,
        .step_s = begun != 0 && now > begun ? (double)(now - begun) * 1e-9 : 0.0,
        .usual_s = find_median_s(comm)};
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
                                                        [LVNI_PLACE_END] = "end",
                                                        [LVNI_PLACE_RESULT] =
                                                            "result of the device",
                                                        [LVNI_PLACE_BETWEEN] = "after the end"};
    return place >= 0 && place < LVNI_PLACE_COUNT ? names[place] : "?";
}

const char *lvni_dist_call_name(int call)
{
    static const char *const names[LVNI_CALL_COUNT] = {
        [LVNI_CALL_BARRIER] = "barrier",
        [LVNI_CALL_ALL_REDUCE] = "all-reduce",
        [LVNI_CALL_ALL_GATHER] = "all-gather",
        [LVNI_CALL_ALL_GATHER_SIZED] = "all-gather of different sizes",
        [LVNI_CALL_BROADCAST] = "broadcast",
        [LVNI_CALL_ALLOC] = "allocation of shared memory",
        [LVNI_CALL_FREE] = "release of shared memory",
        [LVNI_CALL_REDUCTION_CREATE] = "creation of a reduction",
        [LVNI_CALL_REDUCTION_FINISH] = "end of a reduction's step",
        [LVNI_CALL_AGREE_STATUS] = "agreement on a status",
        [LVNI_CALL_GROUP_EXCHANGE] = "group exchange",
        [LVNI_CALL_MESSAGE] = "message of another rank",
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
    if (call != LVNI_CALL_GROUP_EXCHANGE && call != LVNI_CALL_MESSAGE) {
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
