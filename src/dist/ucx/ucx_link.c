/* The thread of a link over UCX (ucx_impl.h). It hands jobs to UCX, lets it work as long as there
 * is anything to do, and sleeps on UCX's descriptor and its own. */
#include "dist/ucx/ucx_impl.h"

#include "core/alloc.h"
#include "core/machine.h"
#include "core/thread.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

/* LOOK_MS: while a peer may be late. ROUNDS of UCX's work between two looks at the queue. */
enum { LOOK_MS = 50, ROUNDS = 32 };

static int fill_parts(ucp_dt_iov_t *to, const lvni_net_part *part, int n)
{
    int filled = 0;
    for (int i = 0; i < n; i++) {
        if (part[i].bytes > 0) {
            to[filled++] = (ucp_dt_iov_t){part[i].p, part[i].bytes};
        }
    }
    return filled;
}

/* One part is sent from, and received to, where it lies; of several UCX must know the list. */
static void describe(ucp_request_param_t *param, const ucp_dt_iov_t *part, int n, void **buffer,
                     size_t *count)
{
    param->op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                          UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param->memory_type = UCS_MEMORY_TYPE_HOST;
    param->datatype = n > 1 ? UCP_DATATYPE_IOV : ucp_dt_make_contig(1);
    *buffer = NULL;
    *count = 0;
    if (n == 1) {
        *buffer = part[0].buffer;
        *count = part[0].length;
    } else if (n > 1) {
        memcpy(buffer, &part, sizeof part); /* UCX only reads it */
        *count = (size_t)n;
    }
}

/* ---- sending ---- */

static lvni_ucx_sending *new_sending(lvni_net_comm *c, int peer)
{
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    lvni_ucx_sending *s = w->spare_sending;
    if (s != NULL) {
        w->spare_sending = s->next;
    } else {
        s = lvni_core_alloc(LVNI_TAG_DIST, sizeof *s);
    }
    if (s != NULL) {
        s->c = c;
        s->peer = peer;
        s->job = NULL;
        s->head = (lvni_ucx_head){.rank = c->base.rank};
        memcpy(s->head.key, w->peer[peer].key, sizeof s->head.key);
        w->peer[peer].sends++;
    }
    return s;
}

static void sending_over(lvni_ucx_sending *s, ucs_status_t status)
{
    lvni_net_comm *c = s->c;
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    pthread_mutex_lock(&c->lock);
    w->peer[s->peer].sends--;
    c->peer[s->peer].deaf = c->peer[s->peer].deaf || status != UCS_OK;
    if (s->job != NULL) {
        lvni_net_job_over(c, s->job);
    }
    s->next = w->spare_sending;
    w->spare_sending = s;
    pthread_mutex_unlock(&c->lock);
}

static void sent(void *request, ucs_status_t status, void *user)
{
    lvni_ucx_sending *s = user;
    const lvni_ucx_api *api = lvni_ucx_wire_of(s->c)->api;
    sending_over(s, status);
    api->request_free(request);
}

static void hand_over(lvni_ucx_sending *s, unsigned id)
{
    const lvni_ucx_wire *w = lvni_ucx_wire_of(s->c);
    ucp_request_param_t param = {.cb.send = sent, .user_data = s};
    void *buffer;
    size_t count;
    const int n = s->job != NULL ? fill_parts(s->part, s->job->part, s->job->n_parts) : 0;
    describe(&param, s->part, n, &buffer, &count);
    if (s->job != NULL && s->job->header.kind == LVNI_NET_BEGIN) {
        /* what comes behind is placed by it, so all of it has to be there, whatever
         * UCX_RNDV_THRESH is */
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_AM_SEND_FLAG_EAGER;
    }
    ucs_status_ptr_t request =
        w->api->am_send(w->peer[s->peer].ep, id, &s->head, sizeof s->head, buffer, count, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        sending_over(s, UCS_PTR_STATUS(request));
    }
}

