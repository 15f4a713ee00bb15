/* Captured work of a device: one piece of it at a time. Its addresses stay what they are, so blocks
 * that it took and gave back are kept apart from the allocator's lists: a replay writes into them,
 * and would write into what another owner keeps there by then. Blocks that compute streams share
 * one after the other are safe in the order of the stream, but a block is held across steps as
 * well: by a snapshot, by a batch on its way. */
#include "tensor/device_impl.h"

/* ---- what a step does with the host ---- */

lvni_tensor_device_traffic lvni_tensor_device_get_traffic(lvni_tensor_device *d)
{
    return (lvni_tensor_device_traffic){atomic_load(&d->uploads), atomic_load(&d->waits)};
}

int lvni_tensor_device_join(lvni_tensor_device *d, int more)
{
    return atomic_fetch_add(&d->owners, more) + more;
}

lvn_status lvni_tensor_device_count_wait(lvni_tensor_device *d)
{
    atomic_fetch_add_explicit(&d->waits, 1, memory_order_relaxed);
    if (atomic_load_explicit(&d->capturing, memory_order_acquire)) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s: captured work cannot wait for itself", d->name);
    }
    return LVN_OK;
}

/* ---- blocks, under memory_lock ---- */

bool lvni_tensor_device_captures(const lvni_tensor_device *d, lvn_stream_kind kind)
{
    return kind == LVN_STREAM_COMPUTE && atomic_load(&d->capturing);
}

void lvni_tensor_device_capture_taken(lvni_tensor_device *d, lvn_stream_kind kind,
                                      lvni_tensor_piece *piece)
{
    const bool counts = lvni_tensor_device_captures(d, kind);
    piece->capture = counts ? d->capture : 0;
    d->captured_in_use += counts ? 1 : 0;
}

void lvni_tensor_device_capture_given(lvni_tensor_device *d, lvn_stream_kind kind,
                                      const lvni_tensor_piece *piece)
{
    if (lvni_tensor_device_captures(d, kind)) {
        const bool own = piece->capture == d->capture;
        d->captured_in_use -= own ? 1 : 0;
        d->capture_gave_others = d->capture_gave_others || !own;
    }
}

/* Their next owner uses them after what was submitted. */
static void give_all(lvni_tensor_device *d)
{
    if (d->heap != NULL) {
        lvni_tensor_heap_move(d->heap, LVNI_POOL_CAPTURED, LVN_STREAM_COMPUTE);
    }
}

bool lvni_tensor_device_capture_lose(lvni_tensor_device *d)
{
    if (d->graph == NULL || d->capture_lost) {
        return false;
    }
    d->capture_lost = true;
    give_all(d);
    return true;
}

/* Every block that was taken is back, and no other one. */
static bool all_back(const lvni_tensor_device *d)
{
    return d->captured_in_use == 0 && !d->capture_gave_others && !d->capture_lost;
}

/* ---- begin, end, replay ---- */

static lvn_status begin(lvni_tensor_device *d)
{
    if (d->backend->capture_begin == NULL || d->graph != NULL || atomic_load(&d->capturing)) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s: %s", d->name,
                 d->backend->capture_begin == NULL ? "its backend does not capture"
                                                   : "there is captured work already");
    }
    LVN_TRY(lvni_tensor_device_gather(d)); /* streams cannot wait for each other in it */
    d->capture++;
    d->captured_in_use = 0;
    d->capture_gave_others = d->capture_lost = false;
    atomic_store(&d->capturing, true);
    return LVN_OK;
}

static void end(lvni_tensor_device *d)
{
    pthread_mutex_lock(&d->memory_lock);
    atomic_store(&d->capturing, false);
    give_all(d);
    pthread_mutex_unlock(&d->memory_lock);
}

lvn_status lvni_tensor_device_capture_begin(lvni_tensor_device *d)
{
    void *stream = lvni_tensor_device_stream(d);
    if (stream == NULL) {
        return lvn_last_error()->code;
    }
    pthread_mutex_lock(&d->memory_lock);
    lvn_status s = begin(d);
    pthread_mutex_unlock(&d->memory_lock);
    LVN_TRY(s);
    s = d->backend->capture_begin(stream);
    if (s != LVN_OK) {
        end(d);
    }
    return s;
}

lvn_status lvni_tensor_device_capture_end(lvni_tensor_device *d, bool keep)
{
    void *graph = NULL;
    lvn_status s = d->backend->capture_end(lvni_tensor_device_stream(d), &graph);
    /* what was given back meanwhile to copies that must wait for kernels */
    (void)lvni_tensor_device_order(d, LVN_STREAM_COPY, LVN_STREAM_COMPUTE);
    pthread_mutex_lock(&d->memory_lock);
    atomic_store(&d->capturing, false);
    const bool whole = all_back(d);
    if (s == LVN_OK && keep && whole) {
        d->graph = graph;
    } else {
        give_all(d);
    }
    pthread_mutex_unlock(&d->memory_lock);
    if (d->graph == NULL && s == LVN_OK) {
        d->backend->graph_destroy(graph);
    }
    if (s == LVN_OK && keep && !whole) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s: captured work keeps memory beyond its end", d->name);
    }
    return s;
}

lvn_status lvni_tensor_device_replay(lvni_tensor_device *d, bool *lost)
{
    void *stream = lvni_tensor_device_stream(d);
    lvn_status s = LVN_OK;
    if (stream == NULL) {
        return lvn_last_error()->code;
    }
    pthread_mutex_lock(&d->memory_lock); /* the memory goes to no one meanwhile */
    *lost = d->graph == NULL || d->capture_lost;
    if (!*lost) {
        s = d->backend->graph_replay(d->graph, stream);
    }
    pthread_mutex_unlock(&d->memory_lock);
    return s;
}

void lvni_tensor_device_capture_drop(lvni_tensor_device *d)
{
    void *stream = d->graph == NULL ? NULL : lvni_tensor_device_stream(d);
    if (stream != NULL) {
        (void)d->backend->stream_wait(stream); /* an error stays the stream's */
    }
    pthread_mutex_lock(&d->memory_lock);
    void *graph = d->graph;
    d->graph = NULL;
    give_all(d);
    pthread_mutex_unlock(&d->memory_lock);
    if (graph != NULL) {
        d->backend->graph_destroy(graph);
    }
}

void lvni_tensor_device_capture_free(lvni_tensor_device *d)
{
    give_all(d);
    if (d->graph != NULL) {
        d->backend->graph_destroy(d->graph);
    }
}
