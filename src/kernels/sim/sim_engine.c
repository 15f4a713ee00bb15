/* Engines of simulated accelerators (sim.h): a ring of commands and the thread that runs them in
 * order. What a stream has under way is counted at the stream, and so are errors: the first command
 * that fails makes the engine leave out the later ones. */
#include "core/alloc.h"
#include "core/machine.h"
#include "core/thread.h"
#include "kernels/sim/sim.h"

#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { RING = 1024 };

/* ---- the engine's thread ---- */

/* The first error of a stream stays. */
static void fail_stream(lvni_sim_stream *of, const lvn_error *error)
{
    pthread_mutex_lock(&of->lock);
    if (!atomic_load_explicit(&of->failed, memory_order_relaxed)) {
        of->error = *error;
        atomic_store_explicit(&of->failed, true, memory_order_release);
    }
    pthread_mutex_unlock(&of->lock);
}

/* All streams of the engine leave out what comes, until one that knows of the error clears it. */
static void record_failure(lvni_sim_engine *e, const lvni_sim_command *c)
{
    lvn_error_frame("%s on %s", c->what, e->device->name);
    e->error = *lvn_last_error();
    atomic_store_explicit(&e->failed, true, memory_order_release);
    fail_stream(c->of, &e->error);
}

/* By the device's clock a command begins when it is there and the one before has ended, however
 * late the engine's thread wakes up. */
