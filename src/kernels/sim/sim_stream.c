/* Engines, streams and events of simulated accelerators (sim.h). An engine is a ring of commands
 * and the thread that runs them in order. What a stream has under way is counted at the stream, and
 * so are errors: the first command that fails makes the engine leave out the later ones. */
#include "core/alloc.h"
#include "core/machine.h"
#include "core/thread.h"
#include "kernels/sim/sim.h"

#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { RING = 1024 };

struct lvni_sim_stream {
    lvni_sim_engine *engine;
    pthread_mutex_t lock; /* a leaf lock */
    pthread_cond_t done;
    int64_t pending;
    uint64_t newest; /* number of the last command submitted, and of the last waited for */
    uint64_t waited;
    _Atomic bool failed;
    lvn_error error; /* written before `failed`, under the lock */
};

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
static void note_failure(lvni_sim_engine *e, const lvni_sim_command *c)
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
            note_failure(e, c);
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

static lvn_status submit(lvni_sim_stream *s, const char *what, lvni_sim_fn fn, const void *payload,
                         size_t bytes, uint64_t cost_ns, bool always)
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
    return submit(s, what, fn, payload, bytes, s->engine->device->kernel_ns, false);
}

/* ---- streams ---- */

lvn_status lvni_sim_stream_create(void *device, lvn_stream_kind kind, void **stream)
{
    lvni_sim_device *d = device;
    lvni_sim_stream *s = LVNI_NEW(LVNI_TAG_KERNEL, lvni_sim_stream);
    if (s == NULL) {
        return LVN_ERR_MEMORY;
    }
    s->engine = &d->engine[kind];
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->done, NULL);
    *stream = s;
    return LVN_OK;
}

static void wait_for(lvni_sim_stream *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->pending > 0) {
        pthread_cond_wait(&s->done, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
}

lvni_sim_engine *lvni_sim_engine_of(const lvni_sim_stream *s)
{
    return s->engine;
}

void lvni_sim_stream_destroy(void *stream)
{
    lvni_sim_stream *s = stream;
    wait_for(s);
    pthread_cond_destroy(&s->done);
    pthread_mutex_destroy(&s->lock);
    lvni_core_free(s);
}

static _Thread_local uint64_t drained_here;

uint64_t lvni_sim_drained_here(void)
{
    return drained_here;
}

/* The host waits for command `number`. */
static void count_wait(lvni_sim_engine *e, uint64_t number)
{
    pthread_mutex_lock(&e->lock);
    const bool last = number == e->submitted;
    pthread_mutex_unlock(&e->lock);
    drained_here += last ? 1 : 0;
    atomic_fetch_add(last ? &e->device->drained : &e->device->throttled, 1);
}

lvn_status lvni_sim_stream_wait(void *stream)
{
    lvni_sim_stream *s = stream;
    if (s->newest != s->waited) {
        count_wait(s->engine, s->newest);
        s->waited = s->newest;
    }
    wait_for(s);
    return lvni_sim_stream_failed(s) ? lvn_error_adopt(&s->error) : LVN_OK;
}

bool lvni_sim_stream_failed(void *stream)
{
    lvni_sim_stream *s = stream;
    return atomic_load_explicit(&s->failed, memory_order_acquire);
}

void lvni_sim_stream_clear(void *stream)
{
    lvni_sim_stream *s = stream;
    if (atomic_exchange(&s->failed, false)) {
        atomic_store(&s->engine->failed, false);
    }
}

/* ---- events ---- */

typedef struct event {
    _Atomic int refs; /* the caller's, and one of each command under way */
    pthread_mutex_t lock;
    pthread_cond_t passed;
    uint64_t recorded, reached; /* counted up */
    uint64_t clock_ns;          /* when it was reached, by that engine's clock */
    lvni_sim_engine *engine;    /* of the newest record, with the number of its command */
    uint64_t number, waited;
} event;

typedef struct event_command {
    event *e;
    uint64_t value;
    lvni_sim_engine *engine; /* that runs the command */
} event_command;

static void release(event *e)
{
    if (atomic_fetch_sub(&e->refs, 1) == 1) {
        pthread_cond_destroy(&e->passed);
        pthread_mutex_destroy(&e->lock);
        lvni_core_free(e);
    }
}

lvn_status lvni_sim_event_create(void *device, void **out)
{
    (void)device;
    event *e = LVNI_NEW(LVNI_TAG_KERNEL, event);
    if (e == NULL) {
        return LVN_ERR_MEMORY;
    }
    atomic_store(&e->refs, 1);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->passed, NULL);
    *out = e;
    return LVN_OK;
}

void lvni_sim_event_destroy(void *e)
{
    release(e);
}

static lvn_status reach(void *payload)
{
    const event_command *c = payload;
    pthread_mutex_lock(&c->e->lock);
    c->e->reached = c->value > c->e->reached ? c->value : c->e->reached;
    c->e->clock_ns = atomic_load(&c->engine->clock_ns);
    pthread_cond_broadcast(&c->e->passed);
    pthread_mutex_unlock(&c->e->lock);
    release(c->e);
    return LVN_OK;
}

static lvn_status await(void *payload)
{
    const event_command *c = payload;
    pthread_mutex_lock(&c->e->lock);
    while (c->e->reached < c->value) {
        pthread_cond_wait(&c->e->passed, &c->e->lock);
    }
    if (c->e->clock_ns > atomic_load(&c->engine->clock_ns)) {
        atomic_store(&c->engine->clock_ns, c->e->clock_ns);
    }
    pthread_mutex_unlock(&c->e->lock);
    release(c->e);
    return LVN_OK;
}

