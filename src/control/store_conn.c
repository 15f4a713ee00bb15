/* Connections of the store: accepted, what comes in, what goes out, their end. What is sent is
 * shared by many connections and queued by libuv up to a bound, so that the store waits for no
 * client. Which connections may stay is decided in store_greet.c; what their frames ask for is
 * done in store_rendezvous.c, store_keys.c and store_watch.c. All on the store's thread. */
#include "store_impl.h"

#include "core/alloc.h"
#include "core/machine.h"

/* ---- Frames out ---- */

enum { QUEUE_LIMIT = 256 << 20 }; /* bytes that a connection may leave unread */

typedef struct store_write {
    uv_write_t req;
    lvni_control_blob *head, *rest;
    bool last; /* nothing follows: close */
} store_write;

lvni_control_blob *lvni_control_blob_create(lvni_core_str *take)
{
    const size_t n = take->len;
    char *data = lvni_core_str_take(take);
    lvni_control_blob *blob = data == NULL ? NULL : LVNI_NEW(LVNI_TAG_CONTROL, lvni_control_blob);
    if (blob == NULL) {
        lvni_core_free(data);
        return NULL;
    }
    *blob = (lvni_control_blob){.refs = 1, .n = n, .data = data};
    return blob;
}

void lvni_control_blob_unref(lvni_control_blob *blob)
{
    if (blob != NULL && --blob->refs == 0) {
        lvni_core_free(blob->data);
        lvni_core_free(blob);
    }
}

static lvni_control_blob *ref(lvni_control_blob *blob)
{
    if (blob != NULL) {
        blob->refs++;
    }
    return blob;
}

static void on_written(uv_write_t *req, int status)
{
    store_write *write = (store_write *)(void *)req;
    lvni_control_conn *conn = req->handle->data;
    if (status < 0 || write->last) {
        conn->ended = conn->ended || status == UV_EPIPE || status == UV_ECONNRESET;
        lvni_control_conn_drop(conn, "its connection to the store broke");
    }
    lvni_control_blob_unref(write->head);
    lvni_control_blob_unref(write->rest);
    lvni_core_free(write);
}

/* Takes its own references. */
static void send_blobs(lvni_control_conn *conn, lvni_control_blob *head, lvni_control_blob *rest)
{
    if (conn->closing) {
        return;
    }
    uv_stream_t *stream = (uv_stream_t *)&conn->tcp;
    if (uv_stream_get_write_queue_size(stream) > QUEUE_LIMIT) {
        lvni_control_conn_drop(conn, "it does not read what the store sends it");
        return;
    }
    store_write *write = head == NULL ? NULL : LVNI_NEW(LVNI_TAG_CONTROL, store_write);
    if (write == NULL) {
        lvni_control_conn_drop(conn, "the store has no memory for frames to it");
        return;
    }
    write->head = ref(head);
    write->rest = ref(rest);
    write->last = conn->parting;
    conn->sent_ns = lvni_core_now_ns();
    const uv_buf_t bufs[2] = {
        uv_buf_init(head->data, (unsigned)head->n),
        uv_buf_init(rest == NULL ? NULL : rest->data, rest == NULL ? 0 : (unsigned)rest->n)};
    if (uv_write(&write->req, stream, bufs, rest == NULL ? 1 : 2, on_written) != 0) {
        lvni_control_blob_unref(write->head);
        lvni_control_blob_unref(write->rest);
        lvni_core_free(write);
        lvni_control_conn_drop(conn, "its connection to the store broke");
    }
}

void lvni_control_conn_send(lvni_control_conn *conn, lvni_core_str *take)
{
    lvni_control_blob *blob = lvni_control_blob_create(take);
    send_blobs(conn, blob, NULL);
    lvni_control_blob_unref(blob);
}

void lvni_control_store_broadcast(lvni_control_store *store, lvni_core_str *take)
{
    lvni_control_blob *blob = lvni_control_blob_create(take);
    for (int r = 0; r < store->o.world; r++) {
        if (store->ranks[r].state != LVNI_RANK_LEFT && store->ranks[r].conn != NULL) {
            send_blobs(store->ranks[r].conn, blob, NULL);
        }
    }
    lvni_control_blob_unref(blob);
}

static void reply(lvni_control_conn *conn, uint32_t id, lvn_status status, int number,
                  const char *message)
{
    lvni_core_str s = {0};
    const size_t at = lvni_control_frame_begin(&s, LVNI_FRAME_REPLY);
    lvni_control_put_u32(&s, id);
    lvni_control_put_u32(&s, (uint32_t)status);
    lvni_control_put_u32(&s, (uint32_t)number);
    lvni_core_str_append(&s, message);
    lvni_control_frame_end(&s, at);
    lvni_control_conn_send(conn, &s);
}

