/* The shared copies of weights (weights_cache.h). Locks: the map's lock, never held while a copy is
 * filled; then the copy's own. A copy in use is pinned, so it can be dropped from the map but not
 * freed. Of the process on purpose, keyed by (tensor, layout): a copy per context would cost each
 * lane a reorder and the memory of a model. */
#include "kernels/cpu/weights_cache.h"

#include "kernels/kernels.h"

#include <pthread.h>

enum { BUCKETS = 1024 };

struct lvni_cpu_weights_copy {
    lvni_cpu_weights_copy *next; /* in the bucket */
    uint64_t id, format;
    uint64_t used; /* clock of the last acquire */
    int pins;      /* under the map's lock */
    bool dropped;  /* no longer in the map: freed by the last release */
    size_t bytes;
    pthread_mutex_t lock; /* of what follows */
    bool filled;
    uint64_t version;
    void *data;
};

static pthread_mutex_t map_lock = PTHREAD_MUTEX_INITIALIZER;
static lvni_cpu_weights_copy *buckets[BUCKETS];
static uint64_t clock_now, n_copies, n_bytes, n_reorders;
static uint64_t max_copies = 1024, max_bytes = (uint64_t)4 << 30;

static size_t bucket_of(uint64_t id, uint64_t format)
{
    return (size_t)(((id * 0x9e3779b97f4a7c15u) ^ format) >> 54) % BUCKETS;
}

static void destroy(lvni_cpu_weights_copy *c)
{
    pthread_mutex_destroy(&c->lock);
    lvni_core_free(c->data);
    lvni_core_free(c);
}

/* Takes *at out of its bucket. */
static void drop(lvni_cpu_weights_copy **at)
{
    lvni_cpu_weights_copy *c = *at;
    *at = c->next;
    n_copies--;
    n_bytes -= c->bytes;
    c->dropped = true;
    if (c->pins == 0) {
        destroy(c);
    }
}

/* Makes room for one more copy of `bytes`: the limit is for models that were never forgotten, so
 * the search may be slow. */
static void make_room(uint64_t bytes)
{
    while (n_copies > 0 && (n_copies + 1 > max_copies || n_bytes + bytes > max_bytes)) {
        lvni_cpu_weights_copy **oldest = NULL;
        for (size_t b = 0; b < BUCKETS; b++) {
            for (lvni_cpu_weights_copy **at = &buckets[b]; *at != NULL; at = &(*at)->next) {
                if ((*at)->pins == 0 && (oldest == NULL || (*at)->used < (*oldest)->used)) {
                    oldest = at;
                }
            }
        }
        if (oldest == NULL) {
            return; /* all in use */
        }
        drop(oldest);
    }
}

static lvni_cpu_weights_copy *insert(uint64_t id, uint64_t format, size_t bytes)
{
    make_room(bytes);
    lvni_cpu_weights_copy *c = LVNI_NEW(LVNI_TAG_KERNEL, lvni_cpu_weights_copy);
    if (c == NULL) {
        return NULL;
    }
    c->data = lvni_core_alloc(LVNI_TAG_KERNEL, bytes);
    if (c->data == NULL) {
        lvni_core_free(c);
        return NULL;
    }
    c->id = id;
    c->format = format;
    c->bytes = bytes;
    pthread_mutex_init(&c->lock, NULL);
    lvni_cpu_weights_copy **head = &buckets[bucket_of(id, format)];
    c->next = *head;
    *head = c;
    n_copies++;
    n_bytes += bytes;
    return c;
}

/* The pinned copy, filled or not. NULL when memory is out. */
static lvni_cpu_weights_copy *pin(uint64_t id, uint64_t format, size_t bytes)
{
    pthread_mutex_lock(&map_lock);
    lvni_cpu_weights_copy *c = buckets[bucket_of(id, format)];
    while (c != NULL && (c->id != id || c->format != format)) {
        c = c->next;
    }
    if (c == NULL) {
        c = insert(id, format, bytes);
    }
    if (c != NULL) {
        c->pins++;
        c->used = ++clock_now;
    }
    pthread_mutex_unlock(&map_lock);
    return c;
}

lvn_status lvni_cpu_weights_acquire(lvni_cpu_dnn_prim *p, dnnl_stream_t stream, const lvn_tensor *w,
                                    void *scratch, lvni_cpu_weights_copy **out)
{
    lvni_cpu_weights_copy *c = pin(w->id, p->format, p->chosen_bytes);
    if (c == NULL) {
        return lvn_last_error()->code;
    }
    lvn_status s = LVN_OK;
    bool fresh = false;
    pthread_mutex_lock(&c->lock);
    if (!c->filled || c->version != w->version) {
        c->filled = false;
        s = lvni_cpu_dnn_reorder(p, stream, w->data, c->data, scratch);
        c->filled = fresh = s == LVN_OK;
        c->version = w->version;
    }
    pthread_mutex_unlock(&c->lock);
    if (s != LVN_OK) {
        lvni_cpu_weights_release(c);
        return s;
    }
    if (fresh) {
        pthread_mutex_lock(&map_lock);
        n_reorders++;
        pthread_mutex_unlock(&map_lock);
    }
    *out = c;
    return LVN_OK;
}

const void *lvni_cpu_weights_data(const lvni_cpu_weights_copy *c)
{
    return c->data;
}

void lvni_cpu_weights_release(lvni_cpu_weights_copy *c)
{
    pthread_mutex_lock(&map_lock);
    const bool last = --c->pins == 0 && c->dropped;
    pthread_mutex_unlock(&map_lock);
    if (last) {
        destroy(c);
    }
}

void lvni_cpu_weights_forget(uint64_t first_id, uint64_t last_id)
{
    pthread_mutex_lock(&map_lock);
    for (size_t b = 0; b < BUCKETS; b++) {
        for (lvni_cpu_weights_copy **at = &buckets[b]; *at != NULL;) {
            if ((*at)->id >= first_id && (*at)->id <= last_id) {
                drop(at);
            } else {
                at = &(*at)->next;
            }
        }
    }
    pthread_mutex_unlock(&map_lock);
}

/* So that a leak checker sees only real leaks. */
__attribute__((destructor)) static void forget_all(void)
{
    lvni_cpu_weights_forget(0, UINT64_MAX);
}

lvni_cpu_weights_stats lvni_cpu_weights_get_stats(void)
{
    pthread_mutex_lock(&map_lock);
    const lvni_cpu_weights_stats s = {.copies = n_copies, .bytes = n_bytes, .reorders = n_reorders};
    pthread_mutex_unlock(&map_lock);
    return s;
}

void lvni_cpu_weights_set_limit(uint64_t copies, uint64_t bytes)
{
    pthread_mutex_lock(&map_lock);
    max_copies = copies != 0 ? copies : max_copies;
    max_bytes = bytes != 0 ? bytes : max_bytes;
    pthread_mutex_unlock(&map_lock);
}
