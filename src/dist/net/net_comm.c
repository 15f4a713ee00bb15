/* The communicator of ranks that exchange messages (net_impl.h): what any thread may call, its
 * beginning and its end. How ranks find each other is the link's. */
#include "dist/net/net_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/thread.h"

#include <string.h>

/* ---- what any thread may call ---- */

void lvni_net_abort(lvni_dist_comm *comm, int first, const char *why)
{
    lvni_net_comm *c = (lvni_net_comm *)comm;
    pthread_mutex_lock(&c->lock);
    lvni_net_abort_locked(c, first, why);
    pthread_mutex_unlock(&c->lock);
}

int lvni_net_first_failed(const lvni_dist_comm *comm)
{
    lvni_net_comm *c = (lvni_net_comm *)(uintptr_t)comm;
    pthread_mutex_lock(&c->lock);
    const int first = c->aborted ? c->first_failed : -1;
    pthread_mutex_unlock(&c->lock);
    return first;
}

lvn_status lvni_net_health(lvni_dist_comm *comm)
{
    lvni_net_comm *c = (lvni_net_comm *)comm;
    pthread_mutex_lock(&c->lock);
    const lvn_status s = lvni_net_health_locked(c);
    pthread_mutex_unlock(&c->lock);
    return s;
}

lvn_status lvni_net_wait(lvni_dist_comm *comm, const lvni_dist_wait *wait)
{
    lvni_net_comm *c = (lvni_net_comm *)comm;
    pthread_mutex_lock(&c->lock);
    const lvn_status s = lvni_net_wait_locked(c, wait);
    pthread_mutex_unlock(&c->lock);
    return s;
}

