/* Messages on both sides of a link (net_impl.h): the queue of what goes out, where what comes in
 * goes and what it means, and what threads wait for. After an abort nothing is sent except the news
 * of it. */
#include "dist/net/net_impl.h"

#include "core/alloc.h"
#include "core/machine.h"

#include <stdio.h>
#include <string.h>

/* ---- giving up ---- */

lvn_status lvni_net_health_locked(const lvni_net_comm *c)
{
    if (c->aborted) {
        LVN_FAIL(LVN_ERR_PEER, "%-s", c->why);
    }
    return LVN_OK;
}

static void queue_abort(lvni_net_comm *c, int peer)
{
    lvni_net_job *job = lvni_net_job_new(c, peer, LVNI_NET_ABORT, 0, 0, (int64_t)c->first_failed);
    if (job == NULL) {
        return; /* the end of this rank's connections is news, too */
    }
    job->own = lvni_core_strdup(LVNI_TAG_DIST, c->why);
    if (job->own != NULL) {
        job->part[job->n_parts++] = (lvni_net_part){job->own, strlen(job->own)};
        job->uncounted = strlen(job->own);
    }
    lvni_net_job_send(c, job);
}

void lvni_net_abort_locked(lvni_net_comm *c, int first, const char *why)
{
    if (c->aborted) {
        return;
    }
    c->aborted = true;
    c->aborted_ns = lvni_core_now_ns();
    c->first_failed = first;
    snprintf(c->why, sizeof c->why, "%s", why);
    for (int rank = 0; rank < c->base.world; rank++) {
        if (rank != c->base.rank && !c->peer[rank].deaf) {
            queue_abort(c, rank);
        }
    }
    pthread_cond_broadcast(&c->changed);
    c->link->wake(c);
}

/* ---- waiting ---- */

static bool someone_is_missing(lvni_net_comm *c, const lvni_dist_wait *wait)
{
    for (int rank = 0; rank < c->base.world; rank++) {
        const lvni_net_peer *p = &c->peer[rank];
        if (rank == c->base.rank || !p->gone || !wait->needs(wait->user, rank)) {
            continue;
        }
        char why[LVNI_NET_WHY];
        const int number = lvni_dist_comm_number(&c->base, rank);
        if (p->bye) {
            snprintf(why, sizeof why, "rank %d left while rank %d still waited for it", number,
                     lvni_dist_comm_number(&c->base, c->base.rank));
        } else if (p->elsewhere) {
            snprintf(
                why, sizeof why,
                "the connection to rank %d (process %d of another host) ended: it died, or the "
                "network failed",
                number, (int)p->pid);
        } else {
            snprintf(why, sizeof why, "rank %d died (process %d)", number, (int)p->pid);
        }
        lvni_net_abort_locked(c, -1, why);
        return true;
    }
    return false;
}

lvn_status lvni_net_wait_locked(lvni_net_comm *c, const lvni_dist_wait *wait)
{
    while (!wait->over(wait->user)) {
        LVN_TRY(lvni_net_health_locked(c));
        if (!someone_is_missing(c, wait)) {
            pthread_cond_wait(&c->changed, &c->lock);
        }
    }
    return LVN_OK;
}

void lvni_net_flush_locked(lvni_net_comm *c, const int64_t *left)
{
    while (*left > 0) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
}

/* ---- sending ---- */

lvni_net_job *lvni_net_job_new(lvni_net_comm *c, int peer, lvni_net_kind kind, uint32_t id,
                               uint64_t seq, int64_t place)
{
    lvni_net_job *job = c->spare;
    if (job != NULL) {
        c->spare = job->next;
    } else {
        job = lvni_core_alloc(LVNI_TAG_DIST, sizeof *job);
    }
    if (job != NULL) {
        job->next = NULL;
        job->peer = peer;
        job->header = (lvni_net_header){(uint32_t)kind, id, seq, place, 0};
        job->n_parts = 0;
        job->uncounted = 0;
        job->own = NULL;
        job->left = NULL;
    }
    return job;
}

static bool is_news(const lvni_net_job *job)
{
    return job->header.kind == LVNI_NET_ABORT || job->header.kind == LVNI_NET_BYE;
}

static void recycle(lvni_net_comm *c, lvni_net_job *job)
{
    lvni_core_free(job->own);
    job->own = NULL;
    job->next = c->spare;
    c->spare = job;
}

void lvni_net_job_send(lvni_net_comm *c, lvni_net_job *job)
{
    if (c->aborted && !is_news(job)) {
        recycle(c, job);
        return;
    }
    for (int i = 0; i < job->n_parts; i++) {
        job->header.bytes += job->part[i].bytes;
    }
    lvni_dist_comm_add_bytes(&c->base, job->header.bytes - job->uncounted, 0);
    if (job->left != NULL) {
        ++*job->left;
    }
    if (c->last != NULL) {
        c->last->next = job;
    } else {
        c->first = job;
    }
    c->last = job;
    c->link->wake(c);
}

