/* The two threads of a rank (net_impl.h), and what others wait for. The sender takes jobs in their
 * order and writes each whole; the receiver reads from all ranks whatever comes, straight to where
 * it belongs. After an abort the sender drops what is queued but the news of it. */
#include "dist/net/net_impl.h"

#include "core/alloc.h"
#include "core/machine.h"
#include "core/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LOOK_MS = 50, QUIT_S = 2, READ_BYTES = 1 << 20 };

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
    pthread_cond_broadcast(&c->queued);
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
        if (p->bye) {
            snprintf(why, sizeof why, "rank %d left while rank %d still waited for it", rank,
                     c->base.rank);
        } else if (p->elsewhere) {
            snprintf(
                why, sizeof why,
                "the connection to rank %d (process %d of another host) ended: it died, or the "
                "network failed",
                rank, (int)p->pid);
        } else {
            snprintf(why, sizeof why, "rank %d died (process %d)", rank, (int)p->pid);
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

/* With the lock held: the job is over, sent or not. */
static void job_over(lvni_net_comm *c, lvni_net_job *job)
{
    lvni_core_free(job->own);
    job->own = NULL;
    job->next = c->spare;
    c->spare = job;
}

void lvni_net_job_send(lvni_net_comm *c, lvni_net_job *job)
{
    if (c->aborted && !is_news(job)) {
        job_over(c, job);
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
    pthread_cond_signal(&c->queued);
}

/* What has begun to go out is finished, also after an abort: its reason follows on the same
 * connection. A peer that is stopped gets QUIT_S. */
static bool may_go_on(lvni_net_comm *c, const lvni_net_job *job, bool begun)
{
    const uint64_t patience_ns = (uint64_t)QUIT_S * 1000000000, now = lvni_core_now_ns();
    pthread_mutex_lock(&c->lock);
    const bool late = (c->quit && now - c->quit_ns > patience_ns) ||
                      (c->aborted && now - c->aborted_ns > patience_ns);
    const bool drop = late || (c->aborted && !begun && !is_news(job));
    pthread_mutex_unlock(&c->lock);
    return !drop;
}

typedef enum sending { SENT, DROPPED, BROKEN } sending; /* broken: half of it went out */

static sending write_all(lvni_net_comm *c, const lvni_net_job *job)
{
    struct iovec v[LVNI_NET_PARTS + 1];
    lvni_net_header header = job->header;
    int n = 1, at = 0;
    bool begun = false;
    v[0] = (struct iovec){&header, sizeof header};
    for (int i = 0; i < job->n_parts; i++) {
        if (job->part[i].bytes > 0) {
            v[n++] = (struct iovec){job->part[i].p, job->part[i].bytes};
        }
    }
    const int fd = c->peer[job->peer].fd;
    while (at < n) {
        const struct msghdr m = {.msg_iov = v + at, .msg_iovlen = (size_t)(n - at)};
        const ssize_t sent = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            (void)poll(&p, 1, LOOK_MS);
            if (!may_go_on(c, job, begun)) {
                return begun ? BROKEN : DROPPED;
            }
        } else if (sent < 0 && errno != EINTR) {
            return BROKEN;
        }
        begun = begun || sent > 0;
        for (size_t left = sent > 0 ? (size_t)sent : 0; left > 0;) {
            const size_t step = left < v[at].iov_len ? left : v[at].iov_len;
            v[at].iov_base = (char *)v[at].iov_base + step;
            v[at].iov_len -= step;
            left -= step;
            at += v[at].iov_len == 0 ? 1 : 0;
        }
    }
    return SENT;
}

/* With the lock held, which is given up while it writes. */
static void send_job(lvni_net_comm *c, lvni_net_job *job)
{
    lvni_net_peer *p = &c->peer[job->peer];
    if (p->fd >= 0 && !p->deaf && (!c->aborted || is_news(job))) {
        pthread_mutex_unlock(&c->lock);
        const sending how = write_all(c, job);
        pthread_mutex_lock(&c->lock);
        if (how == BROKEN) {
            shutdown(p->fd, SHUT_WR); /* nothing more can follow */
            p->deaf = true;           /* what it has sent may still lie here */
        }
    }
    if (job->left != NULL) {
        --*job->left;
    }
    job_over(c, job);
    pthread_cond_broadcast(&c->changed);
}

static void *sender_main(void *user)
{
    lvni_net_comm *c = user;
    lvni_core_thread_name("send", c->base.rank);
    pthread_mutex_lock(&c->lock);
    while (c->first != NULL || !c->quit) {
        lvni_net_job *job = c->first;
        if (job == NULL) {
            pthread_cond_wait(&c->queued, &c->lock);
            continue;
        }
        c->first = job->next;
        c->last = c->first == NULL ? NULL : c->last;
        send_job(c, job);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- receiving ---- */

/* The header is there: where does the rest go? false: no memory. */
static bool place_payload(lvni_net_comm *c, int rank, lvni_net_peer *p)
{
    p->n_parts = p->at_part = 0;
    p->at = 0;
    const bool reduction = p->header.kind >= LVNI_NET_BEGIN && p->header.kind <= LVNI_NET_NOTE;
    if (reduction && lvni_net_reduction_is(c, p->header.id)) {
        return lvni_net_reduction_place(c, rank, p);
    }
    return lvni_net_place_mail(p, p->header.bytes);
}

bool lvni_net_place_mail(lvni_net_peer *p, uint64_t bytes)
{
    lvni_net_mail *mail = LVNI_NEW(LVNI_TAG_DIST, lvni_net_mail);
    void *data = mail != NULL ? lvni_core_alloc(LVNI_TAG_DIST, bytes + 1) : NULL;
    if (data == NULL) {
        lvni_core_free(mail);
        return false;
    }
    mail->header = p->header;
    mail->data = data;
    ((char *)data)[bytes] = '\0';
    p->coming = mail;
    p->n_parts = 1;
    p->at_part = 0;
    p->at = 0;
    p->part[0] = (lvni_net_part){data, bytes};
    return true;
}

static void message_came(lvni_net_comm *c, int rank, lvni_net_peer *p)
{
    lvni_net_mail *mail = p->coming;
    p->coming = NULL;
    p->got = 0;
    if (mail == NULL) {
        lvni_net_reduction_came(c, rank, &p->header);
    } else if (p->header.kind == LVNI_NET_CALL || p->header.kind == LVNI_NET_GROUP) {
        lvni_net_mail **end = &p->mail;
        while (*end != NULL) {
            end = &(*end)->next;
        }
        *end = mail;
        mail = NULL;
    } else if (p->header.kind == LVNI_NET_ABORT) {
        /* sent on: a rank that learns of it and leaves must not be the first news at a third one */
        lvni_net_abort_locked(c, (int)p->header.place, mail->data);
    } else if (p->header.kind == LVNI_NET_BYE) {
        p->bye = true;
        p->claimed = p->header.place != 0;
    } /* else for a reduction that this rank has destroyed */
    if (mail != NULL) {
        lvni_core_free(mail->data);
        lvni_core_free(mail);
    }
    pthread_cond_broadcast(&c->changed);
}

static void peer_gone(lvni_net_comm *c, lvni_net_peer *p)
{
    p->gone = true;
    if (p->coming != NULL) {
        lvni_core_free(p->coming->data);
        lvni_core_free(p->coming);
        p->coming = NULL;
    }
    pthread_cond_broadcast(&c->changed);
    pthread_cond_broadcast(&c->queued);
}

/* The message is handled as soon as its last byte is here: nothing else may ever come. */
static void advance(lvni_net_comm *c, int rank, lvni_net_peer *p)
{
    while (p->at_part < p->n_parts && p->at == p->part[p->at_part].bytes) {
        p->at_part++;
        p->at = 0;
    }
    if (p->at_part == p->n_parts) {
        message_came(c, rank, p);
    }
}

static void refuse(lvni_net_comm *c, int rank, lvni_net_peer *p)
{
    char why[128];
    snprintf(why, sizeof why, "rank %d cannot take the %llu bytes that rank %d sends", c->base.rank,
             (unsigned long long)p->header.bytes, rank);
    lvni_net_abort_locked(c, -1, why);
    shutdown(p->fd, SHUT_RD);
    peer_gone(c, p);
}

/* Reads what is there, one piece; false: nothing right now, or the connection has ended. */
static bool read_some(lvni_net_comm *c, int rank, lvni_net_peer *p)
{
    const bool head = p->got < sizeof p->header;
    const lvni_net_part to =
        head ? (lvni_net_part){(char *)&p->header + p->got, sizeof p->header - p->got}
             : (lvni_net_part){(char *)p->part[p->at_part].p + p->at,
                               p->part[p->at_part].bytes - p->at};
    const ssize_t n =
        recv(p->fd, to.p, to.bytes < READ_BYTES ? to.bytes : READ_BYTES, MSG_DONTWAIT);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
            peer_gone(c, p);
        }
        return false;
    }
    if (!head) {
        p->at += (size_t)n;
    } else {
        p->got += (size_t)n;
        if (p->got < sizeof p->header) {
            return true;
        }
        if (!place_payload(c, rank, p)) {
            refuse(c, rank, p);
            return false;
        }
    }
    advance(c, rank, p);
    return true;
}

/* The others that can still send something. */
static int list_peers(lvni_net_comm *c, struct pollfd *fds, int *ranks)
{
    int n = 0;
    fds[n] = (struct pollfd){.fd = c->wake[0], .events = POLLIN};
    ranks[n++] = -1;
    for (int rank = 0; rank < c->base.world; rank++) {
        if (rank != c->base.rank && !c->peer[rank].gone) {
            fds[n] = (struct pollfd){.fd = c->peer[rank].fd, .events = POLLIN};
            ranks[n++] = rank;
        }
    }
    return n;
}

static void *receiver_main(void *user)
{
    lvni_net_comm *c = user;
    struct pollfd fds[LVNI_NET_MAX_RANKS + 1];
    int ranks[LVNI_NET_MAX_RANKS + 1];
    lvni_core_thread_name("recv", c->base.rank);
    pthread_mutex_lock(&c->lock);
    while (!c->quit_receiving) {
        const int n = list_peers(c, fds, ranks);
        pthread_mutex_unlock(&c->lock);
        const int ready = poll(fds, (nfds_t)n, -1);
        pthread_mutex_lock(&c->lock);
        for (int i = 1; i < n && ready > 0; i++) {
            lvni_net_peer *p = &c->peer[ranks[i]];
            /* a few pieces of each in turn: others wait for the lock */
            for (int k = 0; k < 8 && fds[i].revents != 0 && !p->gone; k++) {
                if (!read_some(c, ranks[i], p)) {
                    break;
                }
            }
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- the threads ---- */

lvn_status lvni_net_start(lvni_net_comm *c)
{
    int failed = lvni_core_thread_start(&c->sender, sender_main, c);
    c->has_sender = failed == 0;
    if (failed == 0) {
        failed = lvni_core_thread_start(&c->receiver, receiver_main, c);
        c->has_receiver = failed == 0;
    }
    if (failed != 0) {
        LVN_FAIL(LVN_ERR_MEMORY, "cannot start the threads that send and receive: %s",
                 strerror(failed));
    }
    return LVN_OK;
}

void lvni_net_stop(lvni_net_comm *c)
{
    pthread_mutex_lock(&c->lock);
    for (int rank = 0; c->has_receiver && rank < c->base.world; rank++) {
        lvni_net_job *job = rank == c->base.rank || c->peer[rank].deaf
                                ? NULL
                                : lvni_net_job_new(c, rank, LVNI_NET_BYE, 0, 0, c->claimed);
        if (job != NULL) {
            lvni_net_job_send(c, job);
        }
    }
    c->quit = true;
    c->quit_ns = lvni_core_now_ns();
    pthread_cond_broadcast(&c->queued);
    pthread_mutex_unlock(&c->lock);
    if (c->has_sender) {
        pthread_join(c->sender, NULL);
    }
    if (c->has_receiver) {
        pthread_mutex_lock(&c->lock);
        c->quit_receiving = true; /* only now: others may wait to send until here */
        pthread_mutex_unlock(&c->lock);
        (void)!write(c->wake[1], "", 1);
        pthread_join(c->receiver, NULL);
    }
}
