/* What the store decides over time: which ranks are silent, which failed first, and the step at
 * which all stop. */
#include "store_impl.h"

#include "core/machine.h"
#include "core/str.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- Causes ---- */

static void decide(lvni_control_store *store, const lvni_control_cause *cause)
{
    store->over = true;
    store->cause = *cause;
    uv_timer_stop(&store->settle);
    lvni_core_str s = {0};
    lvni_control_put_cause(&s, LVNI_FRAME_ABORT, cause);
    lvni_control_store_broadcast(store, &s);
}

static void on_settle(uv_timer_t *timer)
{
    lvni_control_store *store = timer->data;
    if (!store->over) {
        decide(store, &store->suspect);
    }
}

/* The first cause that is not of kind peer wins at once. One of kind peer implies a real one, which
 * is waited for shortly. */
void lvni_control_store_report(lvni_control_store *store, const lvni_control_cause *cause)
{
    if (store->over || store->phase == LVNI_STORE_REFUSED) {
        return;
    }
    if (cause->kind != LVNI_CAUSE_PEER) {
        decide(store, cause);
    } else if (!store->suspected) {
        store->suspected = true;
        store->suspect = *cause;
        uv_timer_start(&store->settle, on_settle, (uint64_t)(store->o.settle_s * 1e3), 0);
    }
}

/* This process stood still, as after SIGSTOP: it neither received nor sent heartbeats. */
static bool stood_still(const lvni_control_store *store, uint64_t now)
{
    return now - store->tick_ns > lvni_control_ns(store->o.peer_timeout_s) / 2;
}

/* So long that the other ranks timed out. */
static bool was_given_up(const lvni_control_store *store, uint64_t now)
{
    return now - store->tick_ns >= lvni_control_ns(store->o.peer_timeout_s - store->o.heartbeat_s);
}

/* Its connection is gone. When this process stood still, the other ranks have timed out because of
 * it: then its own rank is the cause. */
