/* Recycles tensor memory by size class, so that a step allocates nothing after warm-up. One cache
 * per context. */
#ifndef LEVIN_TENSOR_CACHE_H
#define LEVIN_TENSOR_CACHE_H

#include <levin/status.h>

typedef struct lvni_tensor_cache lvni_tensor_cache;

enum { LVNI_SIZE_CLASSES = 4 * 12 + 16 * 26 + 1 };
#define LVNI_SIZE_LIMIT ((size_t)1 << 46) /* bytes of one block */
/* The class of a size up to the limit, and its block size in *got; devices round alike
 * (device_memory.c). */
int lvni_tensor_size_class(size_t bytes, size_t *got);

lvni_tensor_cache *lvni_tensor_cache_create(void);
void lvni_tensor_cache_destroy(lvni_tensor_cache *c);
/* At least `bytes` bytes, 64-byte aligned; *got is the size class (give it back with the block). */
void *lvni_tensor_cache_take(lvni_tensor_cache *c, size_t bytes, size_t *got);
void lvni_tensor_cache_give(lvni_tensor_cache *c, void *p, size_t got);
uint64_t lvni_tensor_cache_bytes(const lvni_tensor_cache *c); /* held in all: in use and free */

#endif
