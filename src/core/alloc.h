/* All heap memory of levin comes from here: counted per tag, able to fail at the k-th call (tests),
 * with peaks. Thread-safe. Blocks are 64-byte aligned; blocks of 2 MiB and more are page
 * aligned. */
#ifndef LEVIN_CORE_ALLOC_H
#define LEVIN_CORE_ALLOC_H

#include <levin/status.h>

typedef enum lvni_core_tag {
    LVNI_TAG_CORE,
    LVNI_TAG_CONFIG,
    LVNI_TAG_TENSOR, /* tensor headers, storages, tape */
    LVNI_TAG_DATA,   /* loader, decoded images */
    LVNI_TAG_KERNEL, /* primitives, scratchpads, reordered weights */
    LVNI_TAG_MODEL,  /* parameters, gradients, optimizer state */
    LVNI_TAG_CKPT,
    LVNI_TAG_TRAINER,
    LVNI_TAG_CONTROL, /* the store and the connections to it */
    LVNI_TAG_DIST,    /* what ranks share, and know of each other */
    LVNI_TAG_COUNT
} lvni_core_tag;

typedef struct lvni_core_alloc_stats {
    uint64_t calls; /* allocations since process start (never decreases) */
    uint64_t live_bytes;
    uint64_t peak_bytes;
} lvni_core_alloc_stats;

/* bytes may be 0 (gives a valid block). NULL with LVN_ERR_MEMORY recorded on failure. Owner: the
 * caller. */
void *lvni_core_alloc(lvni_core_tag tag, size_t bytes);
/* zeroed; checks the product for overflow */
void *lvni_core_calloc(lvni_core_tag tag, size_t count, size_t size);
/* p may be NULL; p stays valid on failure */
void *lvni_core_realloc(lvni_core_tag tag, void *p, size_t bytes);
char *lvni_core_strdup(lvni_core_tag tag, const char *s);
void lvni_core_free(void *p); /* NULL is fine */

lvni_core_alloc_stats lvni_core_alloc_get_stats(lvni_core_tag tag);
lvni_core_alloc_stats lvni_core_alloc_get_total(void);

/* Tests: let the k-th allocation from now fail (1 = the next); 0 switches off. Counts over all
 * threads. Returns how many were left before the one that had to fail, it included; 0: it has
 * failed, or the count was off. */
int64_t lvni_core_alloc_fail_at(int64_t k);

#define LVNI_NEW(tag, type) ((type *)lvni_core_calloc((tag), 1, sizeof(type)))

#endif