void lvni_control_conn_reply_error(lvni_control_conn *conn, uint32_t id, lvn_status status,
                                   const char *message)
{
    reply(conn, id, status, 0, message);
}

void lvni_control_conn_reply_refused(lvni_control_conn *conn, uint32_t id)
{
    const lvni_control_store *store = conn->store;
    reply(conn, id, store->refused_status, store->refused_number, store->refused);
}

void lvni_control_conn_reply(lvni_control_conn *conn, uint32_t id, lvni_control_blob *rest)
{
    lvni_core_str s = {0};
    lvni_control_put_u32(&s, (uint32_t)(8 + (rest == NULL ? 0 : rest->n)));
    lvni_control_put_u32(&s, LVNI_FRAME_REPLY);
    lvni_control_put_u32(&s, id);
    lvni_control_put_u32(&s, LVN_OK);
    lvni_control_blob *head = lvni_control_blob_create(&s);
    send_blobs(conn, head, rest);
    lvni_control_blob_unref(head);
}

/* ---- The end of a connection ---- */

void lvni_control_store_count_connected(lvni_control_store *store, int difference)
{
    pthread_mutex_lock(&store->lock);
    store->connected += difference;
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
}

static void put_into(lvni_control_conn_list *list, lvni_control_conn *conn)
{
    conn->list = list;
    conn->prev = NULL;
    conn->next = list->first;
    *(list->first != NULL ? &list->first->prev : &list->last) = conn;
    list->first = conn;
    list->open++;
}

static void take_out(lvni_control_conn *conn)
{
    *(conn->prev != NULL ? &conn->prev->next : &conn->list->first) = conn->next;
    *(conn->next != NULL ? &conn->next->prev : &conn->list->last) = conn->prev;
}

void lvni_control_conn_free(lvni_control_conn *conn)
{
    lvni_control_frame_reader_free(&conn->in);
    lvni_core_free(conn);
}

static void on_closed(uv_handle_t *handle)
{
    lvni_control_conn *conn = handle->data;
    take_out(conn);
    conn->closed = true;
    if (conn->check == NULL) { /* else its check frees it */
        lvni_control_conn_free(conn);
    }
}

void lvni_control_conn_joined(lvni_control_conn *conn)
{
    take_out(conn);
    conn->list->open--;
    put_into(&conn->store->conns, conn);
}

void lvni_control_conn_drop(lvni_control_conn *conn, const char *why)
{
    if (conn->closing) {
        return;
    }
    lvni_control_store *store = conn->store;
    conn->closing = true;
    conn->list->open--;
    lvni_control_conn_cancel_check(conn);
    uv_close((uv_handle_t *)&conn->tcp, on_closed);
    if (conn->rank < 0) {
        return;
    }
    lvni_control_store_rank *rank = &store->ranks[conn->rank];
    lvni_control_store_forget_gets(store, conn);
    rank->conn = NULL;
    lvni_control_store_count_connected(store, -1);
    if (rank->state == LVNI_RANK_HERE && conn->confirmed) {
        lvni_control_store_lost(store, conn->rank, conn->ended, why);
    } else if (rank->state == LVNI_RANK_HERE) {
        rank->state = LVNI_RANK_ABSENT; /* it gave up before it read WELCOME, and tries again */
    }
}

/* ---- Frames in ---- */

static void on_bye(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    lvni_control_store *store = conn->store;
    lvni_control_scan scan = lvni_control_scan_of(frame);
    const uint32_t id = lvni_control_scan_u32(&scan);
    store->ranks[conn->rank].state = LVNI_RANK_LEFT;
    lvni_control_conn_reply(conn, id, NULL);
    lvni_control_store_rank_left_gathers(store, conn->rank);
    lvni_control_store_stop_progress(store);
}

static void on_fail(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    lvni_control_cause cause;
    if (!lvni_control_scan_cause(frame, &cause) || cause.rank != conn->rank) {
        lvni_control_conn_drop(conn, "it reported a failure that cannot be read");
        return;
    }
    /* then the end of its connection is expected */
    conn->store->ranks[conn->rank].state = LVNI_RANK_GONE;
    lvni_control_store_report(conn->store, &cause);
}

