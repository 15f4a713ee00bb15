/* Connections of the store: taken, what comes in, their end. Who may stay: store_greet.c. What goes
 * out: store_send.c. All on the store's thread (store.c). */
#include "store_impl.h"

#include "core/alloc.h"
#include "core/clock.h"

/* ---- The end of a connection ---- */

void lvni_control_store_count(lvni_control_store *store, int difference)
{
    pthread_mutex_lock(&store->lock);
    store->connected += difference;
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
}

static void put_into(lvni_control_list *list, lvni_control_conn *conn)
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

void lvni_control_store_free_conn(lvni_control_conn *conn)
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
        lvni_control_store_free_conn(conn);
    }
}

void lvni_control_store_settle_in(lvni_control_conn *conn)
{
    take_out(conn);
    conn->list->open--;
    put_into(&conn->store->conns, conn);
}

void lvni_control_store_drop(lvni_control_conn *conn, const char *why)
{
    if (conn->closing) {
        return;
    }
    lvni_control_store *store = conn->store;
    conn->closing = true;
    conn->list->open--;
    lvni_control_store_cancel_check(conn);
    uv_close((uv_handle_t *)&conn->tcp, on_closed);
    if (conn->rank < 0) {
        return;
    }
    lvni_control_store_rank *rank = &store->ranks[conn->rank];
    lvni_control_store_forget_gets(store, conn);
    rank->conn = NULL;
    lvni_control_store_count(store, -1);
    if (rank->state == LVNI_RANK_HERE && conn->confirmed) {
        lvni_control_store_lost(store, conn->rank, why);
    } else if (rank->state == LVNI_RANK_HERE) {
        rank->state = LVNI_RANK_ABSENT; /* gave up before it knew that it was in: it tries again */
    }
}

/* ---- Frames in ---- */

static void on_bye(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    lvni_control_store *store = conn->store;
    lvni_control_scan scan = lvni_control_scan_of(frame);
    const uint32_t id = lvni_control_scan_u32(&scan);
    store->ranks[conn->rank].state = LVNI_RANK_LEFT;
    lvni_control_store_answer(conn, id, NULL);
    lvni_control_store_rank_left_gathers(store, conn->rank);
    lvni_control_store_stop_progress(store);
}

static void on_fail(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    lvni_control_cause cause;
    if (!lvni_control_scan_cause(frame, &cause) || cause.rank != conn->rank) {
        lvni_control_store_drop(conn, "it reported a failure that cannot be read");
        return;
    }
    /* the end of its connection is no news then */
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
    default: lvni_control_store_drop(conn, "it sent a frame that only the store sends"); break;
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    (void)suggested;
    const lvni_control_conn *conn = handle->data;
    /* A stranger fills no more than its greeting may have. */
    const size_t room = LVNI_FRAME_HEAD + conn->in.limit - (conn->in.len - conn->in.used);
    const unsigned n = conn->rank < 0 ? (unsigned)room : LVNI_STORE_READ;
    *out = uv_buf_init(conn->store->read_room, n);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    lvni_control_conn *conn = stream->data;
    if (n < 0) {
        lvni_control_store_drop(
            conn, n == UV_EOF || n == UV_ECONNRESET
                      ? "its connection to the store ended without a word: it was killed or crashed"
                      : "its connection to the store broke");
        return;
    }
    conn->heard_ns = lvni_core_now_ns();
    if (lvni_control_frame_push(&conn->in, buf->base, (size_t)n) != LVN_OK) {
        lvni_control_store_drop(conn, "the store has no memory for what it sent");
        return;
    }
    bool have = true;
    while (!conn->closing && !(conn->rank < 0 && conn->parting)) {
        lvni_control_frame frame;
        if (lvni_control_frame_next(&conn->in, &frame, &have) != LVN_OK) {
            if (conn->rank < 0) {
                lvni_control_store_turn_away(conn, "it speaks something else");
            } else {
                lvni_control_store_drop(
                    conn, "it sent something that is no frame of the control channel");
            }
            return;
        }
        if (!have) {
            return;
        }
        if (conn->rank < 0) {
            lvni_control_store_greeted(conn, &frame);
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
    store->accept_later = status == 0 && conn == NULL; /* libuv calls again only after uv_accept */
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
    conn->opened_ns = conn->heard_ns = conn->reported_ns = lvni_core_now_ns();
    if (uv_accept(listener, (uv_stream_t *)&conn->tcp) != 0 ||
        lvni_control_token_random(&conn->nonce) != LVN_OK ||
        uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read) != 0) {
        lvni_control_store_drop(conn, "");
        return;
    }
    lvni_control_store_bound_strangers(store);
    uv_tcp_nodelay(&conn->tcp, 1);
    lvni_core_str s = {0};
    lvni_control_put_hello(&s, &conn->nonce, store->auth);
    lvni_control_store_send_str(conn, &s);
}