/* With the lock held, which is given up while UCX has it. */
static void send_job(lvni_net_comm *c, lvni_net_job *job)
{
    const lvni_ucx_peer *p = &lvni_ucx_wire_of(c)->peer[job->peer];
    const bool wanted = !c->peer[job->peer].deaf && p->ep != NULL && lvni_net_job_wanted(c, job);
    lvni_ucx_sending *s = wanted ? new_sending(c, job->peer) : NULL;
    if (s == NULL) {
        lvni_net_job_over(c, job);
        if (wanted) {
            lvni_net_abort_locked(c, -1, "a rank has no memory for a message");
        }
        return;
    }
    s->job = job;
    s->head.header = job->header;
    s->head.number = lvni_ucx_wire_of(c)->peer[job->peer].sent++;
    pthread_mutex_unlock(&c->lock);
    hand_over(s, LVNI_UCX_MESSAGE);
    pthread_mutex_lock(&c->lock);
}

/* The same of a message that is only a head. */
static void send_head(lvni_net_comm *c, int rank, unsigned id)
{
    const lvni_ucx_peer *p = &lvni_ucx_wire_of(c)->peer[rank];
    lvni_ucx_sending *s = p->ep != NULL ? new_sending(c, rank) : NULL;
    if (s != NULL) {
        pthread_mutex_unlock(&c->lock);
        hand_over(s, id);
        pthread_mutex_lock(&c->lock);
    }
}

/* Of a peer whose BYE came, once nothing that it sent before is on its way. */
static void answer(lvni_net_comm *c, int rank)
{
    lvni_ucx_wire_of(c)->peer[rank].bye = false;
    send_head(c, rank, LVNI_UCX_HEARD);
    c->peer[rank].deaf = true;
    lvni_net_peer_gone(c, rank);
}

/* ---- receiving ---- */

/* NULL: of no rank of this run that may still send. */
static lvni_ucx_peer *sender_of(const lvni_net_comm *c, const void *head, size_t bytes,
                                lvni_ucx_head *out)
{
    const lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    unsigned char differs = 0;
    if (bytes != sizeof *out) {
        return NULL;
    }
    memcpy(out, head, sizeof *out);
    for (size_t i = 0; i < sizeof w->key; i++) {
        differs |= out->key[i] ^ w->key[i];
    }
    return differs == 0 && out->rank >= 0 && out->rank < c->base.world && out->rank != c->base.rank
               ? &w->peer[out->rank]
               : NULL;
}

static lvni_ucx_receiving *new_receiving(lvni_net_comm *c, const lvni_ucx_head *head)
{
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    lvni_ucx_receiving *r = w->spare_receiving;
    if (r != NULL) {
        w->spare_receiving = r->next;
    } else {
        r = lvni_core_alloc(LVNI_TAG_DIST, sizeof *r);
    }
    if (r == NULL) {
        lvni_net_abort_locked(c, -1, "a rank has no memory for a message");
        return NULL;
    }
    r->c = c;
    r->peer = head->rank;
    r->in.header = head->header;
    r->in.n_parts = 0;
    r->in.mail = NULL;
    if (!lvni_net_place(c, head->rank, &r->in)) {
        r->next = w->spare_receiving;
        w->spare_receiving = r;
        return NULL;
    }
    return r;
}

/* With the lock held. */
static void receiving_over(lvni_ucx_receiving *r, bool came)
{
    lvni_net_comm *c = r->c;
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    if (came) {
        w->peer[r->peer].bye = r->in.header.kind == LVNI_NET_BYE || w->peer[r->peer].bye;
        lvni_net_came(c, r->peer, &r->in);
    } else {
        lvni_net_drop(&r->in);
        w->peer[r->peer].failed = true;
    }
    r->next = w->spare_receiving;
    w->spare_receiving = r;
}

