/* Copies between host and devices, flat buffers, and levin/device.h. */
#include "tensor/cache.h"
#include "tensor/device_impl.h"
#include "tensor/tensor.h"

#include <string.h>

enum { SMALL = 1024 }; /* bytes that travel in the command itself */

typedef struct copy {
    void *to;
    const void *from; /* NULL: zeros; == here: the bytes behind */
    size_t bytes;
    bool here;
} copy;

typedef struct small_copy {
    copy c;
    unsigned char data[SMALL];
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

static lvn_status copy_from_host(lvni_tensor_device *d, void *to, const void *from, size_t bytes)
{
    if (bytes <= SMALL) {
        small_copy c = {.c = {.to = lvni_tensor_device_alias(to), .bytes = bytes, .here = true}};
        memcpy(c.data, from, bytes);
        return lvni_tensor_device_submit(d, "copy", run_copy, &c,
                                         offsetof(small_copy, data) + bytes);
    }
    const copy c = {.to = lvni_tensor_device_alias(to), .from = from, .bytes = bytes};
    LVN_TRY(lvni_tensor_device_submit(d, "copy", run_copy, &c, sizeof c));
    return lvni_tensor_device_sync();
}

static lvn_status copy_to_host(lvni_tensor_device *d, void *to, const void *from, size_t bytes)
{
    if (d->dry) {
        memset(to, 0, bytes);
        return LVN_OK;
    }
    const copy c = {.to = to, .from = lvni_tensor_device_alias(from), .bytes = bytes};
    LVN_TRY(lvni_tensor_device_submit(d, "copy", run_copy, &c, sizeof c));
    return lvni_tensor_device_sync();
}

static lvn_status do_nothing(void *payload)
{
    (void)payload;
    return LVN_OK;
}

/* The commands that the device has now, of whichever context, and all of the calling one. */
static lvn_status wait_for_all(lvni_tensor_device *d)
{
    LVN_TRY(lvni_tensor_device_submit(d, "mark", do_nothing, &(char){0}, 1));
    return lvni_tensor_device_sync();
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
        return copy_from_host(target, to, from, bytes);
    }
    const copy c = {
        .to = lvni_tensor_device_alias(to), .from = lvni_tensor_device_alias(from), .bytes = bytes};
    if (target != source) {
        LVN_TRY(wait_for_all(source));
    }
    LVN_TRY(lvni_tensor_device_submit(target, "copy", run_copy, &c, sizeof c));
    return target != source ? lvni_tensor_device_sync() : LVN_OK;
}

lvn_status lvni_tensor_mem_zero(void *p, size_t bytes)
{
    lvni_tensor_device *d = lvni_tensor_device_of(p);
    if (d == NULL) {
        memset(p, 0, bytes);
        return LVN_OK;
    }
    const copy c = {.to = lvni_tensor_device_alias(p), .bytes = bytes};
    return lvni_tensor_device_submit(d, "zeros", run_copy, &c, sizeof c);
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
    size_t got;
    void *p = lvni_tensor_device_take(ctx->device, count * size, &got);
    if (p != NULL && lvni_tensor_mem_zero(p, count * size) != LVN_OK) {
        lvni_tensor_device_give(ctx->device, p, got);
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
    size_t got;
    lvni_tensor_size_class(count * size, &got);
    lvni_tensor_device_give(d, p, got);
}

/* ---- levin/device.h ---- */

static lvn_status find(lvn_device device, lvni_tensor_device **out)
{
    *out = NULL;
    if (device.kind == LVN_DEVICE_CPU && device.index == 0) {
        return LVN_OK;
    }
    if (device.kind != LVN_DEVICE_SIM) {
        LVN_FAIL(LVN_ERR_NOT_FOUND,
                 "there is no device of kind %d with number %d; the CPU has number 0",
                 (int)device.kind, device.index);
    }
    return lvni_tensor_device_open(device.index, out);
}

static lvn_device name_of(const lvni_tensor_device *d)
{
    return d == NULL || d->dry ? LVN_CPU : LVN_SIM(d->index);
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
