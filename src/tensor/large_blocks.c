/* Large blocks of host memory (large_blocks.h): each is cut from the low end of the smallest hole
 * with room for it, and all that was never used is the largest one. Replayed on the allocations of
 * a step of five networks that reaches at most 1.01 times as far as what is in use at the peak; two
 * ends, as devices have (device_alloc.c), 1.05 to 1.5 times. */
#include "tensor/large_blocks.h"

#include "core/error.h"
#include "core/range.h"
#include "tensor/device_heap.h"

#include <pthread.h>

enum { UNIT = 4096 };

struct lvni_tensor_large {
    pthread_mutex_t lock; /* a leaf lock */
    lvni_core_range range;
    bool addresses_only;
    lvni_tensor_heap *heap;
    size_t reach;
    int64_t users; /* blocks in use, and the owner */
};

static void end(lvni_tensor_large *l)
{
    if (!l->addresses_only) {
        lvni_core_range_free(&l->range);
    }
    lvni_tensor_heap_destroy(l->heap);
    pthread_mutex_destroy(&l->lock);
    lvni_core_free(l);
}

/* Addresses that are only counted. */
static lvni_core_range count_only(void)
{
    return (lvni_core_range){
        .p = (char *)(uintptr_t)UNIT, .bytes = LVNI_SIZE_LIMIT, .usable = LVNI_SIZE_LIMIT};
}

lvn_status lvni_tensor_large_create(bool addresses_only, lvni_tensor_large **out)
{
    *out = NULL;
    lvni_tensor_large *l = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_large);
    if (l == NULL) {
        return LVN_ERR_MEMORY;
    }
    pthread_mutex_init(&l->lock, NULL);
    l->addresses_only = addresses_only;
    l->users = 1;
    l->range = addresses_only ? count_only() : lvni_core_range_reserve(LVNI_TAG_TENSOR);
    if (l->range.p == NULL) {
        end(l);
        return LVN_OK;
    }
    l->heap = lvni_tensor_heap_create();
    if (l->heap == NULL || lvni_tensor_heap_reserve(l->heap) != LVN_OK) {
        end(l);
        return LVN_ERR_MEMORY;
    }
    (void)lvni_tensor_heap_add(l->heap, l->range.p, l->range.bytes);
    *out = l;
    return LVN_OK;
}

/* Under the lock, which is gone with the last one. */
static void leave(lvni_tensor_large *l)
{
    const bool last = --l->users == 0;
    pthread_mutex_unlock(&l->lock);
    if (last) {
        end(l);
    }
}

void lvni_tensor_large_destroy(lvni_tensor_large *l)
{
    if (l != NULL) {
        pthread_mutex_lock(&l->lock);
        leave(l);
    }
}

static lvni_tensor_piece *cut(lvni_tensor_large *l, size_t bytes)
{
    if (lvni_tensor_heap_reserve(l->heap) != LVN_OK) {
        return NULL;
    }
    lvni_tensor_piece *piece = lvni_tensor_heap_search(l->heap, LVNI_POOL_OPEN, false, bytes);
    if (piece == NULL) {
        lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__,
                      "cannot allocate %zu bytes of host memory: the range of addresses for "
                      "tensors, %zu GiB, has no room for them",
                      bytes, l->range.bytes >> 30);
        return NULL;
    }
    const size_t reach = (size_t)(piece->p - l->range.p) + bytes;
    if (lvni_core_range_grow(&l->range, reach) != LVN_OK) {
        return NULL;
    }
    l->reach = reach > l->reach ? reach : l->reach;
    return lvni_tensor_heap_cut(l->heap, piece, bytes, false);
}

void *lvni_tensor_large_take(lvni_tensor_large *l, size_t bytes)
{
    pthread_mutex_lock(&l->lock);
    const lvni_tensor_piece *piece = cut(l, (bytes + UNIT - 1) / UNIT * UNIT);
    l->users += piece != NULL ? 1 : 0;
    void *p = piece == NULL ? NULL : piece->p;
    pthread_mutex_unlock(&l->lock);
    return p;
}

void lvni_tensor_large_give(lvni_tensor_large *l, void *p)
{
    pthread_mutex_lock(&l->lock);
    lvni_tensor_heap_give(l->heap, lvni_tensor_heap_find(l->heap, p), LVNI_POOL_OPEN);
    leave(l);
}

uint64_t lvni_tensor_large_bytes(lvni_tensor_large *l)
{
    pthread_mutex_lock(&l->lock);
    const uint64_t bytes = l->reach;
    pthread_mutex_unlock(&l->lock);
    return bytes;
}
