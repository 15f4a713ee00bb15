/* The ranks of a run that are this process's: rank after rank on a thread of its own, and whose failure is told (fit.h). */
#include "core/alloc.h"
#include "core/clock.h"
#include "log/run_log.h"
#include "recipes/fit_impl.h"
#include "recipes/run_dir.h"

#include <levin/device.h>
#include <pthread.h>

/* A rank on its thread. */
typedef struct member {
    const lvni_fit_request *request;
    lvni_rank rank;
    pthread_t thread;
    lvn_status status;
    lvn_error error;
    int64_t saved_step;
    uint64_t ended_ns;
} member;

static void *member_main(void *argument)
{
    member *m = argument;
    const lvn_device before = lvn_device_in_use();
    lvni_fit_run r = {.request = m->request, .rank = m->rank};
    lvni_log_set_follower(m->rank.rank > 0);
    lvni_thread_set_ftz();
    m->status = lvni_fit_rank(&r);
    m->ended_ns = lvni_now_ns();
    if (m->status != LVN_OK) {
        m->error = *lvn_last_error();
        if (r.rank.comm != NULL && m->status != LVN_ERR_CANCELLED) { /* what a stop asked for, all ranks do by themselves */
            lvni_comm_abort(r.rank.comm, m->error.message);
        }
    }
    m->saved_step = r.trainer == NULL ? -1 : r.trainer->saved_step;
    lvni_fit_run_free(&r);
    lvn_device_use(before);
    lvni_log_set_follower(false);
    return NULL;
}

/* The rank whose failure made the others stop: the first that is not about another one. */
static const member *first_failed(const member *m, int n)
{
    const member *first = NULL;
    for (int i = 0; i < n; i++) {
        const bool own = m[i].status != LVN_OK && m[i].status != LVN_ERR_PEER;
        if (own && (first == NULL || m[i].ended_ns < first->ended_ns)) {
            first = &m[i];
        }
    }
    for (int i = 0; i < n && first == NULL; i++) {
        first = m[i].status != LVN_OK ? &m[i] : NULL;
    }
    return first;
}

static lvn_status tell_first(const member *m, int n)
{
    const member *first = first_failed(m, n);
    if (first == NULL) {
        return LVN_OK;
    }
    lvn_error_adopt(&first->error);
    if (first != m && first->status != LVN_ERR_CANCELLED) {
        lvn_error_frame("rank %d of %d", first->rank.rank, first->rank.world);
    }
    if (first != m && first->status != LVN_ERR_CANCELLED && m[0].saved_step >= 0) {
        const lvn_error *e = &first->error;
        lvn_error_set(e->code, e->file, e->line, "%s; step %lld is saved: resume=true goes on from there", e->message, (long long)m[0].saved_step);
    }
    return first->status;
}

/* Rank 0 of this process on the calling thread, the others beside it. */
static lvn_status run_members(const lvni_fit_request *request)
{
    const int n = request->ranks->n;
    member *m = lvni_calloc(LVNI_TAG_TRAINER, (size_t)n, sizeof *m);
    if (m == NULL) {
        return LVN_ERR_MEMORY;
    }
    int started = 1;
    for (int i = 0; i < n; i++) {
        m[i] = (member){.request = request, .rank = request->ranks->rank[i], .saved_step = -1};
    }
    for (; started < n; started++) {
        if (pthread_create(&m[started].thread, NULL, member_main, &m[started]) != 0) {
            lvni_comm_abort(m[0].rank.comm, "its thread could not be started");
            break;
        }
    }
    member_main(m);
    for (int i = 1; i < started; i++) {
        pthread_join(m[i].thread, NULL);
    }
    const lvn_status s = tell_first(m, n);
    lvni_free(m);
    return s;
}

lvn_status lvni_fit(const lvni_fit_request *request)
{
    const lvn_status s = run_members(request);
    lvni_stop_remove();
    if (s != LVN_OK) {
        lvni_log_line(LVNI_LOG_DEBUG, "stopped: %s", lvn_last_error()->message); /* for train.log; the command tells the person */
    }
    lvni_log_close();
    lvni_run_dir_release();
    return s;
}
