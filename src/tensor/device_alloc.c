/* The caching allocator over a device's addresses: size classes as in ctx.c, free lists by the kind
 * of stream that blocks are for, blocks cut from holes, first fit. What is free is described in
 * host memory. When no hole is large enough the backend is asked for another segment, then other
 * kinds' blocks are taken, then all blocks kept for reuse become holes again, once, before it
 * fails. Nothing here depends on time: the same calls in the same order give the same addresses. */
#include "tensor/device_impl.h"

#include "core/str.h"

#include <string.h>

enum { ROUND = 2 << 20 };
static const uint64_t SEGMENT = 32 << 20;

lvn_status lvni_tensor_device_memory_init(lvni_tensor_device *d)
{
    pthread_mutex_init(&d->memory_lock, NULL);
    d->free_list = lvni_core_calloc(LVNI_TAG_TENSOR, (size_t)LVN_STREAM_KINDS * LVNI_SIZE_CLASSES,
                                    sizeof *d->free_list);
    return d->free_list == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static void free_list(lvni_tensor_piece *piece)
{
    while (piece != NULL) {
        lvni_tensor_piece *next = piece->next;
        lvni_core_free(piece);
        piece = next;
    }
}

static void end_segment(lvni_tensor_device *d, lvni_tensor_segment *s)
{
    lvni_tensor_device_place_remove(s->p);
    d->backend->give(d->state, s->p, s->bytes);
    d->taken -= s->bytes;
    lvni_core_free(s);
}

void lvni_tensor_device_memory_free(lvni_tensor_device *d)
{
    lvni_tensor_device_capture_free(d);
    for (int k = 0; d->free_list != NULL && k < LVN_STREAM_KINDS * LVNI_SIZE_CLASSES; k++) {
        free_list(d->free_list[k]);
    }
    free_list(d->holes);
    free_list(d->spare);
    while (d->segments != NULL) {
        lvni_tensor_segment *s = d->segments;
        d->segments = s->next;
        end_segment(d, s);
    }
    lvni_core_free(d->free_list);
    pthread_mutex_destroy(&d->memory_lock);
}

static void push(lvni_tensor_piece **list, lvni_tensor_piece *piece)
{
    piece->next = *list;
    *list = piece;
}

static lvni_tensor_piece *pop(lvni_tensor_piece **list)
{
    lvni_tensor_piece *piece = *list;
    *list = piece->next;
    return piece;
}

static lvni_tensor_piece **list_of(lvni_tensor_device *d, lvn_stream_kind kind, int k)
{
    return &d->free_list[(int)kind * LVNI_SIZE_CLASSES + k];
}

static void *take_free(lvni_tensor_device *d, lvn_stream_kind kind, int k, size_t got);

/* From the first hole that is large enough; NULL: none is. */
static char *cut(lvni_tensor_device *d, size_t bytes)
{
    for (lvni_tensor_piece **at = &d->holes; *at != NULL; at = &(*at)->next) {
        lvni_tensor_piece *hole = *at;
        if (hole->bytes >= bytes) {
            char *p = hole->p;
            hole->p += bytes;
            hole->bytes -= bytes;
            if (hole->bytes == 0) {
                push(&d->spare, pop(at));
            }
            d->held += bytes;
            d->peak = d->held > d->peak ? d->held : d->peak;
            return p;
        }
    }
    return NULL;
}

/* Two segments may lie side by side, and are two all the same. */
static bool one_segment(const lvni_tensor_device *d, const char *a, const char *b)
{
    for (const lvni_tensor_segment *s = d->segments; s != NULL; s = s->next) {
        if (a >= s->p && a < s->p + s->bytes) {
            return b >= s->p && b < s->p + s->bytes;
        }
    }
    return false;
}

/* Into the holes, in its place; joined with its neighbours. */
static void add_hole(lvni_tensor_device *d, lvni_tensor_piece *piece)
{
    lvni_tensor_piece **at = &d->holes;
    while (*at != NULL &&
           ((*at)->p + (*at)->bytes < piece->p ||
            ((*at)->p + (*at)->bytes == piece->p && !one_segment(d, (*at)->p, piece->p)))) {
        at = &(*at)->next;
    }
    if (*at != NULL && (*at)->p + (*at)->bytes == piece->p) {
        (*at)->bytes += piece->bytes;
        push(&d->spare, piece);
        piece = *at;
    } else {
        push(at, piece);
    }
    if (piece->next != NULL && piece->p + piece->bytes == piece->next->p &&
        one_segment(d, piece->p, piece->next->p)) {
        piece->bytes += piece->next->bytes;
        push(&d->spare, pop(&piece->next));
    }
}

/* Blocks of all kinds may become one hole: each kind waits for the others. */
static lvn_status give_up_free_blocks(lvni_tensor_device *d)
{
    d->given_up++;
    LVN_TRY(lvni_tensor_device_order(d, LVN_STREAM_COMPUTE, LVN_STREAM_COPY));
    LVN_TRY(lvni_tensor_device_order(d, LVN_STREAM_COPY, LVN_STREAM_COMPUTE));
    for (int k = 0; k < LVN_STREAM_KINDS * LVNI_SIZE_CLASSES; k++) {
        while (d->free_list[k] != NULL) {
            lvni_tensor_piece *piece = pop(&d->free_list[k]);
            d->held -= piece->bytes;
            add_hole(d, piece);
        }
    }
    return LVN_OK;
}

/* Segments of which nothing is in use go back to the backend, which can give a larger one then. */
static void give_back_segments(lvni_tensor_device *d)
{
    for (lvni_tensor_segment **at = &d->segments; *at != NULL;) {
        lvni_tensor_segment *s = *at;
        lvni_tensor_piece **hole = &d->holes;
        while (*hole != NULL && ((*hole)->p != s->p || (*hole)->bytes != s->bytes)) {
            hole = &(*hole)->next;
        }
        if (*hole != NULL) {
            push(&d->spare, pop(hole));
            *at = s->next;
            end_segment(d, s);
        } else {
            at = &s->next;
        }
    }
}

/* LVN_ERR_DEVICE_MEMORY: the device has no more. */
static lvn_status add_segment(lvni_tensor_device *d, size_t bytes)
{
    void *p = NULL;
    LVN_TRY(d->backend->take(d->state, bytes, &p));
    lvni_tensor_segment *s = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_segment);
    lvni_tensor_piece *hole = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_piece);
    const lvn_status status =
        s == NULL || hole == NULL ? LVN_ERR_MEMORY : lvni_tensor_device_place_add(d, p, bytes);
    if (status != LVN_OK) {
        d->backend->give(d->state, p, bytes);
        lvni_core_free(s);
        lvni_core_free(hole);
        return status;
    }
    *s = (lvni_tensor_segment){.next = d->segments, .p = p, .bytes = bytes};
    *hole = (lvni_tensor_piece){.p = p, .bytes = bytes};
    d->segments = s;
    d->taken += bytes;
    add_hole(d, hole);
    return LVN_OK;
}

