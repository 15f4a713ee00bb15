/* The caching allocator over a device's addresses, which are kept in pieces (device_heap.h). A
 * large block comes from the low end of the smallest free piece with room for it, any other from
 * a piece that it fills or else from the high end of the highest one, so that what lives long and
 * is not large (batches, results of late layers) never lies between the holes that large ones
 * leave. Both look at the pieces of their kind of stream and at those that no stream uses, and take
 * two that lie side by side as one. When there is none the backend is asked for another segment;
 * then captured work is given up; then every free piece becomes one of all kinds of streams, which
 * wait for each other; then unused segments go back for a larger one, before it fails. Small blocks
 * lie in pieces of their own, from the high end of what is free. Nothing here depends on time: the
 * same calls in the same order give the same addresses. */
#include "tensor/device_impl.h"

#include "core/str.h"
#include "tensor/device_blocks.h"
#include "tensor/large_blocks.h"

#include <string.h>

enum { ROUND = 2 << 20 };
static const uint64_t SEGMENT = 32 << 20;
/* Blocks below the first are small; pieces that they are cut from are at most the second. */
static const size_t SMALL = 64 << 10, FOR_SMALL = 1 << 20;
/* Large ones take this part of the most that was in use so far, and more: not of what the device
 * gave, or a training that fits into a device might not fit into a larger one. A hole that is
 * larger by less than this part of the block is filled wherever it lies. Of 201 random trainings
 * all run with 1.15 times what they have in use at their peak; of the same 24 did not when all
 * blocks came from the low end. */
enum { LARGE_PART = 24, TIGHT_PART = 4 };
/* What is left of the device is one segment when it is less than two of the next ones, or this many
 * of the smallest: the hole at the end of each is lost to blocks that are larger. */
enum { REST = 4 };

struct lvni_tensor_class_count {
    int64_t now, most;
};

static _Atomic uint64_t most_memory = UINT64_MAX;

void lvni_tensor_device_limit_memory(uint64_t bytes)
{
    atomic_store(&most_memory, bytes);
}

lvn_status lvni_tensor_device_memory_init(lvni_tensor_device *d)
{
    pthread_mutex_init(&d->memory_lock, NULL);
    d->heap = lvni_tensor_heap_create();
    if (d->heap == NULL || !lvni_tensor_device_is_dry(d)) {
        return d->heap == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    d->classes = lvni_core_calloc(LVNI_TAG_TENSOR, LVNI_SIZE_CLASSES, sizeof *d->classes);
    return d->classes == NULL ? LVN_ERR_MEMORY : lvni_tensor_large_create(true, &d->large);
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
    while (d->segments != NULL) {
        lvni_tensor_segment *s = d->segments;
        d->segments = s->next;
        end_segment(d, s);
    }
    lvni_tensor_heap_destroy(d->heap);
    lvni_core_free(d->classes);
    lvni_tensor_large_destroy(d->large);
    pthread_mutex_destroy(&d->memory_lock);
}

/* ---- segments ---- */

static uint64_t limit_of(const lvni_tensor_device *d)
{
    const uint64_t most = lvni_tensor_device_is_dry(d) ? UINT64_MAX : atomic_load(&most_memory);
    return d->info.memory < most ? d->info.memory : most / 4096 * 4096;
}

/* LVN_ERR_DEVICE_MEMORY: the device has no more. */
static lvn_status add_segment(lvni_tensor_device *d, size_t bytes)
{
    void *p = NULL;
    LVN_TRY(d->backend->take(d->state, bytes, &p));
    lvni_tensor_segment *s = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_segment);
    const lvn_status status =
        s == NULL ? LVN_ERR_MEMORY : lvni_tensor_device_place_add(d, p, bytes);
    if (status != LVN_OK) {
        d->backend->give(d->state, p, bytes);
        lvni_core_free(s);
        return status;
    }
    *s = (lvni_tensor_segment){.next = d->segments,
                               .p = p,
                               .bytes = bytes,
                               .lowest = lvni_tensor_heap_add(d->heap, p, bytes)};
    d->segments = s;
    d->taken += bytes;
    return LVN_OK;
}

