/* The two threads of a link over TCP (net_stream.h). The sender takes jobs in their order and
 * writes each whole; the receiver reads from all ranks whatever comes, straight to where it
 * belongs. */
#include "dist/net/net_stream.h"

#include "core/thread.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LOOK_MS = 50, READ_BYTES = 1 << 20 };

static lvni_net_stream *stream_of(const lvni_net_comm *c, int rank)
{
    return &lvni_net_streams_of(c)->stream[rank];
}

void lvni_net_streams_wake(lvni_net_comm *c)
{
    pthread_cond_broadcast(&lvni_net_streams_of(c)->queued);
}

/* ---- sending ---- */

/* What has begun to go out is finished, also after an abort: its reason follows on the same
 * connection. A peer that is stopped gets LVNI_NET_PATIENCE_S. */
static bool may_go_on(lvni_net_comm *c, const lvni_net_job *job, bool begun)
{
    pthread_mutex_lock(&c->lock);
    const bool goes_on = !lvni_net_is_late(c) && (begun || lvni_net_job_wanted(c, job));
    pthread_mutex_unlock(&c->lock);
    return goes_on;
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
    const int fd = stream_of(c, job->peer)->fd;
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
    if (!p->deaf && lvni_net_job_wanted(c, job)) {
        pthread_mutex_unlock(&c->lock);
        const sending how = write_all(c, job);
        pthread_mutex_lock(&c->lock);
        if (how == BROKEN) {
            shutdown(stream_of(c, job->peer)->fd, SHUT_WR); /* nothing more can follow */
            p->deaf = true; /* what it has sent may still lie here */
        }
    }
    lvni_net_job_over(c, job);
}

static void *sender_main(void *user)
{
    lvni_net_comm *c = user;
    lvni_net_streams *w = lvni_net_streams_of(c);
    lvni_core_thread_name("send", c->base.rank);
    pthread_mutex_lock(&c->lock);
    for (;;) {
        lvni_net_job *job = lvni_net_job_next(c);
        if (job != NULL) {
            send_job(c, job);
        } else if (c->quit) {
            break;
        } else {
            pthread_cond_wait(&w->queued, &c->lock);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- receiving ---- */

/* The message is handled as soon as its last byte is here: nothing else may ever come. */
static void advance(lvni_net_comm *c, int rank, lvni_net_stream *s)
{
    while (s->at_part < s->in.n_parts && s->at == s->in.part[s->at_part].bytes) {
        s->at_part++;
        s->at = 0;
    }
    if (s->at_part == s->in.n_parts) {
        s->got = 0;
        lvni_net_came(c, rank, &s->in);
    }
}

static void ended(lvni_net_comm *c, int rank)
{
    lvni_net_drop(&stream_of(c, rank)->in);
    lvni_net_peer_gone(c, rank);
}

/* Reads what is there, one piece; false: nothing right now, or the connection has ended. */
static bool read_some(lvni_net_comm *c, int rank, lvni_net_stream *s)
{
    const bool head = s->got < sizeof s->in.header;
    const lvni_net_part to =
        head ? (lvni_net_part){(char *)&s->in.header + s->got, sizeof s->in.header - s->got}
             : (lvni_net_part){(char *)s->in.part[s->at_part].p + s->at,
                               s->in.part[s->at_part].bytes - s->at};
    const ssize_t n =
        recv(s->fd, to.p, to.bytes < READ_BYTES ? to.bytes : READ_BYTES, MSG_DONTWAIT);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
            ended(c, rank);
        }
        return false;
    }
    if (!head) {
        s->at += (size_t)n;
    } else {
        s->got += (size_t)n;
        if (s->got < sizeof s->in.header) {
            return true;
        }
        s->at_part = 0;
        s->at = 0;
        if (!lvni_net_place(c, rank, &s->in)) {
            shutdown(s->fd, SHUT_RD);
            ended(c, rank);
            return false;
        }
    }
    advance(c, rank, s);
    return true;
}

/* The rest of what is coming in for the reduction goes nowhere. */
void lvni_net_streams_leave(lvni_net_comm *c, uint32_t reduction)
{
    for (int rank = 0; rank < c->base.world; rank++) {
        lvni_net_stream *s = stream_of(c, rank);
        if (s->got < sizeof s->in.header || s->in.mail != NULL || s->in.n_parts == 0 ||
            s->in.header.id != reduction) {
            continue;
        }
        uint64_t left = 0;
        for (int i = s->at_part; i < s->in.n_parts; i++) {
            left += s->in.part[i].bytes;
        }
        left -= s->at;
        s->at_part = 0;
        s->at = 0;
        if (!lvni_net_place_mail(&s->in, left)) {
            lvni_net_abort_locked(c, -1, "a rank has no memory for a message");
            c->peer[rank].gone = true;
        }
    }
}

/* The others that can still send something. */
static int list_peers(lvni_net_comm *c, struct pollfd *fds, int *ranks)
{
    const lvni_net_streams *w = lvni_net_streams_of(c);
    int n = 0;
    fds[n] = (struct pollfd){.fd = w->wake[0], .events = POLLIN};
    ranks[n++] = -1;
    for (int rank = 0; rank < c->base.world; rank++) {
        if (rank != c->base.rank && !c->peer[rank].gone) {
            fds[n] = (struct pollfd){.fd = w->stream[rank].fd, .events = POLLIN};
            ranks[n++] = rank;
        }
    }
    return n;
}

static void *receiver_main(void *user)
{
    lvni_net_comm *c = user;
    const lvni_net_streams *w = lvni_net_streams_of(c);
    struct pollfd fds[LVNI_NET_MAX_RANKS + 1];
    int ranks[LVNI_NET_MAX_RANKS + 1];
    lvni_core_thread_name("recv", c->base.rank);
    pthread_mutex_lock(&c->lock);
    while (!w->quit_receiving) {
        const int n = list_peers(c, fds, ranks);
        pthread_mutex_unlock(&c->lock);
        const int ready = poll(fds, (nfds_t)n, -1);
        pthread_mutex_lock(&c->lock);
        for (int i = 1; i < n && ready > 0; i++) {
            const int rank = ranks[i];
            /* a few pieces of each in turn: others wait for the lock */
            for (int k = 0; k < 8 && fds[i].revents != 0 && !c->peer[rank].gone; k++) {
                if (!read_some(c, rank, stream_of(c, rank))) {
                    break;
                }
            }
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- the threads ---- */

lvn_status lvni_net_streams_start(lvni_net_comm *c)
{
    lvni_net_streams *w = lvni_net_streams_of(c);
    int failed = lvni_core_thread_start(&w->sender, sender_main, c);
    w->has_sender = failed == 0;
    if (failed == 0) {
        failed = lvni_core_thread_start(&w->receiver, receiver_main, c);
        w->has_receiver = failed == 0;
    }
    if (failed != 0) {
        LVN_FAIL(LVN_ERR_MEMORY, "cannot start the threads that send and receive: %s",
                 strerror(failed));
    }
    return LVN_OK;
}

void lvni_net_streams_stop(lvni_net_comm *c)
{
    lvni_net_streams *w = lvni_net_streams_of(c);
    if (w->has_sender) {
        pthread_join(w->sender, NULL);
    }
    if (w->has_receiver) {
        pthread_mutex_lock(&c->lock);
        w->quit_receiving = true; /* only now: others may wait to send until here */
        pthread_mutex_unlock(&c->lock);
        (void)!write(w->wake[1], "", 1);
        pthread_join(w->receiver, NULL);
    }
}