/* Segments grow with what is taken, so that there are few; the last one is what is left. */
static lvn_status grow(lvni_tensor_device *d, size_t bytes)
{
    const uint64_t least = d->info.segment > 0 ? d->info.segment : SEGMENT,
                   left = d->info.memory - d->taken, exact = ((uint64_t)bytes + 4095) / 4096 * 4096;
    uint64_t want = d->taken / 8 > least ? d->taken / 8 : least;
    want = want > bytes ? want : bytes;
    want = (want + ROUND - 1) / ROUND * ROUND;
    want = want < left ? want : left;
    lvn_status s = want >= bytes ? add_segment(d, (size_t)want) : LVN_ERR_DEVICE_MEMORY;
    if (s == LVN_ERR_DEVICE_MEMORY && exact < want) {
        s = add_segment(d, (size_t)exact);
    }
    return s;
}

static void fail_full(const lvni_tensor_device *d, size_t bytes)
{
    char asked[LVNI_BYTES_TEXT], used[LVNI_BYTES_TEXT], all[LVNI_BYTES_TEXT];
    lvn_error_set(LVN_ERR_DEVICE_MEMORY, __FILE__, __LINE__,
                  "%s is out of memory: %s were asked for, and %s of its %s are in use; smaller "
                  "batches (batch_size, eval_batch_size) or samples, more micro-batches or fewer "
                  "lanes need less",
                  d->name, lvni_core_bytes_text(bytes, asked),
                  lvni_core_bytes_text(d->in_use, used), lvni_core_bytes_text(d->info.memory, all));
}

/* A block of the class that another kind of stream has no use for now. */
static char *take_of_others(lvni_tensor_device *d, lvn_stream_kind kind, int k)
{
    for (int other = 0; other < LVN_STREAM_KINDS; other++) {
        lvni_tensor_piece **list = list_of(d, (lvn_stream_kind)other, k);
        if (other != (int)kind && *list != NULL &&
            lvni_tensor_device_order(d, kind, (lvn_stream_kind)other) == LVN_OK) {
            lvni_tensor_piece *piece = pop(list);
            push(&d->spare, piece);
            return piece->p;
        }
    }
    return NULL;
}