static void long_message_over(lvni_ucx_receiving *r, ucs_status_t status)
{
    lvni_net_comm *c = r->c;
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    pthread_mutex_lock(&c->lock);
    for (lvni_ucx_receiving **at = &w->coming; *at != NULL; at = &(*at)->next) {
        if (*at == r) {
            *at = r->next;
            break;
        }
    }
    w->peer[r->peer].receives--;
    receiving_over(r, status == UCS_OK);
    pthread_cond_broadcast(&c->changed); /* lvni_ucx_leave */
    pthread_mutex_unlock(&c->lock);
}

static void received(void *request, ucs_status_t status, size_t bytes, void *user)
{
    lvni_ucx_receiving *r = user;
    const lvni_ucx_api *api = lvni_ucx_wire_of(r->c)->api;
    (void)bytes;
    long_message_over(r, status);
    api->request_free(request);
}

/* data: UCX's name for what still lies with the sender. */
static void receive_long(lvni_ucx_receiving *r, void *data)
{
    const lvni_ucx_wire *w = lvni_ucx_wire_of(r->c);
    ucp_request_param_t param = {.cb.recv_am = received, .user_data = r};
    void *buffer;
    size_t count;
    describe(&param, r->part, fill_parts(r->part, r->in.part, r->in.n_parts), &buffer, &count);
    ucs_status_ptr_t request = w->api->am_recv_data(w->worker, data, buffer, count, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        long_message_over(r, UCS_PTR_STATUS(request));
    }
}

/* Without the lock. true: a long message, which is coming from here on. */
static bool take(lvni_net_comm *c, const lvni_ucx_head *h, void *data, bool is_long)
{
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    pthread_mutex_lock(&c->lock);
    lvni_ucx_receiving *r = c->peer[h->rank].gone ? NULL : new_receiving(c, h);
    if (r != NULL && is_long) {
        r->next = w->coming;
        w->coming = r;
        w->peer[h->rank].receives++;
    } else if (r != NULL) {
        const char *from = data;
        for (int i = 0; i < r->in.n_parts; i++) {
            memcpy(r->in.part[i].p, from, r->in.part[i].bytes);
            from += r->in.part[i].bytes;
        }
        receiving_over(r, true);
    }
    pthread_mutex_unlock(&c->lock);
    if (r == NULL || !is_long) {
        return false;
    }
    receive_long(r, data);
    return true;
}

/* false: no memory, and nothing more can be taken of this peer. */
static bool keep(lvni_ucx_peer *p, const lvni_ucx_head *h, void *data, size_t bytes, bool is_long)
{
    const size_t copied = is_long ? 0 : bytes;
    lvni_ucx_early *e = lvni_core_alloc(LVNI_TAG_DIST, sizeof *e + copied);
    if (e == NULL) {
        p->failed = true;
        return false;
    }
    memcpy(e->copy, data, copied);
    e->head = *h;
    e->data = is_long ? data : e->copy;
    e->is_long = is_long;
    e->next = p->early;
    p->early = e;
    return true;
}

/* The next of those that came too early, where it is its turn. */
static lvni_ucx_early *take_early(lvni_ucx_peer *p)
{
    for (lvni_ucx_early **at = &p->early; *at != NULL; at = &(*at)->next) {
        lvni_ucx_early *e = *at;
        if (e->head.number == p->expected) {
            *at = e->next;
            return e;
        }
    }
    return NULL;
}

static void early_over(const lvni_ucx_wire *w, lvni_ucx_early *e, bool taken)
{
    if (e->is_long && !taken) {
        w->api->am_data_release(w->worker, e->data);
    }
    lvni_core_free(e);
}

void lvni_ucx_drop_early(lvni_net_comm *c, int rank)
{
    const lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    for (lvni_ucx_early *e; (e = w->peer[rank].early) != NULL;) {
        w->peer[rank].early = e->next;
        early_over(w, e, false);
    }
}