/* A replay passes the event as it is then. The graph has a reference. */
static lvn_status capture_event(const lvni_sim_stream *s, event *e, bool records, bool *captured)
{
    lvni_sim_command c;
    memset(&c, 0, offsetof(lvni_sim_command, payload));
    c.event = e;
    c.records = records;
    const lvn_status status = lvni_sim_capture(s->engine, &c, NULL, 0, captured);
    if (*captured && status == LVN_OK) {
        atomic_fetch_add(&e->refs, 1);
    }
    return status;
}

lvn_status lvni_sim_event_record(void *event_, void *stream)
{
    event *e = event_;
    lvni_sim_stream *s = stream;
    bool captured;
    LVN_TRY(capture_event(s, e, true, &captured));
    if (captured) {
        return LVN_OK;
    }
    pthread_mutex_lock(&e->lock);
    const event_command c = {e, ++e->recorded, s->engine};
    pthread_mutex_unlock(&e->lock);
    atomic_fetch_add(&e->refs, 1);
    const lvn_status status = submit(s, "event", reach, &c, sizeof c, 0, true);
    pthread_mutex_lock(&e->lock);
    e->engine = s->engine;
    e->number = s->newest;
    pthread_mutex_unlock(&e->lock);
    if (status != LVN_OK) {
        release(e);
    }
    return status;
}

lvn_status lvni_sim_event_follow(void *stream, void *event_)
{
    event *e = event_;
    lvni_sim_stream *s = stream;
    bool captured;
    LVN_TRY(capture_event(s, e, false, &captured));
    if (captured) {
        return LVN_OK;
    }
    pthread_mutex_lock(&e->lock);
    const event_command c = {e, e->recorded, s->engine};
    pthread_mutex_unlock(&e->lock);
    atomic_fetch_add(&e->refs, 1);
    const lvn_status status = submit(s, "event", await, &c, sizeof c, 0, true);
    if (status != LVN_OK) {
        release(e);
    }
    return status;
}

lvn_status lvni_sim_event_wait(void *event_)
{
    event *e = event_;
    pthread_mutex_lock(&e->lock);
    lvni_sim_engine *engine = e->engine;
    const uint64_t value = e->recorded, number = e->number;
    const bool new = engine != NULL &&value != e->waited && e->reached < value;
    e->waited = value;
    pthread_mutex_unlock(&e->lock);
    if (new) {
        count_wait(engine, number);
    }
    pthread_mutex_lock(&e->lock);
    while (e->reached < value) {
        pthread_cond_wait(&e->passed, &e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return LVN_OK;
}

/* ---- calls of the host ---- */

typedef struct host_call {
    void (*fn)(void *user);
    void *user;
    lvni_sim_engine *engine; /* that calls */
} host_call;

/* The engine computes nothing meanwhile: by its clock what follows begins when fn has returned. */
static lvn_status call_host(void *payload)
{
    const host_call *c = payload;
    c->fn(c->user);
    const uint64_t now = lvni_core_now_ns();
    if (now > atomic_load(&c->engine->clock_ns)) {
        atomic_store(&c->engine->clock_ns, now);
    }
    return LVN_OK;
}

lvn_status lvni_sim_host_call(void *stream, void (*fn)(void *user), void *user)
{
    lvni_sim_stream *s = stream;
    const host_call c = {fn, user, s->engine};
    return submit(s, "a call of the host", call_host, &c, sizeof c, 0, true);
}

/* ---- copies ---- */

typedef struct copy {
    void *to;
    const void *from; /* NULL: zeros; or the bytes behind */
    size_t bytes;
    bool here;
} copy;

typedef struct small_copy {
    copy c;
    unsigned char data[LVN_UPLOAD];
} small_copy;

static lvn_status run_copy(void *payload)
{
    const copy *c = payload;
    if (c->here) {
        memcpy(c->to, ((const small_copy *)payload)->data, c->bytes);
    } else if (c->from == NULL) {
        memset(c->to, 0, c->bytes);
    } else {
        memcpy(c->to, c->from, c->bytes);
    }
    return LVN_OK;
}

static uint64_t cost_of(const lvni_sim_stream *s, size_t bytes)
{
    return (uint64_t)((double)bytes * s->engine->device->copy_ns_a_byte);
}

lvn_status lvni_sim_copy(void *stream, void *to, const void *from, size_t bytes)
{
    const copy c = {.to = lvni_sim_alias(to), .from = lvni_sim_alias(from), .bytes = bytes};
    return submit(stream, "copy", run_copy, &c, sizeof c, cost_of(stream, bytes), false);
}

lvn_status lvni_sim_upload(void *stream, void *to, const void *from, size_t bytes)
{
    small_copy c = {.c = {.to = lvni_sim_alias(to), .bytes = bytes, .here = true}};
    LVN_ARG(bytes <= LVN_UPLOAD, "an upload of %zu bytes; at most %d", bytes, LVN_UPLOAD);
    memcpy(c.data, from, bytes);
    return submit(stream, "copy", run_copy, &c, offsetof(small_copy, data) + bytes,
                  cost_of(stream, bytes), false);
}

lvn_status lvni_sim_zero(void *stream, void *p, size_t bytes)
{
    const copy c = {.to = lvni_sim_alias(p), .bytes = bytes};
    return submit(stream, "zeros", run_copy, &c, sizeof c, 0, false);
}
