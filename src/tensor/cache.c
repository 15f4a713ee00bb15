/* Free lists by size class (cache.h). Classes: 64 bytes, then four steps per power of two, so that a block wastes at most
 * a fifth. Free blocks are chained through their own first bytes. */
#include "tensor/cache.h"

#include "core/alloc.h"

struct lvni_cache {
    void *free_list[LVNI_SIZE_CLASSES];
    uint64_t bytes;
};

int lvni_size_class(size_t bytes, size_t *got)
{
    size_t size = 256, step = 64;
    int k = 0;
    if (bytes <= size) {
        *got = size;
        return 0;
    }
    for (;;) {
        for (int i = 1; i <= 4; i++) {
            k++;
            if (bytes <= size + (size_t)i * step) {
                *got = size + (size_t)i * step;
                return k;
            }
        }
        size *= 2;
        step *= 2;
    }
}

lvni_cache *lvni_cache_create(void)
{
    return LVNI_NEW(LVNI_TAG_TENSOR, lvni_cache);
}

void lvni_cache_destroy(lvni_cache *c)
{
    if (c == NULL) {
        return;
    }
    for (int k = 0; k < LVNI_SIZE_CLASSES; k++) {
        for (void *p = c->free_list[k]; p != NULL;) {
            void *next = *(void **)p;
            lvni_free(p);
            p = next;
        }
    }
    lvni_free(c);
}

void *lvni_cache_take(lvni_cache *c, size_t bytes, size_t *got)
{
    if (bytes > LVNI_SIZE_LIMIT) {
        lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__, "a tensor of %zu bytes is too large", bytes);
        return NULL;
    }
    const int k = lvni_size_class(bytes, got);
    void *p = c->free_list[k];
    if (p != NULL) {
        c->free_list[k] = *(void **)p;
        return p;
    }
    p = lvni_alloc(LVNI_TAG_TENSOR, *got);
    if (p != NULL) {
        c->bytes += *got;
    }
    return p;
}

void lvni_cache_give(lvni_cache *c, void *p, size_t got)
{
    size_t size;
    const int k = lvni_size_class(got, &size);
    *(void **)p = c->free_list[k];
    c->free_list[k] = p;
}

uint64_t lvni_cache_bytes(const lvni_cache *c)
{
    return c->bytes;
}