ucs_status_t lvni_ucx_message(void *user, const void *head, size_t head_bytes, void *data,
                              size_t bytes, const ucp_am_recv_param_t *param)
{
    lvni_net_comm *c = user;
    lvni_ucx_head h;
    lvni_ucx_peer *p = sender_of(c, head, head_bytes, &h);
    const bool is_long = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    if (p == NULL || h.header.bytes != bytes) {
        return UCS_OK;
    }
    if (h.number != p->expected) {
        return keep(p, &h, data, bytes, is_long) && is_long ? UCS_INPROGRESS : UCS_OK;
    }
    p->expected++;
    const bool coming = take(c, &h, data, is_long);
    for (lvni_ucx_early *e; (e = take_early(p)) != NULL;) {
        p->expected++;
        early_over(lvni_ucx_wire_of(c), e, take(c, &e->head, e->data, e->is_long));
    }
    return coming ? UCS_INPROGRESS : UCS_OK;
}

ucs_status_t lvni_ucx_hello(void *user, const void *head, size_t head_bytes, void *data,
                            size_t bytes, const ucp_am_recv_param_t *param)
{
    lvni_net_comm *c = user;
    lvni_ucx_head h;
    lvni_ucx_peer *p = sender_of(c, head, head_bytes, &h);
    (void)data, (void)bytes, (void)param;
    if (p != NULL) {
        pthread_mutex_lock(&c->lock);
        p->met = true;
        pthread_cond_broadcast(&c->changed);
        pthread_mutex_unlock(&c->lock);
    }
    return UCS_OK;
}

ucs_status_t lvni_ucx_heard(void *user, const void *head, size_t head_bytes, void *data,
                            size_t bytes, const ucp_am_recv_param_t *param)
{
    lvni_net_comm *c = user;
    lvni_ucx_head h;
    lvni_ucx_peer *p = sender_of(c, head, head_bytes, &h);
    (void)data, (void)bytes, (void)param;
    if (p != NULL) {
        pthread_mutex_lock(&c->lock);
        p->heard = true;
        pthread_mutex_unlock(&c->lock);
    }
    return UCS_OK;
}

/* Nothing may follow, but what has come is still handled. */
void lvni_ucx_failed(void *user, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep, (void)status;
    ((lvni_ucx_peer *)user)->failed = true;
}

/* ---- the end of a peer ---- */

void lvni_ucx_close_peer(lvni_net_comm *c, int rank)
{
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    lvni_ucx_peer *p = &w->peer[rank];
    if (p->ep == NULL) {
        return;
    }
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t request = w->api->ep_close(p->ep, &param);
    if (UCS_PTR_IS_PTR(request)) {
        while (w->api->request_check_status(request) == UCS_INPROGRESS) {
            (void)w->api->worker_progress(w->worker);
        }
        w->api->request_free(request);
    }
    pthread_mutex_lock(&c->lock);
    p->ep = NULL;
    c->peer[rank].deaf = true;
    lvni_net_peer_gone(c, rank);
    pthread_mutex_unlock(&c->lock);
}

static bool has_passed(uint64_t since_ns)
{
    return lvni_core_seconds_since(since_ns) > LVNI_NET_PATIENCE_S;
}

/* With the lock held: too late for a peer that has not taken what is sent, or sends no more of what
 * it began. */
static bool is_late(const lvni_net_comm *c, const lvni_ucx_peer *p)
{
    const lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    return (p->sends > 0 && lvni_net_is_late(c)) ||
           (p->receives > 0 && w->leave_ns != 0 && has_passed(w->leave_ns));
}

/* With the lock held, which is given up meanwhile. true: UCX has more to do. */
static bool look_at_peers(lvni_net_comm *c)
{
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    bool any = false;
    for (int rank = 0; rank < c->base.world; rank++) {
        lvni_ucx_peer *p = &w->peer[rank];
        if (p->ep != NULL && (p->failed || is_late(c, p))) {
            pthread_mutex_unlock(&c->lock);
            lvni_ucx_close_peer(c, rank);
            pthread_mutex_lock(&c->lock);
            any = true;
        } else if (p->bye && p->receives == 0) {
            answer(c, rank);
            any = true;
        }
    }
    return any;
}

