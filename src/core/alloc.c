/* Counted, failable allocation (alloc.h, range.h). Each block carries a 64-byte header with its
 * size and tag. */
#include "core/alloc.h"

#include "core/range.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { HEADER = 64, PAGE = 4096 };
static const size_t LARGE = (size_t)2 << 20;

typedef struct block_header {
    size_t bytes;
    void *base; /* what free() gets */
    lvni_core_tag tag;
} block_header;

typedef struct counters {
    _Atomic uint64_t calls, live, peak;
} counters;

static counters by_tag[LVNI_TAG_COUNT];
static counters total;
static _Atomic int64_t fail_in; /* 0 = never */

static void count(counters *c, size_t bytes)
{
    atomic_fetch_add_explicit(&c->calls, 1, memory_order_relaxed);
    const uint64_t live = atomic_fetch_add_explicit(&c->live, bytes, memory_order_relaxed) + bytes;
    uint64_t peak = atomic_load_explicit(&c->peak, memory_order_relaxed);
    while (live > peak && !atomic_compare_exchange_weak_explicit(
                              &c->peak, &peak, live, memory_order_relaxed, memory_order_relaxed)) {
    }
}

/* Stops at 0 for good: of threads that allocate at one moment exactly one fails. */
static bool must_fail(void)
{
    int64_t left = atomic_load_explicit(&fail_in, memory_order_relaxed);
    while (left > 0 && !atomic_compare_exchange_weak(&fail_in, &left, left - 1)) {
    }
    return left == 1;
}

static void *out_of_memory(size_t bytes)
{
    lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__, "cannot allocate %zu bytes of host memory",
                  bytes);
    return NULL;
}

static block_header *header_of(void *p)
{
    return (block_header *)(void *)((char *)p - HEADER);
}

void *lvni_core_alloc(lvni_core_tag tag, size_t bytes)
{
    const size_t align = bytes >= LARGE ? PAGE : HEADER;
    if (must_fail() || bytes > SIZE_MAX / 2) {
        return out_of_memory(bytes);
    }
    const size_t lead = align; /* room for the header that keeps the block aligned */
    char *base = aligned_alloc(align, (lead + bytes + align - 1) / align * align);
    if (base == NULL) {
        return out_of_memory(bytes);
    }
    char *p = base + lead;
    *header_of(p) = (block_header){.bytes = bytes, .base = base, .tag = tag};
    count(&by_tag[tag], bytes);
    count(&total, bytes);
    return p;
}

void *lvni_core_calloc(lvni_core_tag tag, size_t n, size_t size)
{
    if (size != 0 && n > SIZE_MAX / size) {
        return out_of_memory(SIZE_MAX);
    }
    void *p = lvni_core_alloc(tag, n * size);
    if (p != NULL) {
        memset(p, 0, n * size);
    }
    return p;
}

void *lvni_core_realloc(lvni_core_tag tag, void *p, size_t bytes)
{
    void *q = lvni_core_alloc(tag, bytes);
    if (q != NULL && p != NULL) {
        const size_t old = header_of(p)->bytes;
        memcpy(q, p, old < bytes ? old : bytes);
        lvni_core_free(p);
    }
    return q;
}

char *lvni_core_strdup(lvni_core_tag tag, const char *s)
{
    const size_t n = strlen(s) + 1;
    char *p = lvni_core_alloc(tag, n);
    if (p != NULL) {
        memcpy(p, s, n);
    }
    return p;
}

static void uncount(lvni_core_tag tag, size_t bytes)
{
    atomic_fetch_sub_explicit(&by_tag[tag].live, bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&total.live, bytes, memory_order_relaxed);
}

void lvni_core_free(void *p)
{
    if (p == NULL) {
        return;
    }
    const block_header h = *header_of(p);
    uncount(h.tag, h.bytes);
    free(h.base);
}

static lvni_core_alloc_stats read_counters(counters *c)
{
    return (lvni_core_alloc_stats){.calls = atomic_load(&c->calls),
                                   .live_bytes = atomic_load(&c->live),
                                   .peak_bytes = atomic_load(&c->peak)};
}

lvni_core_alloc_stats lvni_core_alloc_get_stats(lvni_core_tag tag)
{
    return read_counters(&by_tag[tag]);
}

lvni_core_alloc_stats lvni_core_alloc_get_total(void)
{
    return read_counters(&total);
}

int64_t lvni_core_alloc_fail_at(int64_t k)
{
    return atomic_exchange(&fail_in, k);
}

/* ---- ranges ---- */

static const size_t MOST_ADDRESSES = (size_t)1 << 40, LEAST_ADDRESSES = (size_t)1 << 34;

lvni_core_range lvni_core_range_reserve(lvni_core_tag tag)
{
    lvni_core_range r = {.tag = tag};
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) {
        return r;
    }
    for (size_t bytes = MOST_ADDRESSES; r.p == NULL && bytes >= LEAST_ADDRESSES; bytes /= 4) {
        void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        r.p = p == MAP_FAILED ? NULL : p;
        r.bytes = p == MAP_FAILED ? 0 : bytes;
    }
    return r;
}

lvn_status lvni_core_range_grow(lvni_core_range *r, size_t bytes)
{
    const size_t want = (bytes + PAGE - 1) / PAGE * PAGE;
    if (bytes <= r->usable) {
        return LVN_OK;
    }
    if (must_fail() || bytes > r->bytes ||
        mprotect(r->p + r->usable, want - r->usable, PROT_READ | PROT_WRITE) != 0) {
        out_of_memory(bytes - r->usable);
        return LVN_ERR_MEMORY;
    }
    count(&by_tag[r->tag], want - r->usable);
    count(&total, want - r->usable);
    r->usable = want;
    return LVN_OK;
}

void lvni_core_range_free(lvni_core_range *r)
{
    if (r->p != NULL) {
        munmap(r->p, r->bytes);
        uncount(r->tag, r->usable);
        *r = (lvni_core_range){.tag = r->tag};
    }
}
