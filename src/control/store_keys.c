/* What ranks exchange through the store: values and counters by key, with the ranks that wait for a
 * key, and gathers, where every rank brings bytes and the last one to come completes it for all.
 * Ranks are trusted, but not with all of the memory: the sum of all values is bounded. */
#include "store_impl.h"

#include "core/alloc.h"
#include "core/machine.h"
#include "core/str.h"

#include <stdio.h>
#include <string.h>

/* ---- Keys ---- */

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
        lvni_control_conn_reply(get->conn, get->id, entry->value);
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
    lvni_control_blob *value = entry == NULL ? NULL : lvni_control_blob_create(&s);
    lvni_core_str_free(&s);
    if (entry == NULL || value == NULL) {
        return "the store has no memory for the value";
    }
    store->value_bytes += n - (entry->value == NULL ? 0 : entry->value->n);
    lvni_control_blob_unref(entry->value);
    entry->value = value;
    wake_gets(store, entry);
    return NULL;
}

/* How SET, GET, ADD and GATHER begin; the rest of the body is still in the scan. */
typedef struct key_request {
    lvni_control_scan scan;
    uint32_t id;
    char key[LVNI_CONTROL_MAX_KEY + 1];
} key_request;

static key_request scan_request(const lvni_control_frame *frame)
{
    key_request r = {.scan = lvni_control_scan_of(frame)};
    r.id = lvni_control_scan_u32(&r.scan);
    lvni_control_scan_text(&r.scan, r.key, sizeof r.key);
    return r;
}

void lvni_control_store_set(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    lvni_control_store *store = conn->store;
    key_request r = scan_request(frame);
    size_t n = 0;
    const char *bytes = lvni_control_scan_bytes(&r.scan, &n);
    if (!lvni_control_scan_done(&r.scan)) {
        lvni_control_conn_drop(conn, "it sent a value that cannot be read");
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
        lvni_control_conn_reply_error(conn, r.id, LVN_ERR_INVALID, wrong);
    } else {
        lvni_control_conn_reply(conn, r.id, NULL);
    }
}

void lvni_control_store_add(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    key_request r = scan_request(frame);
    const uint64_t n = lvni_control_scan_u64(&r.scan);
    if (!lvni_control_scan_done(&r.scan)) {
        lvni_control_conn_drop(conn, "it sent a number that cannot be read");
        return;
    }
    lvni_control_entry *entry = entry_of(conn->store, r.key, true);
    if (entry == NULL || entry->value != NULL) {
        lvni_control_conn_reply_error(conn, r.id, entry == NULL ? LVN_ERR_MEMORY : LVN_ERR_INVALID,
                                      entry == NULL ? "the store has no memory for the counter"
                                                    : "the key is a value, not a counter");
        return;
    }
    entry->counter = true;
    entry->count = (int64_t)((uint64_t)entry->count + n);
    lvni_core_str s = {0};
    lvni_control_put_u64(&s, (uint64_t)entry->count);
    lvni_control_blob *blob = lvni_control_blob_create(&s);
    if (blob == NULL) {
        lvni_control_conn_drop(conn, "the store has no memory for an answer");
        return;
    }
    lvni_control_conn_reply(conn, r.id, blob);
    lvni_control_blob_unref(blob);
}

void lvni_control_store_get(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    lvni_control_store *store = conn->store;
    key_request r = scan_request(frame);
    const uint32_t ms = lvni_control_scan_u32(&r.scan);
    if (!lvni_control_scan_done(&r.scan)) {
        lvni_control_conn_drop(conn, "it asked for a key that cannot be read");
        return;
    }
    const lvni_control_entry *entry = entry_of(store, r.key, false);
    if (entry != NULL && entry->value != NULL) {
        lvni_control_conn_reply(conn, r.id, entry->value);
        return;
    }
    lvni_control_pending_get *get = entry != NULL && entry->counter
                                        ? NULL
                                        : LVNI_NEW(LVNI_TAG_CONTROL, lvni_control_pending_get);
    if (get == NULL) {
        lvni_control_conn_reply_error(
            conn, r.id, LVN_ERR_INVALID,
            entry != NULL ? "the key is a counter" : "the store has no memory to wait for the key");
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
        lvni_core_format(message, sizeof message, "key '%s' was not set within %.1f s", get->key,
                         (double)(get->until_ns - get->asked_ns) / 1e9);
        lvni_control_conn_reply_error(get->conn, get->id, LVN_ERR_TIMEOUT, message);
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
            lvni_control_blob_unref(e->value);
            lvni_core_free(e);
        }
    }
}

