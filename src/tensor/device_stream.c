/* The streams of contexts: each context has a compute stream of its own on every device that it
 * uses, so that what fails is reported to the caller that submitted it. The device's own streams
 * give order between kinds of streams. */
#include "tensor/device_impl.h"

/* Of a context that has submitted anything. */
struct lvni_under_way {
    lvni_tensor_stream *streams;
    const lvni_tensor_stream *first; /* that was seen to have failed */
    bool failed;                     /* while submitting */
    lvn_error error;
};

/* ---- of a device ---- */

lvn_status lvni_tensor_device_streams_init(lvni_tensor_device *d)
{
    pthread_mutex_init(&d->stream_lock, NULL);
    for (int k = 0; k < LVN_STREAM_KINDS; k++) {
        LVN_TRY(d->backend->stream_create(d->state, (lvn_stream_kind)k, &d->own[k]));
    }
    return d->backend->event_create(d->state, &d->crossing);
}

void lvni_tensor_device_streams_free(lvni_tensor_device *d)
{
    for (lvni_tensor_stream *s = d->streams; s != NULL; s = s->of_device) {
        d->backend->stream_destroy(s->stream);
        d->backend->host_give(d->state, s->landing, LVNI_LANDING);
        s->device = NULL; /* its context frees it */
    }
    for (int k = 0; k < LVN_STREAM_KINDS; k++) {
        if (d->own[k] != NULL) {
            d->backend->stream_destroy(d->own[k]);
        }
    }
    if (d->crossing != NULL) {
        d->backend->event_destroy(d->crossing);
    }
    pthread_mutex_destroy(&d->stream_lock);
}

lvn_status lvni_tensor_device_order(lvni_tensor_device *d, lvn_stream_kind later,
                                    lvn_stream_kind earlier)
{
    pthread_mutex_lock(&d->stream_lock);
    lvn_status s = d->backend->event_record(d->crossing, d->own[earlier]);
    if (s == LVN_OK) {
        s = d->backend->event_follow(d->own[later], d->crossing);
    }
    pthread_mutex_unlock(&d->stream_lock);
    return s;
}

/* ---- of a context ---- */

static void end_stream(lvni_tensor_stream *s)
{
    lvni_tensor_device *d = s->device;
    if (d != NULL) {
        pthread_mutex_lock(&d->stream_lock);
        lvni_tensor_stream **at = &d->streams;
        while (*at != s) {
            at = &(*at)->of_device;
        }
        *at = s->of_device;
        pthread_mutex_unlock(&d->stream_lock);
        d->backend->stream_destroy(s->stream);
        d->backend->host_give(d->state, s->landing, LVNI_LANDING);
    }
    lvni_core_free(s);
}

void lvni_tensor_ctx_free_under_way(lvni_tensor_ctx *ctx)
{
    struct lvni_under_way *u = ctx->under_way;
    while (u != NULL && u->streams != NULL) {
        lvni_tensor_stream *s = u->streams;
        u->streams = s->of_ctx;
        end_stream(s);
    }
    lvni_core_free(u);
    ctx->under_way = NULL;
}

static struct lvni_under_way *get_under_way(void)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx != NULL && ctx->under_way == NULL) {
        ctx->under_way = LVNI_NEW(LVNI_TAG_TENSOR, struct lvni_under_way);
    }
    return ctx == NULL ? NULL : ctx->under_way;
}

static lvni_tensor_stream *make_stream(struct lvni_under_way *u, lvni_tensor_device *d)
{
    lvni_tensor_stream *s = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_stream);
    if (s == NULL) {
        return NULL;
    }
    s->device = d;
    if (d->backend->host_take(d->state, LVNI_LANDING, &s->landing) != LVN_OK) {
        lvni_core_free(s);
        return NULL;
    }
    if (d->backend->stream_create(d->state, LVN_STREAM_COMPUTE, &s->stream) != LVN_OK) {
        d->backend->host_give(d->state, s->landing, LVNI_LANDING);
        lvni_core_free(s);
        return NULL;
    }
    pthread_mutex_lock(&d->stream_lock);
    s->of_device = d->streams;
    d->streams = s;
    pthread_mutex_unlock(&d->stream_lock);
    s->of_ctx = u->streams;
    u->streams = s;
    return s;
}