/* ---- the thread ---- */

/* With the lock held: has all that this rank sent arrived, as far as there are peers? */
static bool may_end(const lvni_net_comm *c)
{
    const lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    bool over = c->quit && c->first == NULL;
    for (int rank = 0; rank < c->base.world && over && !lvni_net_is_late(c); rank++) {
        const lvni_ucx_peer *p = &w->peer[rank];
        over = p->ep == NULL || (p->sends == 0 && (p->heard || c->peer[rank].gone));
    }
    return over;
}

/* With the lock held. */
static void hand_over_all(lvni_net_comm *c)
{
    for (lvni_net_job *job; (job = lvni_net_job_next(c)) != NULL;) {
        send_job(c, job);
    }
}

/* Without the lock. */
static void sleep_until_woken(lvni_ucx_wire *w, int timeout_ms)
{
    struct pollfd fds[2] = {{.fd = w->events, .events = POLLIN}, {.fd = w->wake, .events = POLLIN}};
    if (w->api->worker_arm(w->worker) == UCS_OK && poll(fds, 2, timeout_ms) > 0 &&
        fds[1].revents != 0) {
        uint64_t count;
        (void)!read(w->wake, &count, sizeof count);
    }
}

static void *link_main(void *user)
{
    lvni_net_comm *c = user;
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    lvni_core_thread_name("ucx", c->base.rank);
    pthread_mutex_lock(&c->lock);
    for (int i = 1; i < c->base.world; i++) {
        send_head(c, (c->base.rank + i) % c->base.world, LVNI_UCX_HELLO);
    }
    while (!may_end(c)) {
        hand_over_all(c);
        pthread_mutex_unlock(&c->lock);
        int rounds = 0;
        while (rounds < ROUNDS && w->api->worker_progress(w->worker) > 0) {
            rounds++;
        }
        pthread_mutex_lock(&c->lock);
        if (look_at_peers(c) || rounds > 0 || c->first != NULL || may_end(c)) {
            continue;
        }
        w->asleep = true;
        const bool looks = c->aborted || c->quit || w->leave_ns != 0;
        pthread_mutex_unlock(&c->lock);
        sleep_until_woken(w, looks ? LOOK_MS : -1);
        pthread_mutex_lock(&c->lock);
        w->asleep = false;
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

lvn_status lvni_ucx_start(lvni_net_comm *c)
{
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    const int failed = lvni_core_thread_start(&w->thread, link_main, c);
    w->has_thread = failed == 0;
    if (failed != 0) {
        LVN_FAIL(LVN_ERR_MEMORY, "cannot start the thread that sends and receives: %s",
                 strerror(failed));
    }
    return LVN_OK;
}

void lvni_ucx_wake(lvni_net_comm *c)
{
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    if (w->asleep) {
        const uint64_t one = 1;
        w->asleep = false;
        (void)!write(w->wake, &one, sizeof one);
    }
}

/* What is coming in for the reduction cannot be turned away: it is awaited, and its sender closed
 * when that takes too long. */
void lvni_ucx_leave(lvni_net_comm *c, uint32_t reduction)
{
    lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    for (bool waits = true; waits;) {
        waits = false;
        for (const lvni_ucx_receiving *r = w->coming; r != NULL; r = r->next) {
            waits = waits || (r->in.mail == NULL && r->in.header.id == reduction);
        }
        if (waits) {
            w->leave_ns = w->leave_ns != 0 ? w->leave_ns : lvni_core_now_ns();
            lvni_ucx_wake(c);
            pthread_cond_wait(&c->changed, &c->lock);
        }
    }
    w->leave_ns = 0;
}

void lvni_ucx_stop(lvni_net_comm *c)
{
    const lvni_ucx_wire *w = lvni_ucx_wire_of(c);
    if (w->has_thread) {
        pthread_join(w->thread, NULL);
    }
}