static void take_time(lvni_sim_engine *e, const lvni_sim_command *c, uint64_t began)
{
    const uint64_t clock = atomic_load(&e->clock_ns),
                   start = clock > c->submitted_ns ? clock : c->submitted_ns,
                   end = lvni_core_now_ns(), real = end > began ? end - began : 0,
                   cost = c->cost_ns, until_ns = start + (cost > real ? cost : real);
    atomic_store(&e->clock_ns, until_ns);
    atomic_fetch_add(&e->busy_ns, cost > real ? cost : real);
    if (until_ns > end && cost > 0) {
        const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                       .tv_nsec = (long)(until_ns % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
}

static _Thread_local uint64_t replay_of_command;

uint64_t lvni_sim_replay(void)
{
    return replay_of_command;
}

static void run(lvni_sim_engine *e, lvni_sim_command *c, lvni_tensor_ctx *ctx)
{
    replay_of_command = c->replay;
    lvni_sim_stream *of = c->of;
    ctx->team = c->team;
    ctx->pins = c->pins;
    const bool failed = atomic_load_explicit(&e->failed, memory_order_acquire);
    if (!c->always && failed) {
        fail_stream(of, &e->error);
    } else {
        const uint64_t began = lvni_core_now_ns();
        if (c->fn(c->payload) != LVN_OK) {
            record_failure(e, c);
        }
        if (!c->always) {
            take_time(e, c, began);
        }
    }
    pthread_mutex_lock(&of->lock);
    if (--of->pending == 0) {
        pthread_cond_broadcast(&of->done);
    }
    pthread_mutex_unlock(&of->lock);
}

static void *engine_main(void *argument)
{
    lvni_sim_engine *e = argument;
    lvni_core_thread_name(e->kind == LVN_STREAM_COPY ? "simcopy" : "sim", e->device->index);
    prctl(PR_SET_TIMERSLACK, 1000ul);             /* ns: latencies are tens of microseconds */
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get(); /* on the host: the kernels see aliases */
    lvni_tensor_thread_set_ftz();
    pthread_mutex_lock(&e->lock);
    e->ready = true;
    e->good = ctx != NULL;
    pthread_cond_signal(&e->room);
    for (; ctx != NULL;) {
        while (e->n_commands == 0 && !e->quit) {
            pthread_cond_wait(&e->filled, &e->lock);
        }
        if (e->n_commands == 0) {
            break;
        }
        lvni_sim_command *c = &e->command[e->first];
        pthread_mutex_unlock(&e->lock);
        run(e, c, ctx);
        pthread_mutex_lock(&e->lock);
        e->first = (e->first + 1) % RING;
        e->n_commands--;
        pthread_cond_signal(&e->room);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static lvn_status start(lvni_sim_engine *e)
{
    e->command = lvni_core_calloc(LVNI_TAG_KERNEL, RING, sizeof *e->command);
    if (e->command == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (lvni_core_thread_start(&e->thread, engine_main, e) != 0) {
        LVN_FAIL(LVN_ERR_MEMORY, "no memory to start a thread of %s", e->device->name);
    }
    e->has_thread = true;
    /* what the thread allocates for itself belongs to opening the device, not to some later time */
    pthread_mutex_lock(&e->lock);
    while (!e->ready) {
        pthread_cond_wait(&e->room, &e->lock);
    }
    const bool good = e->good;
    pthread_mutex_unlock(&e->lock);
    return good ? LVN_OK
                : lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__, "no memory for a thread of %s",
                                e->device->name);
}

lvn_status lvni_sim_engines_start(lvni_sim_device *d)
{
    for (int k = 0; k < LVN_STREAM_KINDS; k++) {
        lvni_sim_engine *e = &d->engine[k];
        e->device = d;
        e->kind = (lvn_stream_kind)k;
        pthread_mutex_init(&e->lock, NULL);
        pthread_cond_init(&e->filled, NULL);
        pthread_cond_init(&e->room, NULL);
    }
    for (int k = 0; k < LVN_STREAM_KINDS; k++) {
        LVN_TRY(start(&d->engine[k]));
    }
    return LVN_OK;
}

void lvni_sim_engines_stop(lvni_sim_device *d)
{
    for (int k = 0; k < LVN_STREAM_KINDS; k++) {
        lvni_sim_engine *e = &d->engine[k];
        if (e->has_thread) {
            pthread_mutex_lock(&e->lock);
            e->quit = true;
            pthread_cond_signal(&e->filled);
            pthread_mutex_unlock(&e->lock);
            pthread_join(e->thread, NULL);
        }
        if (e->device != NULL) {
            pthread_cond_destroy(&e->room);
            pthread_cond_destroy(&e->filled);
            pthread_mutex_destroy(&e->lock);
        }
        lvni_core_free(e->command);
    }
}

/* ---- submitting ---- */

void lvni_sim_enqueue(lvni_sim_stream *s, const lvni_sim_command *head, const void *payload,
                      size_t bytes)
{
    lvni_sim_engine *e = s->engine;
    pthread_mutex_lock(&s->lock);
    s->pending++;
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_lock(&e->lock);
    while (e->n_commands == RING) {
        pthread_cond_wait(&e->room, &e->lock);
    }
    lvni_sim_command *c = &e->command[(e->first + e->n_commands) % RING];
    memcpy(c, head, offsetof(lvni_sim_command, payload));
    c->of = s;
    c->submitted_ns = lvni_core_now_ns();
    memcpy(c->payload, payload, bytes);
    e->n_commands++;
    s->newest = ++e->submitted;
    pthread_cond_signal(&e->filled);
    pthread_mutex_unlock(&e->lock);
}

lvn_status lvni_sim_submit_as(lvni_sim_stream *s, const char *what, lvni_sim_fn fn,
                              const void *payload, size_t bytes, uint64_t cost_ns, bool always)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_ARG(bytes <= LVNI_SIM_COMMAND_BYTES, "%s: a command of %zu bytes is too large", what,
            bytes);
    lvni_sim_command head;
    head.of = s;
    head.what = what;
    head.fn = fn;
    head.always = always;
    head.cost_ns = cost_ns;
    head.event = NULL;
    head.replay = 0;
    head.team = ctx->team;
    head.pins = ctx->pins;
    bool captured;
    const lvn_status status = lvni_sim_capture(s->engine, &head, payload, bytes, &captured);
    if (!captured) {
        lvni_sim_enqueue(s, &head, payload, bytes);
    }
    return status;
}

lvn_status lvni_sim_submit(lvni_sim_stream *s, const char *what, lvni_sim_fn fn,
                           const void *payload, size_t bytes)
{
    return lvni_sim_submit_as(s, what, fn, payload, bytes, s->engine->device->kernel_ns, false);
}