/* ---- Gathers ---- */

typedef struct gather_part {
    bool here;
    uint32_t id;
    char *data;
    size_t n;
} gather_part;

struct lvni_control_pending_gather {
    lvni_control_pending_gather *next;
    int n_here;
    size_t bytes;
    uint64_t began_ns, until_ns; /* the end of the shortest patience */
    char name[LVNI_CONTROL_MAX_KEY + 1];
    gather_part parts[]; /* world */
};

static lvni_control_pending_gather *gather_of(lvni_control_store *store, const char *name)
{
    for (lvni_control_pending_gather *g = store->gathers; g != NULL; g = g->next) {
        if (strcmp(g->name, name) == 0) {
            return g;
        }
    }
    const size_t world = (size_t)store->o.world;
    lvni_control_pending_gather *g =
        lvni_core_calloc(LVNI_TAG_CONTROL, 1, sizeof *g + world * sizeof *g->parts);
    if (g != NULL) {
        snprintf(g->name, sizeof g->name, "%s", name);
        g->began_ns = lvni_core_now_ns();
        g->until_ns = UINT64_MAX;
        g->next = store->gathers;
        store->gathers = g;
    }
    return g;
}

static void unlink_gather(lvni_control_store *store, const lvni_control_pending_gather *gather)
{
    lvni_control_pending_gather **at = &store->gathers;
    while (*at != gather) {
        at = &(*at)->next;
    }
    *at = gather->next;
}

static void free_gather(const lvni_control_store *store, lvni_control_pending_gather *gather)
{
    for (int r = 0; r < store->o.world; r++) {
        lvni_core_free(gather->parts[r].data);
    }
    lvni_core_free(gather);
}

/* Ends a gather for all ranks that wait in it: with the answer, or with a status and a message. */
static void end_gather(lvni_control_store *store, lvni_control_pending_gather *gather,
                       lvni_control_blob *answer, lvn_status status, const char *message)
{
    unlink_gather(store, gather); /* answers may drop connections, which look at the list */
    for (int r = 0; r < store->o.world; r++) {
        lvni_control_conn *conn = store->ranks[r].conn;
        if (!gather->parts[r].here || conn == NULL) {
            continue;
        }
        if (answer != NULL) {
            lvni_control_conn_reply(conn, gather->parts[r].id, answer);
        } else {
            lvni_control_conn_reply_error(conn, gather->parts[r].id, status, message);
        }
    }
    free_gather(store, gather);
}

static void complete_gather(lvni_control_store *store, lvni_control_pending_gather *gather)
{
    if (gather->bytes + 4 * (size_t)store->o.world + 64 > LVNI_FRAME_MAX_TO_RANK) {
        end_gather(store, gather, NULL, LVN_ERR_INVALID,
                   "a gather holds at most 512 MiB of all ranks together");
        return;
    }
    lvni_core_str s = {0};
    for (int r = 0; r < store->o.world; r++) {
        lvni_control_put_bytes(&s, gather->parts[r].data, gather->parts[r].n);
    }
    lvni_control_blob *answer = lvni_control_blob_create(&s);
    lvni_core_str_free(&s);
    end_gather(store, gather, answer, LVN_ERR_MEMORY,
               "the store has no memory for what the ranks gather");
    lvni_control_blob_unref(answer);
}

