/* Keys, counters and who waits for them. Ranks are trusted, but not with all of the memory: the sum
 * of all values is bounded. */
#include "store_impl.h"

#include "core/alloc.h"
#include "core/clock.h"

#include <stdio.h>
#include <string.h>

static const size_t MAX_VALUES = (size_t)256 << 20;

struct lvni_control_entry {
    lvni_control_entry *next;
    bool counter;
    int64_t count;
    lvni_control_blob *value;
    char key[LVNI_CONTROL_MAX_KEY + 1];
};

struct lvni_control_pending_get {
    lvni_control_pending_get *next;
    lvni_control_conn *conn;
    uint32_t id;
    uint64_t asked_ns, until_ns;
    char key[LVNI_CONTROL_MAX_KEY + 1];
};

static lvni_control_entry **bucket_of(lvni_control_store *store, const char *key)
{
    const lvni_control_token hash = lvni_control_siphash(&store->key, key, strlen(key));
    return &store->buckets[(hash.b[0] | (unsigned)hash.b[1] << 8) % LVNI_STORE_BUCKETS];
}

/* The entry, made where it is missing. NULL: no memory. */
static lvni_control_entry *entry_of(lvni_control_store *store, const char *key, bool make)
{
    lvni_control_entry **bucket = bucket_of(store, key);
    for (lvni_control_entry *e = *bucket; e != NULL; e = e->next) {
        if (strcmp(e->key, key) == 0) {
            return e;
        }
    }
    lvni_control_entry *e = make ? LVNI_NEW(LVNI_TAG_CONTROL, lvni_control_entry) : NULL;
    if (e != NULL) {
        snprintf(e->key, sizeof e->key, "%s", key);
        e->next = *bucket;
        *bucket = e;
    }
    return e;
}

static void wake_gets(lvni_control_store *store, const lvni_control_entry *entry)
{
    for (lvni_control_pending_get **at = &store->gets; *at != NULL;) {
        lvni_control_pending_get *get = *at;
        if (strcmp(get->key, entry->key) != 0) {
            at = &get->next;
            continue;
        }
        *at = get->next;
        lvni_control_store_answer(get->conn, get->id, entry->value);
        lvni_core_free(get);
        at = &store->gets; /* an answer may drop a connection, and with it its other gets */
    }
}

static const char *put_value(lvni_control_store *store, const char *key, const char *bytes,
                             size_t n)
{
    lvni_control_entry *entry = entry_of(store, key, true);
    lvni_core_str s = {0};
    lvni_core_str_append_n(&s, bytes, n);
    lvni_control_blob *value = entry == NULL ? NULL : lvni_control_store_blob(&s);
    lvni_core_str_free(&s);
    if (entry == NULL || value == NULL) {
        return "the store has no memory for the value";
    }
    store->value_bytes += n - (entry->value == NULL ? 0 : entry->value->n);
    lvni_control_store_unref(entry->value);
    entry->value = value;
    wake_gets(store, entry);
    return NULL;
}

lvni_control_pending_request lvni_control_store_request(const lvni_control_frame *frame)
{
    lvni_control_pending_request r = {.scan = lvni_control_scan_of(frame)};
    r.id = lvni_control_scan_u32(&r.scan);
    lvni_control_scan_text(&r.scan, r.key, sizeof r.key);
    return r;
}

void lvni_control_store_set(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    lvni_control_store *store = conn->store;
    lvni_control_pending_request r = lvni_control_store_request(frame);
    size_t n = 0;
    const char *bytes = lvni_control_scan_bytes(&r.scan, &n);
    if (!lvni_control_scan_done(&r.scan)) {
        lvni_control_store_drop(conn, "it sent a value that cannot be read");
        return;
    }
    const lvni_control_entry *held = entry_of(store, r.key, false);
    const char *wrong = NULL;
    if (held != NULL && held->counter) {
        wrong = "the key is a counter";
    } else if (store->value_bytes + n > MAX_VALUES) {
        wrong = "the store holds 256 MiB of values already";
    } else {
        wrong = put_value(store, r.key, bytes, n);
    }
    if (wrong != NULL) {
        lvni_control_store_reply(conn, r.id, LVN_ERR_INVALID, wrong);
    } else {
        lvni_control_store_answer(conn, r.id, NULL);
    }
}