/* Segments grow with what is taken, so that there are few. Pieces of two segments never join, so
 * the last one is all that is left; where others have a part of it, it is smaller. */
static lvn_status grow(lvni_tensor_device *d, size_t bytes)
{
    const uint64_t least = d->info.segment > 0 ? d->info.segment : SEGMENT, limit = limit_of(d),
                   left = limit > d->taken ? limit - d->taken : 0,
                   exact = ((uint64_t)bytes + 4095) / 4096 * 4096;
    uint64_t want = d->taken / 8 > least ? d->taken / 8 : least;
    want = want > bytes ? want : bytes;
    want = (want + ROUND - 1) / ROUND * ROUND;
    const bool all = left < 2 * want || left < REST * least;
    const uint64_t sizes[] = {all ? left : want, want, exact};
    lvn_status s = LVN_ERR_DEVICE_MEMORY;
    uint64_t tried = left + 1;
    for (int i = 0; i < 3 && s == LVN_ERR_DEVICE_MEMORY; i++) {
        if (sizes[i] >= bytes && sizes[i] < tried) {
            tried = sizes[i];
            s = add_segment(d, (size_t)tried);
        }
    }
    return s;
}

/* Segments of which nothing is in use go back to the backend, which can give a larger one then. */
static void give_back_segments(lvni_tensor_device *d)
{
    for (lvni_tensor_segment **at = &d->segments; *at != NULL;) {
        lvni_tensor_segment *s = *at;
        if (s->lowest->pool == LVNI_POOL_OPEN && s->lowest->bytes == s->bytes) {
            lvni_tensor_heap_remove(d->heap, s->lowest);
            *at = s->next;
            end_segment(d, s);
        } else {
            at = &s->next;
        }
    }
}

/* ---- blocks ---- */

/* Of a small device they are smaller: a piece for them is a 192th of it. */
static size_t for_small(const lvni_tensor_device *d)
{
    const size_t part = (size_t)(limit_of(d) / 192 / 4096 * 4096);
    return part < FOR_SMALL ? part : FOR_SMALL;
}

static bool is_small(const lvni_tensor_device *d, size_t bytes)
{
    return bytes < SMALL && bytes <= for_small(d) / 4;
}

/* Pools that streams of the kind may use at once, captured work its own before others. */
enum { USABLE = 3 };
static int usable_pools(const lvni_tensor_device *d, lvn_stream_kind kind, int pool[USABLE])
{
    int n = 0;
    if (lvni_tensor_device_captures(d, kind)) {
        pool[n++] = LVNI_POOL_CAPTURED;
    }
    pool[n++] = (int)kind;
    pool[n++] = LVNI_POOL_OPEN;
    return n;
}

/* Is a better than b, which may be NULL, for a large block, or for one from the high end? */
static bool is_better(const lvni_tensor_piece *a, const lvni_tensor_piece *b, bool high)
{
    if (b == NULL || high) {
        return b == NULL || a->p > b->p;
    }
    return a->bytes < b->bytes || (a->bytes == b->bytes && a->p < b->p);
}

/* Of all usable pools, but of that of captured work before others. */
static lvni_tensor_piece *search(const lvni_tensor_device *d, lvn_stream_kind kind, bool small,
                                 bool high, size_t bytes)
{
    int pool[USABLE];
    const int n = usable_pools(d, kind, pool);
    lvni_tensor_piece *best = NULL;
    for (int i = 0; i < n && (best == NULL || best->pool != LVNI_POOL_CAPTURED); i++) {
        lvni_tensor_piece *piece =
            high ? lvni_tensor_heap_search_high(d->heap, pool[i], small, bytes)
                 : lvni_tensor_heap_search(d->heap, pool[i], small, bytes);
        best = piece != NULL && is_better(piece, best, high) ? piece : best;
    }
    return best;
}