/* A rank that cannot join the gather any more, as it has left. -1: none. */
static int missing_for_good(const lvni_control_store *store,
                            const lvni_control_pending_gather *gather)
{
    for (int r = 0; r < store->o.world; r++) {
        if (!gather->parts[r].here && store->ranks[r].state == LVNI_RANK_LEFT) {
            return r;
        }
    }
    return -1;
}

static void end_without(lvni_control_store *store, lvni_control_pending_gather *gather, int rank)
{
    char message[LVNI_CONTROL_MAX_KEY + 100];
    snprintf(message, sizeof message, "gather '%s' cannot end: rank %d has left the run",
             gather->name, rank);
    end_gather(store, gather, NULL, LVN_ERR_PEER, message);
}

void lvni_control_store_gather(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    lvni_control_store *store = conn->store;
    key_request r = scan_request(frame);
    const uint32_t ms = lvni_control_scan_u32(&r.scan);
    size_t n = 0;
    const char *bytes = lvni_control_scan_bytes(&r.scan, &n);
    if (!lvni_control_scan_done(&r.scan)) {
        lvni_control_conn_drop(conn, "it sent a part of a gather that cannot be read");
        return;
    }
    lvni_control_pending_gather *gather = gather_of(store, r.key);
    gather_part *part = gather == NULL ? NULL : &gather->parts[conn->rank];
    if (part != NULL && part->here) {
        lvni_control_conn_reply_error(conn, r.id, LVN_ERR_INVALID,
                                      "this rank is in a gather of the same name already");
        return;
    }
    char *data = part == NULL ? NULL : lvni_core_alloc(LVNI_TAG_CONTROL, n);
    if (part == NULL || data == NULL) {
        lvni_control_conn_reply_error(conn, r.id, LVN_ERR_MEMORY,
                                      "the store has no memory for a part of a gather");
        return;
    }
    memcpy(data, bytes, n);
    *part = (gather_part){.here = true, .id = r.id, .data = data, .n = n};
    gather->bytes += n;
    const uint64_t until = lvni_core_now_ns() + (uint64_t)ms * 1000000;
    gather->until_ns = until < gather->until_ns ? until : gather->until_ns;
    const int gone = missing_for_good(store, gather);
    if (++gather->n_here == store->o.world) {
        complete_gather(store, gather);
    } else if (gone >= 0) {
        end_without(store, gather, gone);
    }
}

void lvni_control_store_rank_left_gathers(lvni_control_store *store, int rank)
{
    for (lvni_control_pending_gather *g = store->gathers; g != NULL;) {
        if (g->parts[rank].here) {
            g = g->next;
            continue;
        }
        end_without(store, g, rank);
        g = store->gathers; /* end_gather changes the list */
    }
}

static bool not_in_gather(const lvni_control_store_rank *rank, const void *arg)
{
    const lvni_control_pending_gather *gather = ((const void *const *)arg)[0];
    const lvni_control_store_rank *first = ((const void *const *)arg)[1];
    return !gather->parts[rank - first].here;
}

void lvni_control_store_gathers_tick(lvni_control_store *store, uint64_t now_ns)
{
    for (lvni_control_pending_gather *g = store->gathers; g != NULL;) {
        if (now_ns < g->until_ns) {
            g = g->next;
            continue;
        }
        lvni_core_str s = {0};
        const void *const arg[2] = {g, store->ranks};
        lvni_core_str_printf(&s, "gather '%s': ", g->name);
        lvni_control_store_name_ranks(store, &s, not_in_gather, arg);
        lvni_core_str_printf(&s, " did not come within %.1f s",
                             (double)(g->until_ns - g->began_ns) / 1e9);
        end_gather(store, g, NULL, LVN_ERR_TIMEOUT, lvni_core_str_text(&s));
        lvni_core_str_free(&s);
        g = store->gathers;
    }
}

void lvni_control_store_free_gathers(lvni_control_store *store)
{
    while (store->gathers != NULL) {
        lvni_control_pending_gather *g = store->gathers;
        store->gathers = g->next;
        free_gather(store, g);
    }
}