static void on_rank_frame(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    lvni_control_store *store = conn->store;
    lvni_control_scan scan = lvni_control_scan_of(frame);
    switch (frame->type) {
    case LVNI_FRAME_FACTS: lvni_control_store_take_facts(conn, frame); break;
    case LVNI_FRAME_SET: lvni_control_store_set(conn, frame); break;
    case LVNI_FRAME_GET: lvni_control_store_get(conn, frame); break;
    case LVNI_FRAME_ADD: lvni_control_store_add(conn, frame); break;
    case LVNI_FRAME_GATHER: lvni_control_store_gather(conn, frame); break;
    case LVNI_FRAME_BEAT:
        store->ranks[conn->rank].step = (int64_t)lvni_control_scan_u64(&scan);
        break;
    case LVNI_FRAME_FAIL: on_fail(conn, frame); break;
    case LVNI_FRAME_STOP_ASK:
        lvni_control_store_stop_ask(store, (int)lvni_control_scan_u32(&scan));
        break;
    case LVNI_FRAME_STOP_STEP:
        lvni_control_store_stop_step(store, conn->rank, (int64_t)lvni_control_scan_u64(&scan));
        break;
    case LVNI_FRAME_BYE: on_bye(conn, frame); break;
    default: lvni_control_conn_drop(conn, "it sent a frame that only the store sends"); break;
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    (void)suggested;
    const lvni_control_conn *conn = handle->data;
    /* A stranger fills no more than its greeting may have. */
    const size_t room = LVNI_FRAME_HEAD + conn->in.limit - (conn->in.len - conn->in.used);
    const unsigned n = conn->rank < 0 ? (unsigned)room : LVNI_STORE_READ;
    *out = uv_buf_init(conn->store->read_buffer, n);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    lvni_control_conn *conn = stream->data;
    if (n < 0) {
        conn->ended = n == UV_EOF || n == UV_ECONNRESET;
        lvni_control_conn_drop(
            conn, conn->ended
                      ? "its connection to the store ended unexpectedly: it was killed or crashed"
                      : "its connection to the store broke");
        return;
    }
    conn->heard_ns = lvni_core_now_ns();
    if (lvni_control_frame_push(&conn->in, buf->base, (size_t)n) != LVN_OK) {
        lvni_control_conn_drop(conn, "the store has no memory for what it sent");
        return;
    }
    bool have = true;
    while (!conn->closing && !(conn->rank < 0 && conn->parting)) {
        lvni_control_frame frame;
        if (lvni_control_frame_next(&conn->in, &frame, &have) != LVN_OK) {
            if (conn->rank < 0) {
                lvni_control_conn_turn_away(conn, "it sent something else than a greeting");
            } else {
                lvni_control_conn_drop(conn,
                                       "it sent bytes that are not a frame of the control channel");
            }
            return;
        }
        if (!have) {
            return;
        }
        if (conn->rank < 0) {
            lvni_control_conn_greeted(conn, &frame);
        } else {
            conn->confirmed = true;
            on_rank_frame(conn, &frame);
        }
    }
}

void lvni_control_store_on_connection(uv_stream_t *listener, int status)
{
    lvni_control_store *store = listener->data;
    const bool may = status == 0 && lvni_control_store_may_accept(store);
    lvni_control_conn *conn = may ? LVNI_NEW(LVNI_TAG_CONTROL, lvni_control_conn) : NULL;
    const uv_tcp_t *which = (const uv_tcp_t *)listener;
    const unsigned bit = which == &store->listener ? 1 : 2u << (which - store->place);
    store->accept_later &= ~bit;
    if (status == 0 && conn == NULL) {
        store->accept_later |= bit; /* libuv calls again only after uv_accept */
    }
    if (may && conn == NULL) {
        store->accepts_left = 0; /* no memory */
        (void)lvni_control_store_may_accept(store);
    }
    if (conn == NULL) {
        return;
    }
    conn->store = store;
    conn->rank = -1;
    conn->in.limit = LVNI_FRAME_MAX_GREETING;
    uv_tcp_init(&store->loop, &conn->tcp);
    conn->tcp.data = conn;
    put_into(&store->strangers, conn);
    conn->opened_ns = conn->heard_ns = conn->sent_ns = lvni_core_now_ns();
    if (uv_accept(listener, (uv_stream_t *)&conn->tcp) != 0 ||
        lvni_control_token_random(&conn->nonce) != LVN_OK ||
        uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read) != 0) {
        lvni_control_conn_drop(conn, "");
        return;
    }
    lvni_control_store_bound_strangers(store);
    uv_tcp_nodelay(&conn->tcp, 1);
    lvni_core_str s = {0};
    lvni_control_put_hello(&s, &conn->nonce, store->auth);
    lvni_control_conn_send(conn, &s);
}
