/* Large blocks of host memory, of one context: pieces of one range of addresses (core/range.h),
 * which join when they are free, so that the range reaches hardly further than what is in use at
 * the peak. Blocks by size class (ctx.h) would be as many as each class had at its own peak: for
 * networks whose maps have a size per stage twice as much. Which block is taken follows from the
 * order of calls. Thread-safe: a block goes back to where it came from, from any thread. */
#ifndef LEVIN_TENSOR_LARGE_BLOCKS_H
#define LEVIN_TENSOR_LARGE_BLOCKS_H

#include "tensor/ctx.h"

/* Smaller ones are for the size classes. */
enum { LVNI_LARGE_BLOCK = 256 << 10 };

typedef struct lvni_tensor_large lvni_tensor_large;

/* addresses_only: there is no memory behind them, a dry run counts. *out NULL, without an error:
 * the system gives no range. */
lvn_status lvni_tensor_large_create(bool addresses_only, lvni_tensor_large **out);
/* NULL is fine. The range goes with the last of its blocks. */
void lvni_tensor_large_destroy(lvni_tensor_large *large);
/* Page aligned; NULL with the thread's error. */
void *lvni_tensor_large_take(lvni_tensor_large *large, size_t bytes);
void lvni_tensor_large_give(lvni_tensor_large *large, void *p);
/* How far blocks have ever reached. */
uint64_t lvni_tensor_large_bytes(lvni_tensor_large *large);

/* Of a context's cache (ctx.c), made at first use. *out NULL, without an error: there is none, and
 * large blocks have size classes. */
lvn_status lvni_tensor_cache_large(lvni_tensor_cache *cache, lvni_tensor_large **out);

#endif
