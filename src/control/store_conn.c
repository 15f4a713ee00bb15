/* Connections of the store: taken, what comes in, their end. Who may stay: store_greet.c. What goes
 * out: store_send.c. All on the store's thread (store.c). */
#include "store_impl.h"

#include "core/alloc.h"
#include "core/clock.h"

/* ---- The end of a connection ---- */

void lvni_store_count(lvni_store *store, int difference)
{
    pthread_mutex_lock(&store->lock);
    store->connected += difference;
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
}

static void put_into(store_list *list, store_conn *conn)
{
    conn->list = list;
    conn->prev = NULL;
    conn->next = list->first;
    *(list->first != NULL ? &list->first->prev : &list->last) = conn;
    list->first = conn;
    list->open++;
}

static void take_out(store_conn *conn)
{
    *(conn->prev != NULL ? &conn->prev->next : &conn->list->first) = conn->next;
    *(conn->next != NULL ? &conn->next->prev : &conn->list->last) = conn->prev;
}

void lvni_store_free_conn(store_conn *conn)
{
    lvni_frame_reader_free(&conn->in);
    lvni_free(conn);
}

static void on_closed(uv_handle_t *handle)
{
    store_conn *conn = handle->data;
    take_out(conn);
    conn->closed = true;
    if (conn->check == NULL) { /* else its check frees it */
        lvni_store_free_conn(conn);
    }
}

void lvni_store_settle_in(store_conn *conn)
{
    take_out(conn);
    conn->list->open--;
    put_into(&conn->store->conns, conn);
}

void lvni_store_drop(store_conn *conn, const char *why)
{
    if (conn->closing) {
        return;
    }
    lvni_store *store = conn->store;
    conn->closing = true;
    conn->list->open--;
    lvni_store_cancel_check(conn);
    uv_close((uv_handle_t *)&conn->tcp, on_closed);
    if (conn->rank < 0) {
        return;
    }
    store_rank *rank = &store->ranks[conn->rank];
    lvni_store_forget_gets(store, conn);
    rank->conn = NULL;
    lvni_store_count(store, -1);
    if (rank->state == RANK_HERE && conn->confirmed) {
        lvni_store_lost(store, conn->rank, why);
    } else if (rank->state == RANK_HERE) {
        rank->state = RANK_ABSENT; /* gave up before it knew that it was in: it tries again */
    }
}

/* ---- Frames in ---- */

static void on_bye(store_conn *conn, const lvni_frame *frame)
{
    lvni_store *store = conn->store;
    lvni_scan scan = lvni_scan_of(frame);
    const uint32_t id = lvni_scan_u32(&scan);
    store->ranks[conn->rank].state = RANK_LEFT;
    lvni_store_answer(conn, id, NULL);
    lvni_store_rank_left_gathers(store, conn->rank);
    lvni_store_stop_progress(store);
}

static void on_fail(store_conn *conn, const lvni_frame *frame)
{
    lvni_cause cause;
    if (!lvni_scan_cause(frame, &cause) || cause.rank != conn->rank) {
        lvni_store_drop(conn, "it reported a failure that cannot be read");
        return;
    }
    /* the end of its connection is no news then */
    conn->store->ranks[conn->rank].state = RANK_GONE;
    lvni_store_report(conn->store, &cause);
}

static void on_rank_frame(store_conn *conn, const lvni_frame *frame)
{
    lvni_store *store = conn->store;
    lvni_scan scan = lvni_scan_of(frame);
    switch (frame->type) {
    case LVNI_FRAME_FACTS: lvni_store_take_facts(conn, frame); break;
    case LVNI_FRAME_SET: lvni_store_set(conn, frame); break;
    case LVNI_FRAME_GET: lvni_store_get(conn, frame); break;
    case LVNI_FRAME_ADD: lvni_store_add(conn, frame); break;
    case LVNI_FRAME_GATHER: lvni_store_gather(conn, frame); break;
    case LVNI_FRAME_BEAT: store->ranks[conn->rank].step = (int64_t)lvni_scan_u64(&scan); break;
    case LVNI_FRAME_FAIL: on_fail(conn, frame); break;
    case LVNI_FRAME_STOP_ASK: lvni_store_stop_ask(store, (int)lvni_scan_u32(&scan)); break;
    case LVNI_FRAME_STOP_STEP:
        lvni_store_stop_step(store, conn->rank, (int64_t)lvni_scan_u64(&scan));
        break;
    case LVNI_FRAME_BYE: on_bye(conn, frame); break;
    default: lvni_store_drop(conn, "it sent a frame that only the store sends"); break;
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    (void)suggested;
    const store_conn *conn = handle->data;
    /* A stranger fills no more than its greeting may have. */
    const size_t room = LVNI_FRAME_HEAD + conn->in.limit - (conn->in.len - conn->in.used);
    const unsigned n = conn->rank < 0 ? (unsigned)room : STORE_READ;
    *out = uv_buf_init(conn->store->read_room, n);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    store_conn *conn = stream->data;
    if (n < 0) {
        lvni_store_drop(
            conn, n == UV_EOF || n == UV_ECONNRESET
                      ? "its connection to the store ended without a word: it was killed or crashed"
                      : "its connection to the store broke");
        return;
    }
    conn->heard_ns = lvni_now_ns();
    if (lvni_frame_push(&conn->in, buf->base, (size_t)n) != LVN_OK) {
        lvni_store_drop(conn, "the store has no memory for what it sent");
        return;
    }
    bool have = true;
    while (!conn->closing && !(conn->rank < 0 && conn->parting)) {
        lvni_frame frame;
        if (lvni_frame_next(&conn->in, &frame, &have) != LVN_OK) {
            if (conn->rank < 0) {
                lvni_store_turn_away(conn, "it speaks something else");
            } else {
                lvni_store_drop(conn, "it sent something that is no frame of the control channel");
            }
            return;
        }
        if (!have) {
            return;
        }
        if (conn->rank < 0) {
            lvni_store_greeted(conn, &frame);
        } else {
            conn->confirmed = true;
            on_rank_frame(conn, &frame);
        }
    }
}

void lvni_store_on_connection(uv_stream_t *listener, int status)
{
    lvni_store *store = listener->data;
    const bool may = status == 0 && lvni_store_may_accept(store);
    store_conn *conn = may ? LVNI_NEW(LVNI_TAG_CONTROL, store_conn) : NULL;
    store->accept_later = status == 0 && conn == NULL; /* libuv calls again only after uv_accept */
    if (may && conn == NULL) {
        store->accepts_left = 0; /* no memory */
        (void)lvni_store_may_accept(store);
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
    conn->opened_ns = conn->heard_ns = conn->said_ns = lvni_now_ns();
    if (uv_accept(listener, (uv_stream_t *)&conn->tcp) != 0 ||
        lvni_token_random(&conn->nonce) != LVN_OK ||
        uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read) != 0) {
        lvni_store_drop(conn, "");
        return;
    }
    lvni_store_bound_strangers(store);
    uv_tcp_nodelay(&conn->tcp, 1);
    lvni_str s = {0};
    lvni_put_hello(&s, &conn->nonce, store->auth);
    lvni_store_send_str(conn, &s);
}