/* A hole that is hardly larger than the block. */
static lvni_tensor_piece *search_tight(const lvni_tensor_device *d, lvn_stream_kind kind,
                                       size_t bytes)
{
    lvni_tensor_piece *piece = search(d, kind, false, false, bytes);
    return piece != NULL && piece->bytes - bytes <= bytes / TIGHT_PART ? piece : NULL;
}

/* Another piece for small blocks. */
static bool add_for_small(lvni_tensor_device *d, lvn_stream_kind kind)
{
    int pool[USABLE];
    const size_t bytes = for_small(d);
    lvni_tensor_piece *piece = NULL;
    for (int i = usable_pools(d, kind, pool); i > 0 && piece == NULL; i--) {
        piece = lvni_tensor_heap_search_high(d->heap, pool[i - 1], false, bytes);
    }
    if (piece != NULL) { /* an open one would join its neighbour again */
        lvni_tensor_heap_cut_for_small(d->heap, piece, bytes,
                                       piece->pool == LVNI_POOL_OPEN ? (int)kind : piece->pool);
    }
    return piece != NULL;
}

/* What no stream uses is for this kind from here on, so it makes one hole with what this kind has
 * beside it: or a hole would stay there that is lost to blocks which are larger. */
static lvni_tensor_piece *cut_piece(const lvni_tensor_device *d, lvn_stream_kind kind,
                                    lvni_tensor_piece *piece, size_t bytes, bool high)
{
    int pool[USABLE];
    (void)usable_pools(d, kind, pool);
    return piece->pool == LVNI_POOL_OPEN
               ? lvni_tensor_heap_cut_across(d->heap, piece, pool[0], bytes, high)
               : lvni_tensor_heap_cut(d->heap, piece, bytes, high);
}

/* Both together are large enough. */
static lvni_tensor_piece *cut_across(const lvni_tensor_device *d, lvn_stream_kind kind, bool small,
                                     size_t bytes)
{
    int pool[USABLE];
    (void)usable_pools(d, kind, pool);
    lvni_tensor_piece *open = lvni_tensor_heap_search_across(d->heap, pool[0], small, bytes);
    return open == NULL ? NULL : lvni_tensor_heap_cut_across(d->heap, open, pool[0], bytes, false);
}

/* NULL: nothing that is free is large enough. */
static lvni_tensor_piece *cut(lvni_tensor_device *d, lvn_stream_kind kind, size_t bytes)
{
    const bool small = is_small(d, bytes), high = !small && bytes < d->most / LARGE_PART;
    lvni_tensor_piece *piece = high ? search_tight(d, kind, bytes) : NULL;
    piece = piece == NULL ? search(d, kind, small, high, bytes) : piece;
    if (piece == NULL && small && add_for_small(d, kind)) {
        piece = search(d, kind, small, high, bytes);
    }
    return piece == NULL ? cut_across(d, kind, small, bytes)
                         : cut_piece(d, kind, piece, bytes, high);
}

lvn_status lvni_tensor_device_gather(lvni_tensor_device *d)
{
    LVN_TRY(lvni_tensor_device_order(d, LVN_STREAM_COMPUTE, LVN_STREAM_COPY));
    LVN_TRY(lvni_tensor_device_order(d, LVN_STREAM_COPY, LVN_STREAM_COMPUTE));
    for (int kind = 0; kind < LVN_STREAM_KINDS; kind++) {
        lvni_tensor_heap_move(d->heap, kind, LVNI_POOL_OPEN);
    }
    return LVN_OK;
}

