/* A chained hash table in the context's scratch object (onednn_table.h). */
#include "kernels/cpu/onednn_table.h"

#include "kernels/cpu/scratch.h"

#include <string.h>

enum { BUCKETS = 256, MAX_ENTRIES = 1024 };

typedef struct entry {
    struct entry *next;
    lvni_dnn_key key;
    lvni_dnn_prim prim;
} entry;

typedef struct table {
    dnnl_stream_t stream;
    int count;
    entry *buckets[BUCKETS];
} table;

static void clear(table *t)
{
    for (int b = 0; b < BUCKETS; b++) {
        for (entry *e = t->buckets[b]; e != NULL;) {
            entry *next = e->next;
            lvni_dnn_prim_destroy(&e->prim);
            lvni_free(e);
            e = next;
        }
        t->buckets[b] = NULL;
    }
    t->count = 0;
}

static void release(void *p)
{
    table *t = p;
    clear(t);
    lvni_dnn_stream_destroy(t->stream);
    lvni_free(t);
}

static lvn_status get_table(table **out)
{
    void **place = lvni_scratch_attachment(release);
    if (place == NULL) {
        return lvn_last_error()->code;
    }
    if (*place == NULL) {
        table *t = LVNI_NEW(LVNI_TAG_KERNEL, table);
        if (t == NULL) {
            return lvn_last_error()->code;
        }
        const lvn_status s = lvni_dnn_stream_create(&t->stream);
        if (s != LVN_OK) {
            lvni_free(t);
            return s;
        }
        *place = t;
    }
    *out = *place;
    return LVN_OK;
}

static size_t bucket_of(const lvni_dnn_key *key)
{
    uint64_t words[sizeof *key / 8], h = 14695981039346656037u;
    memcpy(words, key, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        h = (h ^ words[i]) * 1099511628211u;
        h ^= h >> 29;
    }
    return (size_t)(h % BUCKETS);
}

static lvn_status make(const lvni_dnn_key *key, entry **out)
{
    entry *e = LVNI_NEW(LVNI_TAG_KERNEL, entry);
    if (e == NULL) {
        return lvn_last_error()->code;
    }
    e->key = *key;
    const lvn_status s = key->op == LVNI_DNN_MATMUL
                             ? lvni_dnn_matmul_create(&key->shape.matmul, key->bias != 0, &e->prim)
                             : lvni_dnn_conv_create((lvni_dnn_op)key->op, &key->shape.conv, key->bias != 0, &e->prim);
    if (s != LVN_OK) {
        lvni_free(e);
        return s;
    }
    *out = e;
    return LVN_OK;
}

lvn_status lvni_dnn_lookup(const lvni_dnn_key *key, lvni_dnn_prim **prim, dnnl_stream_t *stream)
{
    table *t = NULL;
    LVN_TRY(get_table(&t));
    *stream = t->stream;
    entry **head = &t->buckets[bucket_of(key)];
    for (entry *e = *head; e != NULL; e = e->next) {
        if (memcmp(&e->key, key, sizeof *key) == 0) {
            *prim = &e->prim;
            return LVN_OK;
        }
    }
    if (t->count == MAX_ENTRIES) {
        clear(t); /* pictures of ever new sizes; making them again costs microseconds while oneDNN still has the code */
    }
    entry *e = NULL;
    LVN_TRY(make(key, &e));
    e->next = *head;
    *head = e;
    t->count++;
    *prim = &e->prim;
    return LVN_OK;
}
