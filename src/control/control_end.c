/* How a rank's part in a run ends: at a common step, by a failure, or with a goodbye. */
#include "control_impl.h"

#include "core/alloc.h"
#include "core/clock.h"
#include "core/host_name.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- Stopping together ---- */

void lvni_control_request_stop(lvni_control *control, int reason)
{
    pthread_mutex_lock(&control->lock);
    const size_t at = lvni_control_frame_begin(&control->out, LVNI_FRAME_STOP_ASK);
    lvni_control_put_u32(&control->out, (uint32_t)reason);
    lvni_control_frame_end(&control->out, at);
    pthread_mutex_unlock(&control->lock);
    lvni_control_wake(control);
}

static lvn_status hold(lvni_control *c, int64_t step, bool *stop)
{
    pthread_mutex_lock(&c->lock);
    while (!c->stop_known && (atomic_load(&c->attention) & LVNI_ATTENTION_OVER) == 0) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
    *stop = c->stop_known && step >= c->stop_at;
    pthread_mutex_unlock(&c->lock);
    return lvni_control_check(c);
}

/* Both accesses are sequentially consistent: either this thread sees the mark, or the other, which
 * sets the mark before it reads the step (control_thread.c), sees this step and answers that its
 * boundary is passed. */
lvn_status lvni_control_boundary(lvni_control *control, int64_t step, bool *stop)
{
    *stop = false;
    atomic_store(&control->step, step);
    return atomic_load(&control->attention) == 0 ? LVN_OK : hold(control, step, stop);
}

int lvni_control_stop_reason(lvni_control *control)
{
    pthread_mutex_lock(&control->lock);
    const int reason = control->stop_reason;
    pthread_mutex_unlock(&control->lock);
    return reason;
}

/* ---- Failing ---- */

bool lvni_control_get_cause(const lvni_control *control, lvni_control_cause *cause)
{
    const bool is_over = (atomic_load(&control->attention) & LVNI_ATTENTION_OVER) != 0;
    if (is_over && cause != NULL) {
        *cause = control->cause; /* written before the mark, never again */
    }
    return is_over;
}

void lvni_control_fail(lvni_control *control, const lvni_control_cause *failure)
{
    enum { PATIENCE_NS = 1000000000 };
    const int64_t begun = atomic_load(&control->step);
    lvni_control_cause own = *failure;
    own.rank = control->rank;
    own.step = own.step >= 0 || begun < 0 ? own.step : begun;
    own.pid = getpid();
    own.time_ns = lvni_control_wall_ns();
    lvni_core_host_name(own.host, sizeof own.host);
    const struct timespec until = lvni_core_timespec(lvni_core_now_ns() + PATIENCE_NS);
    int error = 0;
    pthread_mutex_lock(&control->lock);
    if (!control->failed) {
        control->failed = true;
        lvni_control_put_cause(&control->out, LVNI_FRAME_FAIL, &own);
        lvni_control_wake(control);
    }
    while ((atomic_load(&control->attention) & LVNI_ATTENTION_OVER) == 0 && error == 0) {
        error = pthread_cond_timedwait(&control->changed, &control->lock, &until);
    }
    pthread_mutex_unlock(&control->lock);
    if (error != 0) {
        /* the store says nothing: for this rank it is its own failure */
        lvni_control_over(control, &own);
    }
}

/* ---- Leaving ---- */

lvn_status lvni_control_leave(lvni_control *control)
{
    if (lvni_control_get_cause(control, NULL)) {
        return LVN_OK;
    }
    lvni_core_str frame = {0};
    lvni_control_request request;
    const size_t at = lvni_control_begin_ask(control, &frame, LVNI_FRAME_BYE, &request);
    request.bye = true;
    const lvn_status status = lvni_control_ask(control, &frame, at, &request, 0);
    if (status != LVN_OK) {
        return lvni_control_get_cause(control, NULL) ? LVN_OK : status;
    }
    lvni_core_free(request.data);
    return LVN_OK;
}
