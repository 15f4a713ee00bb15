/* What the store sends: bytes shared by many connections, queued by libuv up to a bound, so that no
 * client is waited for. All on the store's thread (store.c). */
#include "store_impl.h"

#include "core/alloc.h"
#include "core/clock.h"

enum { QUEUE_LIMIT = 256 << 20 }; /* bytes that a connection may leave unread */

typedef struct store_write {
    uv_write_t req;
    store_blob *head, *rest;
    bool last; /* nothing follows: close */
} store_write;

store_blob *lvni_store_blob(lvni_str *take)
{
    const size_t n = take->len;
    char *data = lvni_str_take(take);
    store_blob *blob = data == NULL ? NULL : LVNI_NEW(LVNI_TAG_CONTROL, store_blob);
    if (blob == NULL) {
        lvni_free(data);
        return NULL;
    }
    *blob = (store_blob){.refs = 1, .n = n, .data = data};
    return blob;
}

void lvni_store_unref(store_blob *blob)
{
    if (blob != NULL && --blob->refs == 0) {
        lvni_free(blob->data);
        lvni_free(blob);
    }
}

static store_blob *ref(store_blob *blob)
{
    if (blob != NULL) {
        blob->refs++;
    }
    return blob;
}

static void on_written(uv_write_t *req, int status)
{
    store_write *write = (store_write *)(void *)req;
    store_conn *conn = req->handle->data;
    if (status < 0 || write->last) {
        lvni_store_drop(conn, "its connection to the store broke");
    }
    lvni_store_unref(write->head);
    lvni_store_unref(write->rest);
    lvni_free(write);
}

/* Takes its own references. */
static void send_blobs(store_conn *conn, store_blob *head, store_blob *rest)
{
    if (conn->closing) {
        return;
    }
    uv_stream_t *stream = (uv_stream_t *)&conn->tcp;
    if (uv_stream_get_write_queue_size(stream) > QUEUE_LIMIT) {
        lvni_store_drop(conn, "it does not read what the store sends it");
        return;
    }
    store_write *write = head == NULL ? NULL : LVNI_NEW(LVNI_TAG_CONTROL, store_write);
    if (write == NULL) {
        lvni_store_drop(conn, "the store has no memory for what it must be told");
        return;
    }
    write->head = ref(head);
    write->rest = ref(rest);
    write->last = conn->parting;
    conn->said_ns = lvni_now_ns();
    const uv_buf_t bufs[2] = {
        uv_buf_init(head->data, (unsigned)head->n),
        uv_buf_init(rest == NULL ? NULL : rest->data, rest == NULL ? 0 : (unsigned)rest->n)};
    if (uv_write(&write->req, stream, bufs, rest == NULL ? 1 : 2, on_written) != 0) {
        lvni_store_unref(write->head);
        lvni_store_unref(write->rest);
        lvni_free(write);
        lvni_store_drop(conn, "its connection to the store broke");
    }
}

void lvni_store_send_str(store_conn *conn, lvni_str *take)
{
    store_blob *blob = lvni_store_blob(take);
    send_blobs(conn, blob, NULL);
    lvni_store_unref(blob);
}

void lvni_store_broadcast(lvni_store *store, lvni_str *take)
{
    store_blob *blob = lvni_store_blob(take);
    for (int r = 0; r < store->o.world; r++) {
        if (store->ranks[r].state != RANK_LEFT && store->ranks[r].conn != NULL) {
            send_blobs(store->ranks[r].conn, blob, NULL);
        }
    }
    lvni_store_unref(blob);
}

void lvni_store_reply(store_conn *conn, uint32_t id, lvn_status status, const char *message)
{
    lvni_str s = {0};
    const size_t at = lvni_frame_begin(&s, LVNI_FRAME_REPLY);
    lvni_put_u32(&s, id);
    lvni_put_u32(&s, (uint32_t)status);
    lvni_str_append(&s, message);
    lvni_frame_end(&s, at);
    lvni_store_send_str(conn, &s);
}

void lvni_store_answer(store_conn *conn, uint32_t id, store_blob *rest)
{
    lvni_str s = {0};
    lvni_put_u32(&s, (uint32_t)(8 + (rest == NULL ? 0 : rest->n)));
    lvni_put_u32(&s, LVNI_FRAME_REPLY);
    lvni_put_u32(&s, id);
    lvni_put_u32(&s, LVN_OK);
    store_blob *head = lvni_store_blob(&s);
    send_blobs(conn, head, rest);
    lvni_store_unref(head);
}