static void *new_block(lvni_tensor_device *d, lvn_stream_kind kind, int k, size_t bytes)
{
    /* for the day the block comes back */
    lvni_tensor_piece *later = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_piece);
    if (later == NULL) {
        return NULL;
    }
    char *p = cut(d, bytes);
    lvn_status grown = p == NULL ? grow(d, bytes) : LVN_OK;
    if (p == NULL && grown == LVN_OK) {
        p = cut(d, bytes);
    }
    if (p == NULL && grown == LVN_ERR_DEVICE_MEMORY && lvni_tensor_device_capture_lose(d)) {
        lvni_core_free(later);
        return take_free(d, kind, k, bytes);
    }
    /* streams would have to wait for each other, which a capture takes as part of the work */
    const bool orders = !atomic_load(&d->capturing);
    if (p == NULL && grown == LVN_ERR_DEVICE_MEMORY && orders) {
        p = take_of_others(d, kind, k);
        if (p != NULL) { /* it has its piece */
            lvni_core_free(later);
            return p;
        }
        if (give_up_free_blocks(d) == LVN_OK) {
            p = cut(d, bytes);
        }
    }
    if (p == NULL && grown == LVN_ERR_DEVICE_MEMORY && orders) {
        give_back_segments(d);
        grown = grow(d, bytes);
        p = grown == LVN_OK ? cut(d, bytes) : NULL;
    }
    if (p == NULL && grown != LVN_ERR_DEVICE_MEMORY) {
        lvni_core_free(later);
        return NULL;
    }
    if (p == NULL) {
        lvni_core_free(later);
        fail_full(d, bytes);
        return NULL;
    }
    push(&d->spare, later);
    return p;
}

static bool must_fail(lvni_tensor_device *d)
{
    return d->fail_in > 0 && --d->fail_in == 0;
}

static void *take_free(lvni_tensor_device *d, lvn_stream_kind kind, int k, size_t got)
{
    lvni_tensor_piece **list = list_of(d, kind, k);
    if (*list == NULL) {
        return new_block(d, kind, k, got);
    }
    lvni_tensor_piece *piece = pop(list);
    push(&d->spare, piece);
    return piece->p;
}

static void *take_class(lvni_tensor_device *d, lvn_stream_kind kind, int k, size_t got)
{
    if (must_fail(d)) {
        lvn_error_set(LVN_ERR_DEVICE_MEMORY, __FILE__, __LINE__,
                      "%s: this allocation was set to fail", d->name);
        return NULL;
    }
    void *p = lvni_tensor_device_capture_take(d, kind, k);
    if (p == NULL) {
        p = take_free(d, kind, k, got);
        lvni_tensor_device_capture_note(d, kind, p);
    }
    return p;
}

void *lvni_tensor_device_take(lvni_tensor_device *d, lvn_stream_kind kind, size_t bytes,
                              size_t *got)
{
    if (bytes > LVNI_SIZE_LIMIT) {
        lvn_error_set(LVN_ERR_DEVICE_MEMORY, __FILE__, __LINE__,
                      "%s: a tensor of %zu bytes is too large", d->name, bytes);
        return NULL;
    }
    const int k = lvni_tensor_size_class(bytes, got);
    pthread_mutex_lock(&d->memory_lock);
    void *p = take_class(d, kind, k, *got);
    d->in_use += p == NULL ? 0 : *got;
    d->most = d->in_use > d->most ? d->in_use : d->most;
    pthread_mutex_unlock(&d->memory_lock);
    return p;
}

void lvni_tensor_device_give(lvni_tensor_device *d, lvn_stream_kind kind, bool crossed, void *p,
                             size_t got)
{
    size_t size;
    const int k = lvni_tensor_size_class(got, &size);
    pthread_mutex_lock(&d->memory_lock);
    for (int other = 0; crossed && other < LVN_STREAM_KINDS; other++) {
        if (other != (int)kind) {
            /* it can fail for a device that failed: nothing runs there any more */
            (void)lvni_tensor_device_order(d, kind, (lvn_stream_kind)other);
        }
    }
    lvni_tensor_piece *piece = pop(&d->spare);
    piece->p = p;
    piece->bytes = size;
    push(lvni_tensor_device_list(d, kind, k), piece);
    d->in_use -= size;
    pthread_mutex_unlock(&d->memory_lock);
}

void lvni_tensor_device_fail_at(lvni_tensor_device *d, int64_t k)
{
    pthread_mutex_lock(&d->memory_lock);
    d->fail_in = k;
    pthread_mutex_unlock(&d->memory_lock);
}

lvni_tensor_device_stats lvni_tensor_device_get_stats(lvni_tensor_device *d)
{
    pthread_mutex_lock(&d->memory_lock);
    const lvni_tensor_device_stats s = {.limit = d->info.memory,
                                        .in_use = d->in_use,
                                        .held = d->held,
                                        .peak = d->peak,
                                        .given_up = d->given_up,
                                        .most = d->most};
    pthread_mutex_unlock(&d->memory_lock);
    return s;
}

void lvni_tensor_device_forget_most(lvni_tensor_device *d)
{
    pthread_mutex_lock(&d->memory_lock);
    d->most = d->in_use;
    pthread_mutex_unlock(&d->memory_lock);
}
