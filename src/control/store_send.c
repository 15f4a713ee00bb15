/* What the store sends: bytes shared by many connections, queued by libuv up to a bound, so that no
 * client is waited for. All on the store's thread (store.c). */
#include "store_impl.h"

#include "core/alloc.h"
#include "core/clock.h"

enum { QUEUE_LIMIT = 256 << 20 }; /* bytes that a connection may leave unread */

typedef struct store_write {
    uv_write_t req;
    lvni_control_blob *head, *rest;
    bool last; /* nothing follows: close */
} store_write;

lvni_control_blob *lvni_control_store_blob(lvni_core_str *take)
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

void lvni_control_store_unref(lvni_control_blob *blob)
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
        lvni_control_store_drop(conn, "its connection to the store broke");
    }
    lvni_control_store_unref(write->head);
    lvni_control_store_unref(write->rest);
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
        lvni_control_store_drop(conn, "it does not read what the store sends it");
        return;
    }
    store_write *write = head == NULL ? NULL : LVNI_NEW(LVNI_TAG_CONTROL, store_write);
    if (write == NULL) {
        lvni_control_store_drop(conn, "the store has no memory for what it must be told");
        return;
    }
    write->head = ref(head);
    write->rest = ref(rest);
    write->last = conn->parting;
    conn->reported_ns = lvni_core_now_ns();
    const uv_buf_t bufs[2] = {
        uv_buf_init(head->data, (unsigned)head->n),
        uv_buf_init(rest == NULL ? NULL : rest->data, rest == NULL ? 0 : (unsigned)rest->n)};
    if (uv_write(&write->req, stream, bufs, rest == NULL ? 1 : 2, on_written) != 0) {
        lvni_control_store_unref(write->head);
        lvni_control_store_unref(write->rest);
        lvni_core_free(write);
        lvni_control_store_drop(conn, "its connection to the store broke");
    }
}

void lvni_control_store_send_str(lvni_control_conn *conn, lvni_core_str *take)
{
    lvni_control_blob *blob = lvni_control_store_blob(take);
    send_blobs(conn, blob, NULL);
    lvni_control_store_unref(blob);
}

void lvni_control_store_broadcast(lvni_control_store *store, lvni_core_str *take)
{
    lvni_control_blob *blob = lvni_control_store_blob(take);
    for (int r = 0; r < store->o.world; r++) {
        if (store->ranks[r].state != LVNI_RANK_LEFT && store->ranks[r].conn != NULL) {
            send_blobs(store->ranks[r].conn, blob, NULL);
        }
    }
    lvni_control_store_unref(blob);
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
    lvni_control_store_send_str(conn, &s);
}

void lvni_control_store_reply(lvni_control_conn *conn, uint32_t id, lvn_status status,
                              const char *message)
{
    reply(conn, id, status, 0, message);
}

void lvni_control_store_reply_refused(lvni_control_conn *conn, uint32_t id)
{
    const lvni_control_store *store = conn->store;
    reply(conn, id, store->refused_status, store->refused_number, store->refused);
}

void lvni_control_store_answer(lvni_control_conn *conn, uint32_t id, lvni_control_blob *rest)
{
    lvni_core_str s = {0};
    lvni_control_put_u32(&s, (uint32_t)(8 + (rest == NULL ? 0 : rest->n)));
    lvni_control_put_u32(&s, LVNI_FRAME_REPLY);
    lvni_control_put_u32(&s, id);
    lvni_control_put_u32(&s, LVN_OK);
    lvni_control_blob *head = lvni_control_store_blob(&s);
    send_blobs(conn, head, rest);
    lvni_control_store_unref(head);
}