lvni_net_job *lvni_net_job_next(lvni_net_comm *c)
{
    lvni_net_job *job = c->first;
    if (job != NULL) {
        c->first = job->next;
        c->last = c->first == NULL ? NULL : c->last;
    }
    return job;
}

void lvni_net_job_over(lvni_net_comm *c, lvni_net_job *job)
{
    if (job->left != NULL) {
        --*job->left;
    }
    recycle(c, job);
    pthread_cond_broadcast(&c->changed);
}

bool lvni_net_job_wanted(const lvni_net_comm *c, const lvni_net_job *job)
{
    return !c->aborted || is_news(job);
}

bool lvni_net_is_late(const lvni_net_comm *c)
{
    const uint64_t patience_ns = (uint64_t)LVNI_NET_PATIENCE_S * 1000000000,
                   now = lvni_core_now_ns();
    return (c->quit && now - c->quit_ns > patience_ns) ||
           (c->aborted && now - c->aborted_ns > patience_ns);
}

void lvni_net_bye_locked(lvni_net_comm *c)
{
    for (int rank = 0; rank < c->base.world; rank++) {
        lvni_net_job *job = rank == c->base.rank || c->peer[rank].deaf
                                ? NULL
                                : lvni_net_job_new(c, rank, LVNI_NET_BYE, 0, 0, c->claimed);
        if (job != NULL) {
            lvni_net_job_send(c, job);
        }
    }
}

/* ---- receiving ---- */

static bool place(lvni_net_comm *c, int rank, lvni_net_incoming *in)
{
    const bool reduction = in->header.kind >= LVNI_NET_BEGIN && in->header.kind <= LVNI_NET_NOTE;
    in->n_parts = 0;
    in->mail = NULL;
    return reduction && lvni_net_reduction_is(c, in->header.id)
               ? lvni_net_reduction_place(c, rank, in)
               : lvni_net_place_mail(in, in->header.bytes);
}

bool lvni_net_place(lvni_net_comm *c, int rank, lvni_net_incoming *in)
{
    const bool placed = place(c, rank, in);
    if (!placed) {
        char why[128];
        snprintf(why, sizeof why, "rank %d cannot take the %llu bytes that rank %d sends",
                 c->base.rank, (unsigned long long)in->header.bytes, rank);
        lvni_net_abort_locked(c, -1, why);
    }
    return placed;
}

bool lvni_net_place_mail(lvni_net_incoming *in, uint64_t bytes)
{
    lvni_net_mail *mail = LVNI_NEW(LVNI_TAG_DIST, lvni_net_mail);
    void *data = mail != NULL ? lvni_core_alloc(LVNI_TAG_DIST, bytes + 1) : NULL;
    if (data == NULL) {
        lvni_core_free(mail);
        return false;
    }
    mail->header = in->header;
    mail->data = data;
    ((char *)data)[bytes] = '\0';
    in->mail = mail;
    in->n_parts = 1;
    in->part[0] = (lvni_net_part){data, bytes};
    return true;
}

void lvni_net_drop(lvni_net_incoming *in)
{
    if (in->mail != NULL) {
        lvni_core_free(in->mail->data);
        lvni_core_free(in->mail);
        in->mail = NULL;
    }
}

void lvni_net_came(lvni_net_comm *c, int rank, lvni_net_incoming *in)
{
    lvni_net_peer *p = &c->peer[rank];
    const lvni_net_header *h = &in->header;
    if (in->mail == NULL) {
        lvni_net_reduction_came(c, rank, h);
    } else if (h->kind == LVNI_NET_CALL || h->kind == LVNI_NET_GROUP) {
        lvni_net_mail **end = &p->mail;
        while (*end != NULL) {
            end = &(*end)->next;
        }
        *end = in->mail;
        in->mail = NULL;
    } else if (h->kind == LVNI_NET_ABORT) {
        /* sent on: a rank that learns of it and leaves must not be the first news at a third one */
        lvni_net_abort_locked(c, (int)h->place, in->mail->data);
    } else if (h->kind == LVNI_NET_BYE) {
        p->bye = true;
        p->claimed = h->place != 0;
    } /* else for a reduction that this rank has destroyed */
    lvni_net_drop(in);
    pthread_cond_broadcast(&c->changed);
}

void lvni_net_peer_gone(lvni_net_comm *c, int rank)
{
    c->peer[rank].gone = true;
    pthread_cond_broadcast(&c->changed);
    c->link->wake(c);
}