void lvni_control_store_lost(lvni_control_store *store, int rank, bool ended, const char *why)
{
    store->ranks[rank].state = LVNI_RANK_GONE;
    const uint64_t now_ns = lvni_core_now_ns();
    const bool own = rank != store->o.rank &&
                     (was_given_up(store, now_ns) ||
                      (store->woke_ns != 0 && now_ns - store->woke_ns < lvni_control_ns(1)));
    const lvni_control_store_rank *lost = &store->ranks[own ? store->o.rank : rank];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    lvni_control_cause cause = {.kind = LVNI_CAUSE_SIGNAL,
                                .rank = own ? store->o.rank : rank,
                                .step = lost->step,
                                .ended = ended && !own,
                                .pid = (int64_t)lost->greet.pid,
                                .time_ns =
                                    (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec};
    snprintf(cause.host, sizeof cause.host, "%s", lost->greet.host);
    snprintf(
        cause.message, sizeof cause.message, "%s",
        own ? "its process stood still until the other ranks timed out: it was stopped, or had no "
              "processor"
            : why);
    lvni_control_store_report(store, &cause);
}

/* ---- Stopping together ---- A rank answers at once with the last boundary it has passed, from its
 * own thread, also while its step waits for another rank; and holds at its next boundary. The
 * common step is one more than the largest answer: every rank still has it before it, and none
 * holds below another's step for ever. */

static void put_stop(lvni_control_store *store, lvni_core_str *out)
{
    const size_t at = lvni_control_frame_begin(
        out, store->stop == LVNI_STOP_ASKING ? LVNI_FRAME_STOP_ASK : LVNI_FRAME_STOP_AT);
    lvni_control_put_u32(out, (uint32_t)store->stop_reason);
    if (store->stop == LVNI_STOP_AGREED) {
        lvni_control_put_u64(out, (uint64_t)store->stop_at);
    }
    lvni_control_frame_end(out, at);
}

void lvni_control_store_stop_progress(lvni_control_store *store)
{
    for (int r = 0; r < store->o.world; r++) {
        const lvni_control_store_rank *rank = &store->ranks[r];
        if (store->stop != LVNI_STOP_ASKING ||
            (!rank->stop_answered && rank->state != LVNI_RANK_LEFT)) {
            return;
        }
    }
    store->stop = LVNI_STOP_AGREED;
    store->stop_at += store->stop_at < INT64_MAX ? 1 : 0;
    lvni_core_str s = {0};
    put_stop(store, &s);
    lvni_control_store_broadcast(store, &s);
}

void lvni_control_store_stop_ask(lvni_control_store *store, int reason)
{
    if (store->stop != LVNI_STOP_NONE) {
        return;
    }
    store->stop = LVNI_STOP_ASKING;
    store->stop_reason = reason;
    store->stop_at = INT64_MIN; /* no rank has passed a boundary: all stop at their first */
    lvni_core_str s = {0};
    put_stop(store, &s);
    lvni_control_store_broadcast(store, &s);
}

void lvni_control_store_stop_step(lvni_control_store *store, int rank, int64_t step)
{
    if (store->stop != LVNI_STOP_ASKING) {
        return;
    }
    store->ranks[rank].stop_answered = true;
    store->stop_at = step > store->stop_at ? step : store->stop_at;
    lvni_control_store_stop_progress(store);
}

void lvni_control_conn_send_decision(lvni_control_conn *conn)
{
    lvni_control_store *store = conn->store;
    if (store->over) {
        lvni_core_str s = {0};
        lvni_control_put_cause(&s, LVNI_FRAME_ABORT, &store->cause);
        lvni_control_conn_send(conn, &s);
    } else if (store->stop != LVNI_STOP_NONE) {
        lvni_core_str s = {0};
        put_stop(store, &s);
        lvni_control_conn_send(conn, &s);
    }
}

/* ---- Time ---- */

/* Its connection is still open: the cause goes to it as well, in case it continues, and is the last
 * that it gets. */
static void lose_silent(lvni_control_conn *conn, const char *why)
{
    lvni_control_store *store = conn->store;
    const bool first = !store->over && store->phase != LVNI_STORE_REFUSED && conn->confirmed &&
                       store->ranks[conn->rank].state == LVNI_RANK_HERE;
    if (!first) { /* it has the cause, or did not read it since the last tick */
        lvni_control_conn_drop(conn, why);
        return;
    }
    conn->parting = true;
    lvni_control_store_lost(store, conn->rank, false, why);
}

static void watch_conn(lvni_control_conn *conn, uint64_t now)
{
    lvni_control_store *store = conn->store;
    char why[100];
    if (conn->closing) {
        return;
    }
    if (conn->rank < 0) {
        if (now - conn->opened_ns > lvni_control_ns(store->o.greeting_timeout_s)) {
            lvni_control_conn_turn_away(conn, "no proof in time");
        }
    } else if (now > conn->heard_ns &&
               now - conn->heard_ns > lvni_control_ns(store->o.peer_timeout_s)) {
        lvni_core_format(why, sizeof why,
                         "nothing was heard from it for %.1f s: stopped, hung or cut off",
                         store->o.peer_timeout_s);
        lose_silent(conn, why);
    } else if (now > conn->sent_ns &&
               now - conn->sent_ns >= lvni_control_ns(store->o.heartbeat_s)) {
        lvni_core_str s = {0};
        lvni_control_frame_end(&s, lvni_control_frame_begin(&s, LVNI_FRAME_BEAT));
        lvni_control_conn_send(conn, &s);
    }
}

static void watch_list(const lvni_control_conn_list *list, bool slept, uint64_t now)
{
    for (lvni_control_conn *conn = list->first; conn != NULL; conn = conn->next) {
        conn->heard_ns = slept ? now : conn->heard_ns;
        conn->opened_ns = slept ? now : conn->opened_ns;
        watch_conn(conn, now);
    }
}

void lvni_control_store_on_tick(uv_timer_t *timer)
{
    lvni_control_store *store = timer->data;
    const uint64_t now = lvni_core_now_ns();
    /* then the silence of the other ranks is this process's doing */
    const bool slept = stood_still(store, now);
    store->woke_ns = was_given_up(store, now) ? now : store->woke_ns;
    store->tick_ns = now;
    watch_list(&store->strangers, slept, now);
    watch_list(&store->conns, slept, now);
    lvni_control_store_rendezvous_tick(store, now);
    lvni_control_store_keys_tick(store, now);
    lvni_control_store_gathers_tick(store, now);
    lvni_control_store_report_refusals(store, now);
    lvni_control_store_munge_tick(store, now);
}