lvni_tensor_stream *lvni_tensor_device_get_stream(lvni_tensor_device *d)
{
    struct lvni_under_way *u = get_under_way();
    if (u == NULL) {
        return NULL;
    }
    for (lvni_tensor_stream *s = u->streams; s != NULL; s = s->of_ctx) {
        if (s->device == d) {
            return s;
        }
    }
    return make_stream(u, d);
}

void *lvni_tensor_device_stream(lvni_tensor_device *d)
{
    lvni_tensor_stream *s = lvni_tensor_device_get_stream(d);
    return s == NULL ? NULL : s->stream;
}

/* ---- what failed ---- */

void lvni_tensor_device_record_error(lvni_tensor_device *d)
{
    struct lvni_under_way *u = get_under_way();
    if (u != NULL && !u->failed) {
        lvn_error_frame("on %s", d->name);
        u->failed = true;
        u->error = *lvn_last_error();
    }
}

void lvni_tensor_device_forget_error(void)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx != NULL && ctx->under_way != NULL) {
        ctx->under_way->failed = false;
    }
}

/* Copies beside the kernels are the device's own: one that fails counts for every context that
 * computes there. */
static bool has_failed(const lvni_tensor_stream *s)
{
    const lvni_tensor_device *d = s->device;
    return d != NULL && (d->backend->stream_failed(s->stream) ||
                         d->backend->stream_failed(d->own[LVN_STREAM_COPY]));
}

static lvn_status wait_for(const lvni_tensor_stream *s)
{
    lvni_tensor_device *d = s->device;
    LVN_TRY(d == NULL ? LVN_OK : lvni_tensor_device_count_wait(d));
    LVN_TRY(d == NULL ? LVN_OK : d->backend->stream_wait(s->stream));
    return d == NULL || !d->backend->stream_failed(d->own[LVN_STREAM_COPY])
               ? LVN_OK
               : d->backend->stream_wait(d->own[LVN_STREAM_COPY]);
}

static void clear(const lvni_tensor_stream *s)
{
    const lvni_tensor_device *d = s->device;
    if (d == NULL || atomic_load(&d->capturing)) {
        return;
    }
    for (int k = 0; k < LVN_STREAM_KINDS;
         k++) { /* they may still get to an event behind the error */
        (void)d->backend->stream_wait(d->own[k]);
    }
    d->backend->stream_clear(s->stream);
    for (int k = 0; k < LVN_STREAM_KINDS; k++) {
        d->backend->stream_clear(d->own[k]);
    }
}

bool lvni_tensor_device_failed(void)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    struct lvni_under_way *u = ctx == NULL ? NULL : ctx->under_way;
    const lvni_tensor_stream *s = u == NULL || u->first != NULL ? NULL : u->streams;
    while (s != NULL && !has_failed(s)) {
        s = s->of_ctx;
    }
    if (s != NULL) {
        u->first = s;
    }
    return u != NULL && (u->failed || u->first != NULL);
}

/* A context seldom has work on several devices. The error that was seen first counts. */
static lvn_status sync_streams(const struct lvni_under_way *u)
{
    lvn_error error = {0};
    lvn_status first = LVN_OK;
    for (const lvni_tensor_stream *s = u->streams; s != NULL; s = s->of_ctx) {
        const lvn_status status = wait_for(s);
        if (status != LVN_OK && (first == LVN_OK || s == u->first)) {
            first = status;
            error = *lvn_last_error();
        }
    }
    if (first != LVN_OK) {
        return lvn_error_adopt(&error);
    }
    return u->failed ? lvn_error_adopt(&u->error) : LVN_OK;
}

lvn_status lvni_tensor_device_sync(void)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    return ctx == NULL || ctx->under_way == NULL ? LVN_OK : sync_streams(ctx->under_way);
}

lvn_status lvni_tensor_device_take_error(void)
{
    const lvn_status status = lvni_tensor_device_sync();
    if (status != LVN_OK) {
        const lvn_error error = *lvn_last_error();
        struct lvni_under_way *u = lvni_tensor_ctx_get()->under_way;
        u->failed = false;
        u->first = NULL;
        for (const lvni_tensor_stream *s = u->streams; s != NULL; s = s->of_ctx) {
            clear(s);
        }
        return lvn_error_adopt(&error);
    }
    return status;
}

lvn_status lvn_device_wait(void)
{
    return lvni_tensor_device_take_error();
}
