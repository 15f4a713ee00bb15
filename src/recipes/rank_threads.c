/* The ranks of a run that are this process's: rank after rank on a thread of its own, and whose
 * failure is told (ranks.h). */
#include "core/alloc.h"
#include "core/machine.h"
#include "core/thread.h"
#include "log/run_log.h"
#include "recipes/ranks.h"
#include "tensor/ctx.h"

#include <levin/device.h>

/* A rank on its thread. */
typedef struct member {
    lvni_recipes_rank_work work;
    void *user;
    const lvni_recipes_rank *rank;
    pthread_t thread;
    lvn_status status;
    lvn_error error;
    uint64_t ended_ns;
} member;

void lvni_recipes_rank_give_up(const lvni_recipes_rank *rank, lvn_status status)
{
    if (rank->comm != NULL && status != LVN_OK && status != LVN_ERR_CANCELLED) {
        /* after a stop all ranks end by themselves */
        lvni_dist_comm_abort(rank->comm, lvn_last_error()->message);
    }
}

static void *member_main(void *argument)
{
    member *m = argument;
    const lvn_device before = lvn_device_in_use();
    const bool follower = lvni_log_set_follower(m->rank->rank > 0);
    lvni_tensor_thread_set_ftz();
    m->status = m->work(m->user, m->rank);
    m->ended_ns = lvni_core_now_ns();
    if (m->status != LVN_OK) {
        m->error = *lvn_last_error();
        lvni_recipes_rank_give_up(m->rank, m->status);
    }
    lvn_device_use(before);
    lvni_log_set_follower(follower);
    return NULL;
}

/* The rank whose failure made the others stop: the first that does not report another one. -1: none
 * failed. */
static int first_failed(const member *m, int n)
{
    int first = -1;
    for (int i = 0; i < n; i++) {
        const bool own = m[i].status != LVN_OK && m[i].status != LVN_ERR_PEER;
        if (own && (first < 0 || m[i].ended_ns < m[first].ended_ns)) {
            first = i;
        }
    }
    for (int i = 0; i < n && first < 0; i++) {
        first = m[i].status != LVN_OK ? i : -1;
    }
    return first;
}

static lvn_status report_first(const member *m, int first)
{
    if (first < 0) {
        return LVN_OK;
    }
    lvn_error_adopt(&m[first].error);
    if (first > 0 && m[first].status != LVN_ERR_CANCELLED) {
        lvn_error_frame("rank %d of %d", m[first].rank->rank, m[first].rank->world);
    }
    return m[first].status;
}

lvn_status lvni_recipes_ranks_each(const lvni_recipes_ranks *ranks, lvni_recipes_rank_work work,
                                   void *user)
{
    const int n = ranks->n;
    member *m = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)n, sizeof *m);
    if (m == NULL) {
        return LVN_ERR_MEMORY;
    }
    int started = 1;
    for (int i = 0; i < n; i++) {
        m[i] = (member){.work = work, .user = user, .rank = &ranks->rank[i]};
    }
    for (; started < n; started++) {
        if (lvni_core_thread_start(&m[started].thread, member_main, &m[started]) != 0) {
            lvni_dist_comm_abort(m[0].rank->comm, "its thread could not be started");
            break;
        }
    }
    member_main(m);
    for (int i = 1; i < started; i++) {
        pthread_join(m[i].thread, NULL);
    }
    const lvn_status s = report_first(m, first_failed(m, n));
    lvni_core_free(m);
    return s;
}
