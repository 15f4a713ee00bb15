/* The thread's engine context (ctx.h). */
#include "tensor/ctx.h"

#include "core/alloc.h"
#include "tensor/cache.h"

#include <pthread.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

_Atomic(lvni_tensor_tape_free) lvni_tensor_ctx_free_tape;
_Atomic(lvni_tensor_scratch_free) lvni_tensor_ctx_free_scratch;

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

lvni_tensor_ctx *lvni_tensor_ctx_create(int team, int wgrad_team)
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
    c->wgrad_team = wgrad_team;
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
    if (c->scratch != NULL && lvni_tensor_ctx_free_scratch != NULL) {
        lvni_tensor_ctx_free_scratch(c->scratch);
    }
    lvni_tensor_ctx_free_under_way(c);
    current = previous == c ? NULL : previous;
    lvni_tensor_cache_destroy(c->cache);
    if (fallback == c) {
        fallback = NULL;
    }
    lvni_core_free(c);
}

lvni_tensor_ctx *lvni_tensor_ctx_get(void)
{
    if (current != NULL) {
        return current;
    }
    if (fallback == NULL) {
        pthread_once(&fallback_once, make_key);
        fallback = lvni_tensor_ctx_create(1, 1);
        pthread_setspecific(fallback_key, fallback);
    }
    current = fallback;
    return current;
}

void lvni_tensor_ctx_set(lvni_tensor_ctx *ctx)
{
    current = ctx;
}
