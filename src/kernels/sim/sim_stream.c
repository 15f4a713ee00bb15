/* Streams of simulated accelerators (sim.h), and what is submitted to them: events, calls of the
 * host, copies. What runs it: sim_engine.c. */
#include "core/alloc.h"
#include "core/machine.h"
#include "kernels/sim/sim.h"

#include <string.h>

/* ---- streams ---- */

static lvn_status submit_native(void *stream, const char *what, lvni_sim_fn fn, const void *payload,
                                size_t bytes)
{
    return lvni_sim_submit_as(stream, what, fn, payload, bytes, 0, false);
}

void *lvni_sim_native_stream(void *stream)
{
    return &((lvni_sim_stream *)stream)->native;
}

lvn_status lvni_sim_stream_create(void *device, lvn_stream_kind kind, void **stream)
{
    lvni_sim_device *d = device;
    lvni_sim_stream *s = LVNI_NEW(LVNI_TAG_KERNEL, lvni_sim_stream);
    if (s == NULL) {
        return LVN_ERR_MEMORY;
    }
    s->native = (lvni_sim_native){
        .device = d->index, .stream = s, .submit = submit_native, .alias = lvni_sim_alias};
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
    bool failed; /* the stream that recorded it had failed there */
    lvn_error error;
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
    c->e->failed = atomic_load(&c->engine->failed);
    if (c->e->failed) {
        c->e->error = c->engine->error;
    }
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
    /* what follows depends on what was left out there */
    const bool fails = c->e->failed && !atomic_load(&c->engine->failed);
    const lvn_error error = c->e->error;
    pthread_mutex_unlock(&c->e->lock);
    release(c->e);
    return fails ? lvn_error_adopt(&error) : LVN_OK;
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
    const lvn_status status = lvni_sim_submit_as(s, "event", reach, &c, sizeof c, 0, true);
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
    const lvn_status status = lvni_sim_submit_as(s, "event", await, &c, sizeof c, 0, true);
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
    pthread_mutex_lock(&s->engine->lock);
    const bool captured = s->engine->capture != NULL;
    pthread_mutex_unlock(&s->engine->lock);
    if (captured) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s: a call of the host cannot be captured",
                 s->engine->device->name);
    }
    return lvni_sim_submit_as(s, "a call of the host", call_host, &c, sizeof c, 0, true);
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
    return lvni_sim_submit_as(stream, "copy", run_copy, &c, sizeof c, cost_of(stream, bytes),
                              false);
}

lvn_status lvni_sim_upload(void *stream, void *to, const void *from, size_t bytes)
{
    small_copy c = {.c = {.to = lvni_sim_alias(to), .bytes = bytes, .here = true}};
    LVN_ARG(bytes <= LVN_UPLOAD, "an upload of %zu bytes; at most %d", bytes, LVN_UPLOAD);
    memcpy(c.data, from, bytes);
    return lvni_sim_submit_as(stream, "copy", run_copy, &c, offsetof(small_copy, data) + bytes,
                              cost_of(stream, bytes), false);
}

lvn_status lvni_sim_zero(void *stream, void *p, size_t bytes)
{
    const copy c = {.to = lvni_sim_alias(p), .bytes = bytes};
    return lvni_sim_submit_as(stream, "zeros", run_copy, &c, sizeof c, 0, false);
}
