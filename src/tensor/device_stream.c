/* The stream of a device: a ring of commands and the thread that runs them in order. What a context
 * has under way is counted at the context, and so are errors: the first command that fails makes
 * the thread leave out the context's later ones. */
#include "core/thread.h"
#include "tensor/device_impl.h"

#include <stdalign.h>
#include <string.h>

enum { RING = 128 };

/* Of a context that has submitted anything. */
struct lvni_under_way {
    pthread_mutex_t lock; /* a leaf lock */
    pthread_cond_t done;
    int64_t pending;
    _Atomic bool failed;
    /* written before `failed`, under the lock: a context may have work on several devices */
    lvn_error error;
};

struct lvni_tensor_command {
    struct lvni_under_way *of;
    const char *what;
    lvni_tensor_command_fn fn;
    int team;
    lvni_core_pins pins;
    alignas(64) unsigned char payload[LVNI_COMMAND_BYTES];
};

/* ---- the device's thread ---- */

static void note_failure(const lvni_tensor_device *d, const lvni_tensor_command *c)
{
    struct lvni_under_way *of = c->of;
    lvn_error_frame("%s on %s", c->what, d->name);
    pthread_mutex_lock(&of->lock);
    if (!atomic_load_explicit(&of->failed, memory_order_relaxed)) { /* the first one stays */
        of->error = *lvn_last_error();
        atomic_store_explicit(&of->failed, true, memory_order_release);
    }
    pthread_mutex_unlock(&of->lock);
}

static void run(const lvni_tensor_device *d, lvni_tensor_command *c, lvni_tensor_ctx *ctx)
{
    struct lvni_under_way *of = c->of;
    ctx->team = c->team;
    ctx->pins = c->pins;
    if (!atomic_load_explicit(&of->failed, memory_order_acquire) && c->fn(c->payload) != LVN_OK) {
        note_failure(d, c);
    }
    pthread_mutex_lock(&of->lock);
    if (--of->pending == 0) {
        pthread_cond_broadcast(&of->done);
    }
    pthread_mutex_unlock(&of->lock);
}

static void *stream_main(void *argument)
{
    lvni_tensor_device *d = argument;
    lvni_core_thread_name("sim", d->index);
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get(); /* on the host: the kernels see aliases */
    lvni_tensor_thread_set_ftz();
    pthread_mutex_lock(&d->queue_lock);
    for (;;) {
        while (d->n_commands == 0 && !d->quit) {
            pthread_cond_wait(&d->filled, &d->queue_lock);
        }
        if (d->n_commands == 0) {
            break;
        }
        lvni_tensor_command *c = &d->command[d->first];
        pthread_mutex_unlock(&d->queue_lock);
        run(d, c, ctx);
        pthread_mutex_lock(&d->queue_lock);
        d->first = (d->first + 1) % RING;
        d->n_commands--;
        pthread_cond_signal(&d->room);
    }
    pthread_mutex_unlock(&d->queue_lock);
    return NULL;
}

lvn_status lvni_tensor_device_stream_start(lvni_tensor_device *d)
{
    d->command = lvni_core_calloc(LVNI_TAG_TENSOR, RING, sizeof *d->command);
    if (d->command == NULL) {
        return LVN_ERR_MEMORY;
    }
    pthread_mutex_init(&d->queue_lock, NULL);
    pthread_cond_init(&d->filled, NULL);
    pthread_cond_init(&d->room, NULL);
    if (lvni_core_thread_start(&d->thread, stream_main, d) != 0) {
        lvni_core_free(d->command);
        LVN_FAIL(LVN_ERR_MEMORY, "no memory to start the thread of %s", d->name);
    }
    d->has_thread = true;
    return LVN_OK;
}

void lvni_tensor_device_stream_stop(lvni_tensor_device *d)
{
    pthread_mutex_lock(&d->queue_lock);
    d->quit = true;
    pthread_cond_signal(&d->filled);
    pthread_mutex_unlock(&d->queue_lock);
    pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->room);
    pthread_cond_destroy(&d->filled);
    pthread_mutex_destroy(&d->queue_lock);
    lvni_core_free(d->command);
}

