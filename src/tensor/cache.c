/* Free lists by size class (cache.h). Classes: up to 256 bytes, then four steps per power of two,
 * so that a block wastes at most a fifth; sixteen steps from 1 MiB on, where images lie: a
 * seventeenth. Free blocks are chained through their own first bytes. */
#include "tensor/cache.h"

#include "core/alloc.h"

struct lvni_tensor_cache {
    void *free_list[LVNI_SIZE_CLASSES];
    uint64_t bytes;
};

/* powers of two: of the smallest block, and where steps become fine */
enum { FIRST = 8, FINE = 20 };

int lvni_tensor_size_class(size_t bytes, size_t *got)
{
    *got = (size_t)1 << FIRST;
    if (bytes <= *got) {
        return 0;
    }
    /* 2^power < bytes <= 2^(power + 1) */
    const int power = 63 - __builtin_clzll((unsigned long long)bytes - 1);
    const int steps_log = power < FINE ? 2 : 4;
    const size_t size = (size_t)1 << power, step = size >> steps_log,
                 steps = (bytes - size + step - 1) / step;
    *got = size + steps * step;
    return (power < FINE ? 4 * (power - FIRST) : 4 * (FINE - FIRST) + 16 * (power - FINE)) +
           (int)steps;
}

lvni_tensor_cache *lvni_tensor_cache_create(void)
{
    return LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_cache);
}

void lvni_tensor_cache_destroy(lvni_tensor_cache *c)
{
    if (c == NULL) {
        return;
    }
    for (int k = 0; k < LVNI_SIZE_CLASSES; k++) {
        for (void *p = c->free_list[k]; p != NULL;) {
            void *next = *(void **)p;
            lvni_core_free(p);
            p = next;
        }
    }
    lvni_core_free(c);
}

void *lvni_tensor_cache_take(lvni_tensor_cache *c, size_t bytes, size_t *got)
{
    if (bytes > LVNI_SIZE_LIMIT) {
        lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__, "a tensor of %zu bytes is too large",
                      bytes);
        return NULL;
    }
    const int k = lvni_tensor_size_class(bytes, got);
    void *p = c->free_list[k];
    if (p != NULL) {
        c->free_list[k] = *(void **)p;
        return p;
    }
    p = lvni_core_alloc(LVNI_TAG_TENSOR, *got);
    if (p != NULL) {
        c->bytes += *got;
    }
    return p;
}

void lvni_tensor_cache_give(lvni_tensor_cache *c, void *p, size_t got)
{
    size_t size;
    const int k = lvni_tensor_size_class(got, &size);
    *(void **)p = c->free_list[k];
    c->free_list[k] = p;
}

uint64_t lvni_tensor_cache_bytes(const lvni_tensor_cache *c)
{
    return c->bytes;
}
