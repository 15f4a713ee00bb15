/* The caching allocator over a device's addresses: size classes as in cache.c, blocks cut from
 * holes, first fit. What is free is described in host memory. When no hole is large enough, all
 * blocks kept for reuse become holes again, once, before it fails. */
#include "core/str.h"
#include "tensor/cache.h"
#include "tensor/device_impl.h"

lvn_status lvni_tensor_device_memory_init(lvni_tensor_device *d)
{
    pthread_mutex_init(&d->memory_lock, NULL);
    d->free_list = lvni_core_calloc(LVNI_TAG_TENSOR, LVNI_SIZE_CLASSES, sizeof *d->free_list);
    d->holes = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_piece);
    if (d->free_list == NULL || d->holes == NULL) {
        return LVN_ERR_MEMORY;
    }
    *d->holes = (lvni_tensor_piece){.p = d->base, .bytes = d->size};
    return LVN_OK;
}

static void free_list(lvni_tensor_piece *piece)
{
    while (piece != NULL) {
        lvni_tensor_piece *next = piece->next;
        lvni_core_free(piece);
        piece = next;
    }
}

void lvni_tensor_device_memory_free(lvni_tensor_device *d)
{
    for (int k = 0; d->free_list != NULL && k < LVNI_SIZE_CLASSES; k++) {
        free_list(d->free_list[k]);
    }
    free_list(d->holes);
    free_list(d->spare);
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

/* Into the holes, in its place; joined with its neighbours. */
static void become_hole(lvni_tensor_device *d, lvni_tensor_piece *piece)
{
    lvni_tensor_piece **at = &d->holes;
    d->held -= piece->bytes;
    while (*at != NULL && (*at)->p + (*at)->bytes < piece->p) {
        at = &(*at)->next;
    }
    if (*at != NULL && (*at)->p + (*at)->bytes == piece->p) {
        (*at)->bytes += piece->bytes;
        push(&d->spare, piece);
        piece = *at;
    } else {
        push(at, piece);
    }
    if (piece->next != NULL && piece->p + piece->bytes == piece->next->p) {
        piece->bytes += piece->next->bytes;
        push(&d->spare, pop(&piece->next));
    }
}

static void give_up_free_blocks(lvni_tensor_device *d)
{
    for (int k = 0; k < LVNI_SIZE_CLASSES; k++) {
        while (d->free_list[k] != NULL) {
            become_hole(d, pop(&d->free_list[k]));
        }
    }
}

static void fail_full(const lvni_tensor_device *d, size_t bytes)
{
    char asked[LVNI_BYTES_TEXT], used[LVNI_BYTES_TEXT], all[LVNI_BYTES_TEXT];
    lvn_error_set(LVN_ERR_DEVICE_MEMORY, __FILE__, __LINE__,
                  "%s is out of memory: %s were asked for, and %s of its %s are in use; smaller "
                  "batches (batch_size, "
                  "eval_batch_size, image_size), more micro-batches or fewer lanes need less",
                  d->name, lvni_core_bytes_text(bytes, asked),
                  lvni_core_bytes_text(d->in_use, used), lvni_core_bytes_text(d->size, all));
}

static void *new_block(lvni_tensor_device *d, size_t bytes)
{
    /* for the day the block comes back */
    lvni_tensor_piece *later = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_piece);
    if (later == NULL) {
        return NULL;
    }
    char *p = cut(d, bytes);
    if (p == NULL) {
        give_up_free_blocks(d);
        p = cut(d, bytes);
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

static void *take_class(lvni_tensor_device *d, int k, size_t got)
{
    if (must_fail(d)) {
        lvn_error_set(LVN_ERR_DEVICE_MEMORY, __FILE__, __LINE__,
                      "%s: this allocation was set to fail", d->name);
        return NULL;
    }
    if (d->free_list[k] == NULL) {
        return new_block(d, got);
    }
    lvni_tensor_piece *piece = pop(&d->free_list[k]);
    push(&d->spare, piece);
    return piece->p;
}

void *lvni_tensor_device_take(lvni_tensor_device *d, size_t bytes, size_t *got)
{
    if (bytes > LVNI_SIZE_LIMIT) {
        lvn_error_set(LVN_ERR_DEVICE_MEMORY, __FILE__, __LINE__,
                      "%s: a tensor of %zu bytes is too large", d->name, bytes);
        return NULL;
    }
    const int k = lvni_tensor_size_class(bytes, got);
    pthread_mutex_lock(&d->memory_lock);
    void *p = take_class(d, k, *got);
    d->in_use += p == NULL ? 0 : *got;
    pthread_mutex_unlock(&d->memory_lock);
    return p;
}

void lvni_tensor_device_give(lvni_tensor_device *d, void *p, size_t got)
{
    size_t size;
    const int k = lvni_tensor_size_class(got, &size);
    pthread_mutex_lock(&d->memory_lock);
    lvni_tensor_piece *piece = pop(&d->spare);
    piece->p = p;
    piece->bytes = size;
    push(&d->free_list[k], piece);
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
    const lvni_tensor_device_stats s = {
        .limit = d->size, .in_use = d->in_use, .held = d->held, .peak = d->peak};
    pthread_mutex_unlock(&d->memory_lock);
    return s;
}