static void fail_full(const lvni_tensor_device *d, size_t bytes)
{
    char asked[LVNI_BYTES_TEXT], used[LVNI_BYTES_TEXT], all[LVNI_BYTES_TEXT];
    char largest[LVNI_BYTES_TEXT];
    lvni_core_str parts = {0};
    if (d->in_use + bytes <= limit_of(d)) {
        lvni_core_str_printf(&parts, " (free: pieces of at most %s)",
                             lvni_core_bytes_text(lvni_tensor_heap_largest(d->heap), largest));
    }
    lvn_error_set(LVN_ERR_DEVICE_MEMORY, __FILE__, __LINE__,
                  "%s is out of memory: %s were asked for, and %s of its %s are in use%s; smaller "
                  "batches (batch_size, eval_batch_size) or samples, more micro-batches or fewer "
                  "lanes need less",
                  d->name, lvni_core_bytes_text(bytes, asked),
                  lvni_core_bytes_text(d->in_use, used), lvni_core_bytes_text(limit_of(d), all),
                  lvni_core_str_text(&parts));
    lvni_core_str_free(&parts);
}

/* The device has no other segment. While work is captured streams cannot wait for each other. */
static lvni_tensor_piece *cut_when_full(lvni_tensor_device *d, lvn_stream_kind kind, size_t bytes)
{
    lvni_tensor_piece *piece = NULL;
    if (lvni_tensor_device_capture_lose(d)) {
        piece = cut(d, kind, bytes);
    }
    if (piece == NULL && !atomic_load(&d->capturing) && lvni_tensor_device_gather(d) == LVN_OK) {
        piece = cut(d, kind, bytes);
        if (piece == NULL) {
            give_back_segments(d);
            piece = grow(d, bytes) == LVN_OK ? cut(d, kind, bytes) : NULL;
        }
    }
    if (piece == NULL && lvni_tensor_device_captures(d, kind)) { /* its own from here on */
        lvni_tensor_heap_move(d->heap, LVNI_POOL_OPEN, LVNI_POOL_CAPTURED);
        lvni_tensor_heap_move(d->heap, (int)kind, LVNI_POOL_CAPTURED);
        piece = cut(d, kind, bytes);
    }
    if (piece == NULL) { /* small among large, or the other way round */
        piece = search(d, kind, !is_small(d, bytes), false, bytes);
        piece = piece == NULL ? NULL : lvni_tensor_heap_cut(d->heap, piece, bytes, false);
    }
    return piece;
}

static lvni_tensor_piece *new_block(lvni_tensor_device *d, lvn_stream_kind kind, size_t bytes)
{
    lvni_tensor_piece *piece = cut(d, kind, bytes);
    if (piece != NULL) {
        return piece;
    }
    const lvn_status grown = grow(d, bytes);
    if (grown != LVN_OK && grown != LVN_ERR_DEVICE_MEMORY) {
        return NULL;
    }
    piece = grown == LVN_OK ? cut(d, kind, bytes) : NULL;
    piece = piece == NULL ? cut_when_full(d, kind, bytes) : piece;
    if (piece == NULL) {
        fail_full(d, bytes);
    }
    return piece;
}

static bool must_fail(lvni_tensor_device *d)
{
    return d->fail_in > 0 && --d->fail_in == 0;
}

/* ---- take and give ---- */

/* A dry device: as the cache of a context would hold it. Small blocks of a class are for that class
 * from then on. */
