/* Copies and zeros between any two places of host and devices, flat buffers, and levin/device.h. */
#include "tensor/device_impl.h"

#include "core/error.h"
#include "tensor/device_blocks.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory of the host that a device knows ---- */

void *lvni_tensor_host_take(lvni_tensor_device *d, size_t bytes)
{
    void *p = NULL;
    if (d == NULL) {
        return lvni_core_alloc(LVNI_TAG_TENSOR, bytes);
    }
    return d->backend->host_take(d->state, bytes, &p) == LVN_OK ? p : NULL;
}

void lvni_tensor_host_give(lvni_tensor_device *d, void *p, size_t bytes)
{
    if (d == NULL) {
        lvni_core_free(p);
    } else if (p != NULL) {
        d->backend->host_give(d->state, p, bytes);
    }
}

/* ---- copies ---- */

/* Large copies from and to plain memory go through a piece that the device knows, which holds this
 * much at once. */
enum { BOUNCE = 4 << 20 };

static lvn_status copy_plain(lvni_tensor_device *d, const lvni_tensor_stream *s, char *device,
                             char *host, size_t bytes, bool to_host)
{
    const lvn_backend *b = d->backend;
    const bool small = bytes <= LVNI_LANDING;
    const size_t room = small ? LVNI_LANDING : bytes < BOUNCE ? bytes : BOUNCE;
    char *bounce = small ? s->landing : lvni_tensor_host_take(d, room);
    lvn_status status = LVN_OK;
    if (bounce == NULL) {
        return lvn_last_error()->code;
    }
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < room ? bytes - at : room;
        if (!to_host) {
            memcpy(bounce, host + at, n);
        }
        LVNI_TRY_DONE(status, lvni_tensor_device_count_wait(d));
        const lvn_status copied = to_host ? b->copy(s->stream, bounce, device + at, n)
                                          : b->copy(s->stream, device + at, bounce, n),
                         ran = b->stream_wait(s->stream); /* before the piece is used again */
        LVNI_TRY_DONE(status, copied);
        LVNI_TRY_DONE(status, ran);
        if (to_host) {
            memcpy(host + at, bounce, n);
        }
    }
done:
    if (!small) {
        lvni_tensor_host_give(d, bounce, room);
    }
    return status;
}

/* What the step's thread sends in a step (partners of images, class weights) goes without a
 * wait. */
enum { UPLOADS = 16 };

static lvn_status copy_from_host(lvni_tensor_device *d, void *to, const void *from, size_t bytes)
{
    const lvni_tensor_stream *s = lvni_tensor_device_get_stream(d);
    if (s == NULL) {
        return lvn_last_error()->code;
    }
    if (bytes > (size_t)UPLOADS * LVN_UPLOAD) {
        return copy_plain(d, s, to, (char *)(uintptr_t)from, bytes, false);
    }
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < LVN_UPLOAD ? bytes - at : LVN_UPLOAD;
        LVN_TRY(d->backend->upload(s->stream, (char *)to + at, (const char *)from + at, n));
    }
    return LVN_OK;
}

void lvni_tensor_device_refuse_reads(lvni_tensor_device *d)
{
    d->refuses = true;
    d->refused = false;
}

const char *lvni_tensor_device_refused(const lvni_tensor_device *d)
{
    return d->refused ? d->refused_in : NULL;
}

static lvn_status refuse_read(lvni_tensor_device *d)
{
    const char *path = lvni_tensor_ctx_get()->module_path;
    if (!d->refused) {
        snprintf(d->refused_in, sizeof d->refused_in, "%s", path);
    }
    d->refused = true;
    LVN_FAIL(LVN_ERR_UNSUPPORTED, "the host reads a tensor that has no values here%s%s",
             path[0] != '\0' ? ", in " : "", path);
}

