/* The thread's engine context (ctx.h). */
#include "tensor/ctx.h"

#include "core/alloc.h"
#include "tensor/cache.h"

#include <pthread.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

_Atomic(lvni_tape_free) lvni_ctx_free_tape;
_Atomic(lvni_scratch_free) lvni_ctx_free_scratch;

static _Thread_local lvni_ctx *current;
static _Thread_local lvni_ctx *fallback; /* made at first use, freed when the thread ends */
static pthread_key_t fallback_key;
static pthread_once_t fallback_once = PTHREAD_ONCE_INIT;

static void free_fallback(void *ctx)
{
    lvni_ctx_destroy(ctx);
}

static void make_key(void)
{
    pthread_key_create(&fallback_key, free_fallback);
}

/* The main thread does not run key destructors when it returns from main. */
__attribute__((destructor)) static void free_main_fallback(void)
{
    lvni_ctx_destroy(fallback);
    fallback = NULL;
}

void lvni_thread_set_ftz(void)
{
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040u); /* flush to zero, denormals are zero */
#endif
}

lvni_ctx *lvni_ctx_create(int team, int wgrad_team)
{
    lvni_ctx *c = LVNI_NEW(LVNI_TAG_TENSOR, lvni_ctx);
    if (c == NULL) {
        return NULL;
    }
    c->cache = lvni_cache_create();
    if (c->cache == NULL) {
        lvni_free(c);
        return NULL;
    }
    c->team = team;
    c->wgrad_team = wgrad_team;
    c->module_path = "";
    lvni_thread_set_ftz();
    return c;
}

void lvni_ctx_destroy(lvni_ctx *c)
{
    if (c == NULL) {
        return;
    }
    lvni_ctx *previous = current;
    current = c; /* tensors released on the way give their memory back to this cache */
    if (c->tape != NULL && lvni_ctx_free_tape != NULL) {
        lvni_ctx_free_tape(c->tape);
    }
    if (c->scratch != NULL && lvni_ctx_free_scratch != NULL) {
        lvni_ctx_free_scratch(c->scratch);
    }
    lvni_ctx_free_under_way(c);
    current = previous == c ? NULL : previous;
    lvni_cache_destroy(c->cache);
    if (fallback == c) {
        fallback = NULL;
    }
    lvni_free(c);
}

lvni_ctx *lvni_ctx_get(void)
{
    if (current != NULL) {
        return current;
    }
    if (fallback == NULL) {
        pthread_once(&fallback_once, make_key);
        fallback = lvni_ctx_create(1, 1);
        pthread_setspecific(fallback_key, fallback);
    }
    current = fallback;
    return current;
}

void lvni_ctx_set(lvni_ctx *ctx)
{
    current = ctx;
}