void lvni_net_ring(lvni_dist_comm *comm)
{
    lvni_net_comm *c = (lvni_net_comm *)comm;
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* The lowest rank that is left gets it: ranks agree on who that is without a message. */
bool lvni_net_claim(lvni_dist_comm *comm, bool cut_off)
{
    lvni_net_comm *c = (lvni_net_comm *)comm;
    pthread_mutex_lock(&c->lock);
    bool mine = !c->claimed;
    for (int rank = 0; rank < comm->rank; rank++) {
        mine = mine && (c->peer[rank].gone || (cut_off && c->peer[rank].elsewhere) ||
                        (c->aborted && lvni_dist_comm_number(comm, rank) == c->first_failed));
    }
    for (int rank = 0; rank < comm->world; rank++) {
        mine = mine && !c->peer[rank].claimed; /* it has left since */
    }
    c->claimed = c->claimed || mine;
    pthread_mutex_unlock(&c->lock);
    return mine;
}

/* ---- the end ---- */

void lvni_net_destroy(lvni_dist_comm *comm)
{
    lvni_net_comm *c = (lvni_net_comm *)comm;
    if (c->wire != NULL) {
        pthread_mutex_lock(&c->lock);
        lvni_net_bye_locked(c);
        c->quit = true;
        c->quit_ns = lvni_core_now_ns();
        c->link->wake(c);
        pthread_mutex_unlock(&c->lock);
        c->link->stop(c);
        c->link->close(c);
    }
    for (int rank = 0; c->peer != NULL && rank < comm->world; rank++) {
        for (lvni_net_mail *m = c->peer[rank].mail, *next; m != NULL; m = next) {
            next = m->next;
            lvni_core_free(m->data);
            lvni_core_free(m);
        }
    }
    for (int list = 0; list < 2; list++) {
        for (lvni_net_job *job = list == 0 ? c->spare : c->first, *next; job != NULL; job = next) {
            next = job->next;
            lvni_core_free(job->own);
            lvni_core_free(job);
        }
    }
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    lvni_dist_sum_plan_free(&c->plan);
    lvni_core_free(c->source);
    lvni_core_free(c->peer);
    lvni_core_free(c);
}

/* ---- the beginning ---- */

static lvn_status make_private(const lvni_dist_comm_options *o,
                               const lvni_dist_transport *transport, const lvni_net_link *link,
                               lvni_net_comm **out)
{
    lvni_net_comm *c = LVNI_NEW(LVNI_TAG_DIST, lvni_net_comm);
    *out = c;
    if (c == NULL) {
        return LVN_ERR_MEMORY;
    }
    c->base = (lvni_dist_comm){.ops = transport,
                               .rank = o->rank,
                               .world = o->world,
                               .check = o->check,
                               .number = o->number};
    c->link = link;
    c->first_failed = -1;
    pthread_mutex_init(&c->lock, NULL);
    lvni_core_cond_init(&c->changed);
    const size_t world = (size_t)o->world;
    c->peer = lvni_core_calloc(LVNI_TAG_DIST, world, sizeof *c->peer);
    c->source = lvni_core_calloc(LVNI_TAG_DIST, world, sizeof *c->source);
    lvni_plan_tree_node *leaf = lvni_core_calloc(LVNI_TAG_DIST, world, sizeof *leaf);
    lvn_status s;
    LVNI_TRY_DONE(s, c->peer == NULL || c->source == NULL || leaf == NULL
                         ? LVN_ERR_MEMORY
                         : lvni_dist_sum_plan_init(&c->plan, o->world));
    for (int r = 0; r < o->world; r++) {
        leaf[r] = (lvni_plan_tree_node){r, r + 1, r};
    }
    lvni_dist_sum_plan_make(&c->plan, o->world, leaf, o->world);
done:
    lvni_core_free(leaf);
    return s;
}

static int32_t status_of(const void *cards, size_t bytes, int rank)
{
    int32_t status;
    memcpy(&status, (const char *)cards + (size_t)rank * bytes, sizeof status);
    return status;
}

lvn_status lvni_net_exchange_cards(const lvni_dist_comm_options *o, const void *mine, size_t bytes,
                                   void *all)
{
    const lvn_status own = (lvn_status)status_of(mine, bytes, 0);
    LVN_TRY(o->exchange(o->user, mine, bytes, all));
    LVN_TRY(own);
    for (int rank = 0; rank < o->world; rank++) {
        const lvn_status theirs = (lvn_status)status_of(all, bytes, rank);
        if (theirs != LVN_OK) {
            LVN_FAIL(theirs, "rank %d cannot connect to the others: %s", rank,
                     lvn_status_text(theirs));
        }
    }
    return LVN_OK;
}

/* A card begins with its status. */
lvn_status lvni_net_exchange_outcome(const lvni_dist_comm_options *o, void *mine, size_t bytes,
                                     void *all, lvn_status outcome)
{
    const int32_t status = (int32_t)outcome;
    if (outcome != LVN_OK && o->fail != NULL) {
        o->fail(o->user); /* the others would wait for this rank, and would be late themselves */
        return outcome;
    }
    memcpy(mine, &status, sizeof status);
    return lvni_net_exchange_cards(o, mine, bytes, all);
}

lvn_status lvni_net_comm_create(const lvni_dist_comm_options *o,
                                const lvni_dist_transport *transport, const lvni_net_link *link,
                                lvni_dist_comm **out)
{
    *out = NULL;
    LVN_ARG(o->world >= 1 && o->world <= LVNI_NET_MAX_RANKS && o->rank >= 0 && o->rank < o->world &&
                o->exchange != NULL && o->address != NULL,
            "rank %d of %d, with%s an exchange; at most %d ranks", o->rank, o->world,
            o->exchange != NULL ? "" : "out", LVNI_NET_MAX_RANKS);
    lvni_net_comm *c;
    const lvn_status made = make_private(o, transport, link, &c), s = link->connect(c, o, made);
    if (s != LVN_OK && c != NULL) {
        const lvn_error error = *lvn_last_error();
        lvni_dist_comm_destroy(&c->base);
        lvn_error_adopt(&error);
        return s;
    }
    *out = c != NULL ? &c->base : NULL;
    return s;
}