/* ---- the submitting side ---- */

static void free_under_way(struct lvni_under_way *u)
{
    pthread_mutex_lock(&u->lock);
    while (u->pending > 0) {
        pthread_cond_wait(&u->done, &u->lock);
    }
    pthread_mutex_unlock(&u->lock);
    pthread_cond_destroy(&u->done);
    pthread_mutex_destroy(&u->lock);
    lvni_core_free(u);
}

void lvni_tensor_ctx_free_under_way(lvni_tensor_ctx *ctx)
{
    if (ctx->under_way != NULL) {
        free_under_way(ctx->under_way);
        ctx->under_way = NULL;
    }
}

static struct lvni_under_way *get_under_way(lvni_tensor_ctx *ctx)
{
    if (ctx != NULL && ctx->under_way == NULL) {
        struct lvni_under_way *u = LVNI_NEW(LVNI_TAG_TENSOR, struct lvni_under_way);
        if (u == NULL) {
            return NULL;
        }
        pthread_mutex_init(&u->lock, NULL);
        pthread_cond_init(&u->done, NULL);
        ctx->under_way = u;
    }
    return ctx == NULL ? NULL : ctx->under_way;
}

lvn_status lvni_tensor_device_submit(lvni_tensor_device *d, const char *what,
                                     lvni_tensor_command_fn fn, const void *payload, size_t bytes)
{
    if (d->dry) {
        return LVN_OK;
    }
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    struct lvni_under_way *u = get_under_way(ctx);
    if (u == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_ARG(bytes <= LVNI_COMMAND_BYTES, "%s: a command of %zu bytes is too large", what, bytes);
    pthread_mutex_lock(&u->lock);
    u->pending++;
    pthread_mutex_unlock(&u->lock);
    pthread_mutex_lock(&d->queue_lock);
    while (d->n_commands == RING) {
        pthread_cond_wait(&d->room, &d->queue_lock);
    }
    lvni_tensor_command *c = &d->command[(d->first + d->n_commands) % RING];
    c->of = u;
    c->what = what;
    c->fn = fn;
    c->team = ctx->team;
    c->pins = ctx->pins;
    memcpy(c->payload, payload, bytes);
    d->n_commands++;
    pthread_cond_signal(&d->filled);
    pthread_mutex_unlock(&d->queue_lock);
    return LVN_OK;
}

lvn_status lvni_tensor_device_call(const void *where, const char *what, lvni_tensor_command_fn fn,
                                   void *payload, size_t bytes)
{
    lvni_tensor_device *d = lvni_tensor_device_of(where);
    return d == NULL ? fn(payload) : lvni_tensor_device_submit(d, what, fn, payload, bytes);
}

bool lvni_tensor_device_failed(void)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    return ctx != NULL && ctx->under_way != NULL &&
           atomic_load_explicit(&ctx->under_way->failed, memory_order_acquire);
}

lvn_status lvni_tensor_device_sync(void)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    struct lvni_under_way *u = ctx == NULL ? NULL : ctx->under_way;
    if (u == NULL) {
        return LVN_OK;
    }
    pthread_mutex_lock(&u->lock);
    while (u->pending > 0) {
        pthread_cond_wait(&u->done, &u->lock);
    }
    pthread_mutex_unlock(&u->lock);
    return lvni_tensor_device_failed() ? lvn_error_adopt(&u->error) : LVN_OK;
}

lvn_status lvni_tensor_device_take_error(void)
{
    const lvn_status s = lvni_tensor_device_sync();
    if (s != LVN_OK) {
        atomic_store(&lvni_tensor_ctx_get()->under_way->failed, false);
    }
    return s;
}

lvn_status lvn_device_wait(void)
{
    return lvni_tensor_device_take_error();
}
