/* The thread's engine context, its floating-point mode, and the cache of tensor memory (ctx.h). */
#include "tensor/ctx.h"

#include "core/alloc.h"
#include "tensor/large_blocks.h"

#include <pthread.h>
#include <stdalign.h>
#include <xmmintrin.h>

/* ---- contexts ---- */

_Atomic(lvni_tensor_tape_free) lvni_tensor_ctx_free_tape;

static _Thread_local lvni_tensor_ctx *current;
static _Thread_local lvni_tensor_ctx *fallback; /* made at first use, freed when the thread ends */
static pthread_key_t fallback_key;
static pthread_once_t fallback_once = PTHREAD_ONCE_INIT;

static void free_fallback(void *ctx)
{
    lvni_tensor_ctx_destroy(ctx);
}

static void make_key(void)
{
    pthread_key_create(&fallback_key, free_fallback);
}

/* The main thread does not run key destructors when it returns from main. */
__attribute__((destructor)) static void free_main_fallback(void)
{
    lvni_tensor_ctx_destroy(fallback);
    fallback = NULL;
}

#if defined(__x86_64__)
/* MXCSR: round to nearest, all exceptions masked, flush to zero; denormals are zero; flags of
 * exceptions that have happened. */
#define FP_FLUSH 0x9f80u
#define FP_DAZ 0x0040u
#define FP_FLAGS 0x003fu

unsigned lvni_tensor_fp_enter(lvni_tensor_fp_mode mode)
{
    const unsigned before = _mm_getcsr(), want = FP_FLUSH | (mode == LVNI_FP_FLUSH ? FP_DAZ : 0u);
    if ((before & ~FP_FLAGS) != want) {
        _mm_setcsr(want | (before & FP_FLAGS));
    }
    return before;
}

void lvni_tensor_fp_leave(unsigned before)
{
    if (((_mm_getcsr() ^ before) & ~FP_FLAGS) != 0) {
        _mm_setcsr(before);
    }
}
#else
unsigned lvni_tensor_fp_enter(lvni_tensor_fp_mode mode)
{
    return (unsigned)mode;
}

void lvni_tensor_fp_leave(unsigned before)
{
    (void)before;
}
#endif

void lvni_tensor_thread_set_ftz(void)
{
    lvni_tensor_fp_enter(LVNI_FP_FLUSH);
}

/* ---- states of backends: a list, of one or two ---- */

struct lvni_tensor_state {
    struct lvni_tensor_state *next;
    const lvni_tensor_state_class *cls;
    alignas(64) unsigned char bytes[];
};

static void *make_state(lvni_tensor_ctx *c, const lvni_tensor_state_class *cls)
{
    struct lvni_tensor_state *s = lvni_core_calloc(LVNI_TAG_TENSOR, 1, sizeof *s + cls->bytes);
    if (s == NULL) {
        return NULL;
    }
    if (cls->begin != NULL && cls->begin(s->bytes) != LVN_OK) {
        lvni_core_free(s);
        return NULL;
    }
    s->cls = cls;
    s->next = c->states;
    c->states = s;
    return s->bytes;
}

void *lvni_tensor_ctx_state(const lvni_tensor_state_class *cls)
{
    lvni_tensor_ctx *c = lvni_tensor_ctx_get();
    if (c == NULL) {
        return NULL;
    }
    for (struct lvni_tensor_state *s = c->states; s != NULL; s = s->next) {
        if (s->cls == cls) {
            return s->bytes;
        }
    }
    return make_state(c, cls);
}

static void end_states(lvni_tensor_ctx *c)
{
    while (c->states != NULL) {
        struct lvni_tensor_state *s = c->states;
        c->states = s->next;
        s->cls->end(s->bytes);
        lvni_core_free(s);
    }
}

lvni_tensor_ctx *lvni_tensor_ctx_create(int team, const lvni_core_pins *pins)
{
    lvni_tensor_ctx *c = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_ctx);
    if (c == NULL) {
        return NULL;
    }
    c->cache = lvni_tensor_cache_create();
    if (c->cache == NULL) {
        lvni_core_free(c);
        return NULL;
    }
    c->team = team;
    c->pins = pins != NULL ? *pins : lvni_core_pins_least();
    c->module_path = "";
    return c;
}

void lvni_tensor_ctx_destroy(lvni_tensor_ctx *c)
{
    if (c == NULL) {
        return;
    }
    lvni_tensor_ctx *previous = current;
    current = c; /* tensors released on the way give their memory back to this cache */
    if (c->tape != NULL && lvni_tensor_ctx_free_tape != NULL) {
        lvni_tensor_ctx_free_tape(c->tape);
    }
    lvni_tensor_ctx_free_under_way(c); /* nothing computes with the states from here on */
    end_states(c);
    current = previous == c ? NULL : previous;
    lvni_tensor_cache_destroy(c->cache);
    if (fallback == c) {
        fallback = NULL;
    }
    lvni_core_free(c);
}

/* Not part of lvni_tensor_ctx_get, which a step calls more often than anything else. */
__attribute__((noinline)) static lvni_tensor_ctx *use_fallback(void)
{
    if (fallback == NULL) {
        pthread_once(&fallback_once, make_key);
        fallback = lvni_tensor_ctx_create(1, NULL);
        pthread_setspecific(fallback_key, fallback);
    }
    current = fallback;
    return current;
}

lvni_tensor_ctx *lvni_tensor_ctx_get(void)
{
    return current != NULL ? current : use_fallback();
}

void lvni_tensor_ctx_set(lvni_tensor_ctx *ctx)
{
    current = ctx;
}

/* ---- the cache: free lists by size class ----
 * Classes: up to 256 bytes, then four steps per power of two, so that a block wastes at most a
 * fifth; sixteen steps from 1 MiB on, where images lie: a seventeenth. Free blocks are chained
 * through their own first bytes. */

struct lvni_tensor_cache {
    void *free_list[LVNI_SIZE_CLASSES];
    uint64_t bytes;
    lvni_tensor_large *large; /* NULL: not made yet, or there is no range */
    bool no_large;
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
    lvni_tensor_large_destroy(c->large);
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

lvn_status lvni_tensor_cache_large(lvni_tensor_cache *c, lvni_tensor_large **out)
{
    if (c->large == NULL && !c->no_large) {
        LVN_TRY(lvni_tensor_large_create(false, &c->large));
        c->no_large = c->large == NULL;
    }
    *out = c->large;
    return LVN_OK;
}

uint64_t lvni_tensor_cache_bytes(const lvni_tensor_cache *c)
{
    return c->bytes + (c->large == NULL ? 0 : lvni_tensor_large_bytes(c->large));
}