void lvni_control_store_add(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    lvni_control_pending_request r = lvni_control_store_request(frame);
    const uint64_t n = lvni_control_scan_u64(&r.scan);
    if (!lvni_control_scan_done(&r.scan)) {
        lvni_control_store_drop(conn, "it sent a number that cannot be read");
        return;
    }
    lvni_control_entry *entry = entry_of(conn->store, r.key, true);
    if (entry == NULL || entry->value != NULL) {
        lvni_control_store_reply(conn, r.id, entry == NULL ? LVN_ERR_MEMORY : LVN_ERR_INVALID,
                                 entry == NULL ? "the store has no memory for the counter"
                                               : "the key is a value, not a counter");
        return;
    }
    entry->counter = true;
    entry->count = (int64_t)((uint64_t)entry->count + n);
    lvni_core_str s = {0};
    lvni_control_put_u64(&s, (uint64_t)entry->count);
    lvni_control_blob *blob = lvni_control_store_blob(&s);
    if (blob == NULL) {
        lvni_control_store_drop(conn, "the store has no memory for an answer");
        return;
    }
    lvni_control_store_answer(conn, r.id, blob);
    lvni_control_store_unref(blob);
}

void lvni_control_store_get(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    lvni_control_store *store = conn->store;
    lvni_control_pending_request r = lvni_control_store_request(frame);
    const uint32_t ms = lvni_control_scan_u32(&r.scan);
    if (!lvni_control_scan_done(&r.scan)) {
        lvni_control_store_drop(conn, "it asked for a key that cannot be read");
        return;
    }
    const lvni_control_entry *entry = entry_of(store, r.key, false);
    if (entry != NULL && entry->value != NULL) {
        lvni_control_store_answer(conn, r.id, entry->value);
        return;
    }
    lvni_control_pending_get *get = entry != NULL && entry->counter
                                        ? NULL
                                        : LVNI_NEW(LVNI_TAG_CONTROL, lvni_control_pending_get);
    if (get == NULL) {
        lvni_control_store_reply(conn, r.id, LVN_ERR_INVALID,
                                 entry != NULL ? "the key is a counter"
                                               : "the store has no memory to wait for the key");
        return;
    }
    const uint64_t now = lvni_core_now_ns();
    *get = (lvni_control_pending_get){.next = store->gets,
                                      .conn = conn,
                                      .id = r.id,
                                      .asked_ns = now,
                                      .until_ns = now + (uint64_t)ms * 1000000};
    snprintf(get->key, sizeof get->key, "%s", r.key);
    store->gets = get;
}

void lvni_control_store_keys_tick(lvni_control_store *store, uint64_t now_ns)
{
    for (lvni_control_pending_get **at = &store->gets; *at != NULL;) {
        lvni_control_pending_get *get = *at;
        if (now_ns < get->until_ns) {
            at = &get->next;
            continue;
        }
        *at = get->next;
        char message[LVNI_CONTROL_MAX_KEY + 80];
        snprintf(message, sizeof message, "nobody set the key '%s' within %.1f s", get->key,
                 (double)(get->until_ns - get->asked_ns) / 1e9);
        lvni_control_store_reply(get->conn, get->id, LVN_ERR_TIMEOUT, message);
        lvni_core_free(get);
        at = &store->gets;
    }
}

void lvni_control_store_forget_gets(lvni_control_store *store, const lvni_control_conn *conn)
{
    for (lvni_control_pending_get **at = &store->gets; *at != NULL;) {
        lvni_control_pending_get *get = *at;
        if (conn != NULL && get->conn != conn) {
            at = &get->next;
            continue;
        }
        *at = get->next;
        lvni_core_free(get);
    }
}

void lvni_control_store_free_keys(lvni_control_store *store)
{
    lvni_control_store_forget_gets(store, NULL);
    for (size_t i = 0; i < LVNI_STORE_BUCKETS; i++) {
        while (store->buckets[i] != NULL) {
            lvni_control_entry *e = store->buckets[i];
            store->buckets[i] = e->next;
            lvni_control_store_unref(e->value);
            lvni_core_free(e);
        }
    }
}