static lvn_status copy_to_host(lvni_tensor_device *d, void *to, const void *from, size_t bytes)
{
    LVN_TRY(d->refuses ? refuse_read(d) : LVN_OK);
    const lvni_tensor_stream *s = lvni_tensor_device_get_stream(d);
    return s == NULL ? lvn_last_error()->code
                     : copy_plain(d, s, (char *)(uintptr_t)from, to, bytes, true);
}

/* Through the host, from a device of one backend to one of another. */
static lvn_status copy_between_backends(lvni_tensor_device *target, void *to,
                                        lvni_tensor_device *source, const void *from, size_t bytes)
{
    void *host = lvni_core_alloc(LVNI_TAG_TENSOR, bytes);
    lvn_status s = host == NULL ? LVN_ERR_MEMORY : copy_to_host(source, host, from, bytes);
    if (s == LVN_OK) {
        s = copy_from_host(target, to, host, bytes);
    }
    lvni_core_free(host);
    return s;
}

/* After what the source's compute streams have now, of whichever context. */
static lvn_status copy_between_devices(lvni_tensor_device *target, void *to,
                                       lvni_tensor_device *source, const void *from, size_t bytes)
{
    const lvn_backend *b = target->backend;
    void *stream = lvni_tensor_device_stream(target), *event = NULL;
    if (stream == NULL) {
        return lvn_last_error()->code;
    }
    LVN_TRY(lvni_tensor_device_count_wait(source));
    LVN_TRY(lvni_tensor_device_count_wait(target));
    LVN_TRY(b->event_create(source->state, &event));
    lvn_status s;
    LVNI_TRY_DONE(s, b->event_record(event, source->own[LVN_STREAM_COMPUTE]));
    LVNI_TRY_DONE(s, b->event_follow(stream, event));
    LVNI_TRY_DONE(s, b->copy(stream, to, from, bytes));
    s = b->stream_wait(stream); /* the source may be written again */
done:
    b->event_destroy(event);
    return s;
}

lvn_status lvni_tensor_mem_copy(void *to, const void *from, size_t bytes)
{
    lvni_tensor_device *target = lvni_tensor_device_of(to), *source = lvni_tensor_device_of(from);
    if (target == NULL && source == NULL) {
        memcpy(to, from, bytes);
        return LVN_OK;
    }
    if (target == NULL) {
        return copy_to_host(source, to, from, bytes);
    }
    if (source == NULL) {
        atomic_fetch_add_explicit(&target->uploads, 1, memory_order_relaxed);
        return copy_from_host(target, to, from, bytes);
    }
    if (target->kind != source->kind) {
        return copy_between_backends(target, to, source, from, bytes);
    }
    if (target != source) {
        return copy_between_devices(target, to, source, from, bytes);
    }
    void *stream = lvni_tensor_device_stream(target);
    return stream == NULL ? lvn_last_error()->code : target->backend->copy(stream, to, from, bytes);
}

lvn_status lvni_tensor_mem_put(void *to, const void *from, size_t bytes)
{
    lvni_tensor_device *d = lvni_tensor_device_of(to);
    return d == NULL ? lvni_tensor_mem_copy(to, from, bytes) : copy_from_host(d, to, from, bytes);
}

lvn_status lvni_tensor_mem_zero(void *p, size_t bytes)
{
    lvni_tensor_device *d = lvni_tensor_device_of(p);
    if (d == NULL) {
        memset(p, 0, bytes);
        return LVN_OK;
    }
    void *stream = lvni_tensor_device_stream(d);
    return stream == NULL ? lvn_last_error()->code : d->backend->zero(stream, p, bytes);
}

