/* The thread of a rank's connection: sends what other threads put into `out`, receives answers,
 * sends and checks heartbeats, and receives the cause when the run is over. Started by
 * lvni_control_connect. */
#include "control_impl.h"

#include "core/alloc.h"
#include "core/machine.h"
#include "core/str.h"
#include "core/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

uint64_t lvni_control_wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

void lvni_control_wake(const lvni_control *control)
{
    const uint64_t one = 1;
    while (write(control->wake_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

void lvni_control_set_cause(lvni_control *c, const lvni_control_cause *cause)
{
    pthread_mutex_lock(&c->lock);
    const bool first = (atomic_load(&c->attention) & LVNI_ATTENTION_OVER) == 0 && !c->left;
    if (first) {
        c->cause = *cause;
        atomic_fetch_or(&c->attention, LVNI_ATTENTION_OVER);
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    if (first && c->on_abort != NULL) {
        c->on_abort(c->user, cause);
    }
}

/* The store runs in a rank's process: its end is the end of that rank. */
static void lose_store_as(lvni_control *c, bool ended, const char *why)
{
    const int64_t step = atomic_load(&c->step);
    lvni_control_cause cause = {.kind = LVNI_CAUSE_SIGNAL,
                                .rank = c->store_rank,
                                .step = step < 0 ? -1 : step,
                                .ended = ended,
                                .time_ns = lvni_control_wall_ns()};
    snprintf(cause.host, sizeof cause.host, "%s", c->store_host);
    snprintf(cause.message, sizeof cause.message, "the store in its process is lost: %s", why);
    c->broken = true;
    lvni_control_set_cause(c, &cause);
}

static void lose_store(lvni_control *c, const char *why)
{
    lose_store_as(c, false, why);
}

static void lose_connection(lvni_control *c, int error)
{
    const bool ended = error == 0 || error == ECONNRESET || error == EPIPE;
    lose_store_as(c, ended,
                  ended ? "its connection ended unexpectedly: it was killed or crashed"
                        : strerror(error));
}

/* ---- Frames in ---- */

static void on_reply(lvni_control *c, const lvni_control_frame *frame)
{
    lvni_control_scan scan = lvni_control_scan_of(frame);
    const uint32_t id = lvni_control_scan_u32(&scan);
    const lvn_status status = lvni_control_scan_status(&scan);
    const int number = status == LVN_OK ? 0 : (int)lvni_control_scan_u32(&scan);
    const size_t n = scan.left;
    char *data = lvni_core_alloc(LVNI_TAG_CONTROL, n + 1);
    if (data != NULL) {
        memcpy(data, scan.at, n);
        data[n] = '\0';
    }
    pthread_mutex_lock(&c->lock);
    lvni_control_request *request = c->requests;
    while (request != NULL && request->id != id) {
        request = request->next;
    }
    if (request != NULL) { /* else its caller has timed out */
        request->status = data == NULL ? LVN_ERR_MEMORY : status;
        request->number = data == NULL ? 0 : number;
        request->data = data;
        request->n = data == NULL ? 0 : n;
        request->done = true;
        c->left = c->left || request->bye;
        data = NULL;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    lvni_core_free(data);
}

/* The order matters: first the mark, then the step. A thread that passes a boundary without seeing
 * the mark has stored its step before (lvni_control_boundary). */
static void on_stop_ask(lvni_control *c, const lvni_control_frame *frame)
{
    lvni_control_scan scan = lvni_control_scan_of(frame);
    const int reason = (int)lvni_control_scan_u32(&scan);
    atomic_fetch_or(&c->attention, LVNI_ATTENTION_STOP);
    const int64_t step = atomic_load(&c->step);
    pthread_mutex_lock(&c->lock);
    c->stop_reason = reason;
    const size_t at = lvni_control_frame_begin(&c->out, LVNI_FRAME_STOP_STEP);
    lvni_control_put_u64(&c->out, (uint64_t)step);
    lvni_control_frame_end(&c->out, at);
    pthread_mutex_unlock(&c->lock);
}

static void on_stop_at(lvni_control *c, const lvni_control_frame *frame)
{
    lvni_control_scan scan = lvni_control_scan_of(frame);
    const int reason = (int)lvni_control_scan_u32(&scan);
    const int64_t at = (int64_t)lvni_control_scan_u64(&scan);
    pthread_mutex_lock(&c->lock);
    c->stop_reason = reason;
    c->stop_at = at;
    c->stop_known = true;
    atomic_fetch_or(&c->attention, LVNI_ATTENTION_STOP);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void on_frame(lvni_control *c, const lvni_control_frame *frame)
{
    lvni_control_cause cause;
    switch (frame->type) {
    case LVNI_FRAME_REPLY: on_reply(c, frame); break;
    case LVNI_FRAME_STOP_ASK: on_stop_ask(c, frame); break;
    case LVNI_FRAME_STOP_AT: on_stop_at(c, frame); break;
    case LVNI_FRAME_BEAT: break;
    case LVNI_FRAME_ABORT:
        if (lvni_control_scan_cause(frame, &cause)) {
            /* Of a rank that was lost the store knows the step of its last heartbeat. Ranks take
             * their steps together: this one's is nearer. */
            cause.step = cause.kind == LVNI_CAUSE_SIGNAL && atomic_load(&c->step) > cause.step
                             ? atomic_load(&c->step)
                             : cause.step;
            lvni_control_set_cause(c, &cause);
            break;
        }
        lose_store(c, "it sent a cause that cannot be read");
        break;
    default: lose_store(c, "it sent a frame that only a rank sends"); break;
    }
}

static void take_frames(lvni_control *c)
{
    bool have = true;
    while (have && !c->broken) {
        lvni_control_frame frame;
        if (lvni_control_frame_next(&c->in, &frame, &have) != LVN_OK) {
            lose_store(c, "it sent bytes that are not a frame of the control channel");
        } else if (have) {
            on_frame(c, &frame);
        }
    }
}

static void receive(lvni_control *c)
{
    char bytes[16 << 10];
    for (int turn = 0; turn < 64 && !c->broken; turn++) { /* then it is time to send again */
        const ssize_t n = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n <= 0) {
            lose_connection(c, n == 0 ? 0 : errno);
            return;
        }
        c->heard_ns = lvni_core_now_ns();
        if (lvni_control_frame_push(&c->in, bytes, (size_t)n) != LVN_OK) {
            lose_store(c, "no memory for what it sends");
            return;
        }
        take_frames(c);
    }
}

/* ---- Frames out ---- */

static void transmit(lvni_control *c)
{
    if (c->sent == c->sending.len) {
        lvni_core_str_clear(&c->sending);
        c->sent = 0;
        pthread_mutex_lock(&c->lock);
        const lvni_core_str empty = c->sending;
        c->sending = c->out;
        c->out = empty;
        pthread_mutex_unlock(&c->lock);
    }
    if (c->sending.failed) {
        lose_store(c, "no memory for frames to it");
        return;
    }
    while (c->sent < c->sending.len) {
        const ssize_t n = send(c->fd, c->sending.data + c->sent, c->sending.len - c->sent,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            if (errno != EAGAIN) {
                const int error = errno;
                receive(c); /* an ABORT may be waiting there */
                lose_connection(c, error);
            }
            return;
        }
        c->sent += (size_t)n;
        c->sent_ns = lvni_core_now_ns();
    }
}

static void beat(lvni_control *c, uint64_t now)
{
    if (now - c->sent_ns < (uint64_t)(c->heartbeat_s * 1e9)) {
        return;
    }
    const int64_t step = atomic_load(&c->step);
    pthread_mutex_lock(&c->lock);
    const size_t at = lvni_control_frame_begin(&c->out, LVNI_FRAME_BEAT);
    lvni_control_put_u64(&c->out, (uint64_t)(step < 0 ? -1 : step));
    lvni_control_frame_end(&c->out, at);
    pthread_mutex_unlock(&c->lock);
}

static void listen_for_silence(lvni_control *c, uint64_t now)
{
    const uint64_t limit = (uint64_t)(c->peer_timeout_s * 1e9);
    if (now - c->turn_ns > limit / 2) {
        c->heard_ns = now; /* this process was stopped itself, which explains the silence */
    }
    c->turn_ns = now;
    if (now > c->heard_ns && now - c->heard_ns > limit) {
        char why[100];
        lvni_core_format(why, sizeof why,
                         "nothing was heard from it for %.1f s: stopped, hung or cut off",
                         c->peer_timeout_s);
        lose_store(c, why);
    }
}

static int poll_ms(const lvni_control *c)
{
    const double a = c->heartbeat_s / 4, b = c->peer_timeout_s / 8;
    const double least = (a < b ? a : b) * 1e3;
    return least < 1 ? 1 : least > 500 ? 500 : (int)least;
}

void *lvni_control_thread_main(void *control)
{
    lvni_control *c = control;
    lvni_core_thread_name("control", -1);
    take_frames(c); /* what came with the greeting */
    c->heard_ns = c->turn_ns = lvni_core_now_ns();
    for (;;) {
        pthread_mutex_lock(&c->lock);
        const bool ending = c->ending;
        const bool more = c->out.len > 0;
        pthread_mutex_unlock(&c->lock);
        if (ending) {
            break;
        }
        struct pollfd p[2] = {{.fd = c->wake_fd, .events = POLLIN},
                              {.fd = c->broken ? -1 : c->fd, .events = POLLIN}};
        if (more || c->sent < c->sending.len) {
            p[1].events |= POLLOUT;
        }
        if (poll(p, 2, c->broken ? -1 : poll_ms(c)) < 0 && errno != EINTR) {
            lose_store(c, strerror(errno));
        }
        uint64_t count = 0;
        if ((p[0].revents & POLLIN) != 0 && read(c->wake_fd, &count, sizeof count) < 0) {
            count = 0; /* one read takes several wakes */
        }
        if (!c->broken && (p[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
            receive(c);
        }
        if (!c->broken) {
            const uint64_t now = lvni_core_now_ns();
            listen_for_silence(c, now);
            beat(c, now);
            transmit(c);
        }
    }
    return NULL;
}