static lvn_status count_on_host(lvni_tensor_device *d, lvni_tensor_piece *piece, size_t bytes)
{
    size_t got;
    if (bytes >= LVNI_LARGE_BLOCK) {
        piece->on_host = lvni_tensor_large_take(d->large, bytes);
        return piece->on_host == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    piece->size_class = (int16_t)lvni_tensor_size_class(bytes, &got);
    struct lvni_tensor_class_count *c = &d->classes[piece->size_class];
    if (++c->now > c->most) {
        c->most = c->now;
        d->cached += got;
    }
    return LVN_OK;
}

static void uncount_on_host(lvni_tensor_device *d, const lvni_tensor_piece *piece)
{
    if (piece->on_host != NULL) {
        lvni_tensor_large_give(d->large, piece->on_host);
    } else if (piece->size_class >= 0) {
        d->classes[piece->size_class].now--;
    }
}

/* cached: on the host the cache of a context would hold it. */
static lvni_tensor_piece *take(lvni_tensor_device *d, lvn_stream_kind kind, size_t bytes,
                               bool cached)
{
    if (must_fail(d)) {
        lvn_error_set(LVN_ERR_DEVICE_MEMORY, __FILE__, __LINE__,
                      "%s: this allocation was set to fail", d->name);
        return NULL;
    }
    lvni_tensor_piece *piece = lvni_tensor_heap_reserve(d->heap) == LVN_OK
                                   ? new_block(d, kind, lvni_tensor_device_round(bytes))
                                   : NULL;
    if (piece != NULL) {
        lvni_tensor_device_capture_taken(d, kind, piece);
        piece->on_host = NULL;
        piece->size_class = -1;
        if (cached && d->large != NULL && count_on_host(d, piece, bytes) != LVN_OK) {
            lvni_tensor_heap_give(d->heap, lvni_tensor_heap_find(d->heap, piece->p), (int)kind);
            return NULL;
        }
        d->in_use += piece->bytes;
        d->most = d->in_use > d->most ? d->in_use : d->most;
    }
    return piece;
}

static void *take_block(lvni_tensor_device *d, lvn_stream_kind kind, size_t bytes, bool cached,
                        size_t *got)
{
    if (bytes > LVNI_SIZE_LIMIT) {
        lvn_error_set(LVN_ERR_DEVICE_MEMORY, __FILE__, __LINE__,
                      "%s: a tensor of %zu bytes is too large", d->name, bytes);
        return NULL;
    }
    *got = lvni_tensor_device_round(bytes);
    pthread_mutex_lock(&d->memory_lock);
    const lvni_tensor_piece *piece = take(d, kind, bytes, cached);
    void *p = piece == NULL ? NULL : piece->p;
    pthread_mutex_unlock(&d->memory_lock);
    return p;
}

void *lvni_tensor_device_take(lvni_tensor_device *d, lvn_stream_kind kind, size_t bytes,
                              size_t *got)
{
    return take_block(d, kind, bytes, true, got);
}

void *lvni_tensor_device_take_flat(lvni_tensor_device *d, size_t bytes)
{
    size_t got;
    return take_block(d, LVN_STREAM_COMPUTE, bytes, false, &got);
}

void lvni_tensor_device_give(lvni_tensor_device *d, lvn_stream_kind kind, bool crossed, void *p,
                             size_t got)
{
    pthread_mutex_lock(&d->memory_lock);
    for (int other = 0; crossed && other < LVN_STREAM_KINDS; other++) {
        if (other != (int)kind) {
            /* it can fail for a device that failed: nothing runs there any more */
            (void)lvni_tensor_device_order(d, kind, (lvn_stream_kind)other);
        }
    }
    lvni_tensor_piece *piece = lvni_tensor_heap_find(d->heap, p);
    lvni_tensor_device_capture_given(d, kind, piece);
    uncount_on_host(d, piece);
    lvni_tensor_heap_give(d->heap, piece,
                          lvni_tensor_device_captures(d, kind) ? LVNI_POOL_CAPTURED : (int)kind);
    d->in_use -= got;
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
    const lvni_tensor_device_stats s = {
        .limit = limit_of(d),
        .in_use = d->in_use,
        .most = d->most,
        .held = d->cached + (d->large == NULL ? 0 : lvni_tensor_large_bytes(d->large))};
    pthread_mutex_unlock(&d->memory_lock);
    return s;
}

void lvni_tensor_device_forget_most(lvni_tensor_device *d)
{
    pthread_mutex_lock(&d->memory_lock);
    d->most = d->in_use;
    pthread_mutex_unlock(&d->memory_lock);
}