void *lvni_tensor_mem_calloc(lvni_core_tag tag, size_t count, size_t size)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx == NULL || ctx->device == NULL) {
        return ctx == NULL ? NULL : lvni_core_calloc(tag, count, size);
    }
    if (size != 0 && count > LVNI_SIZE_LIMIT / size) {
        lvn_error_set(LVN_ERR_DEVICE_MEMORY, __FILE__, __LINE__,
                      "%s: a buffer of %zu x %zu bytes is too large", ctx->device->name, count,
                      size);
        return NULL;
    }
    void *p = lvni_tensor_device_take_flat(ctx->device, count * size);
    if (p != NULL && lvni_tensor_mem_zero(p, count * size) != LVN_OK) {
        lvni_tensor_mem_free(p, count, size);
        return NULL;
    }
    return p;
}

void lvni_tensor_mem_free(void *p, size_t count, size_t size)
{
    lvni_tensor_device *d = lvni_tensor_device_of(p);
    if (d == NULL) {
        lvni_core_free(p);
        return;
    }
    lvni_tensor_device_give(d, LVN_STREAM_COMPUTE, false, p,
                            lvni_tensor_device_round(count * size));
}

/* ---- levin/device.h ---- */

static lvn_status find(lvn_device device, lvni_tensor_device **out)
{
    *out = NULL;
    if (device.kind == LVN_DEVICE_CPU && device.index == 0) {
        return LVN_OK;
    }
    if (device.kind == LVN_DEVICE_CPU) {
        LVN_FAIL(LVN_ERR_NOT_FOUND, "there is no CPU with number %d; the CPU has number 0",
                 device.index);
    }
    return lvni_tensor_device_open((int)device.kind, device.index, out);
}

static lvn_device name_of(const lvni_tensor_device *d)
{
    return d == NULL || lvni_tensor_device_is_dry(d)
               ? LVN_CPU
               : (lvn_device){(lvn_device_kind)d->kind, d->index};
}

lvn_status lvn_device_find(const char *name, lvn_device *out)
{
    char kind[32];
    int index = 0, end = 0, number;
    *out = LVN_CPU;
    LVN_ARG(name != NULL, "lvn_device_find needs a name, as in sim:0, got NULL");
    const size_t n = strcspn(name, ":");
    const bool numbered = name[n] == ':';
    if (n == 0 || n >= sizeof kind ||
        (numbered && (sscanf(name + n, ":%d%n", &index, &end) != 1 || name[n + (size_t)end] != 0 ||
                      index < 0))) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s is not the name of a device: give a kind and a number, as in "
                 "sim:0",
                 name);
    }
    memcpy(kind, name, n);
    kind[n] = '\0';
    LVN_TRY(lvni_tensor_backend_find(kind, &number));
    *out = (lvn_device){(lvn_device_kind)number, index};
    lvni_tensor_device *d;
    return find(*out, &d);
}

lvn_status lvn_device_use(lvn_device device)
{
    lvni_tensor_device *d;
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    LVN_TRY(ctx == NULL ? LVN_ERR_MEMORY : find(device, &d));
    ctx->device = d;
    return LVN_OK;
}

lvn_device lvn_device_in_use(void)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    return name_of(ctx == NULL ? NULL : ctx->device);
}

lvn_device lvn_tensor_device(const lvn_tensor *t)
{
    return name_of(t == NULL ? NULL : lvni_tensor_device_of(t->data));
}

lvn_tensor *lvni_tensor_to(const lvn_tensor *t, lvni_tensor_device *device)
{
    const lvni_tensor_desc d = lvni_tensor_get_desc(t);
    lvn_tensor *copy_of_t = lvni_tensor_new_on(&d, device);
    if (copy_of_t != NULL &&
        lvni_tensor_mem_copy(copy_of_t->data, t->data,
                             (size_t)lvn_numel(t) * lvn_dtype_size(t->dtype)) != LVN_OK) {
        lvn_release(copy_of_t);
        return NULL;
    }
    return copy_of_t;
}

lvn_tensor *lvn_to_device(const lvn_tensor *t, lvn_device device)
{
    lvni_tensor_device *d;
    if (t == NULL || find(device, &d) != LVN_OK) {
        return NULL;
    }
    return lvni_tensor_to(t, d);
}
