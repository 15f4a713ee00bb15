/* Tensors: headers, storages, views. Headers and storages live in the cache of the thread that
 * releases them, like the data; so a step that makes the same tensors as the one before allocates
 * nothing. */
#include "tensor/tensor.h"

#include "core/alloc.h"
#include "core/math.h"
#include "tensor/device.h"
#include "tensor/large_blocks.h"

#include <math.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[LVN_DTYPE_COUNT] = {{"f32", 4}, {"f64", 8},  {"i64", 8},  {"i32", 4},
                             {"u8", 1},  {"bool", 1}, {"bf16", 2}, {"f16", 2}};

static _Atomic uint64_t next_id = 1;

size_t lvn_dtype_size(lvn_dtype dtype)
{
    return (int)dtype >= 0 && dtype < LVN_DTYPE_COUNT ? dtypes[dtype].size : 0;
}

const char *lvn_dtype_name(lvn_dtype dtype)
{
    return (int)dtype >= 0 && dtype < LVN_DTYPE_COUNT ? dtypes[dtype].name : "none";
}

static void *take(size_t bytes, size_t *got)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    return ctx == NULL ? NULL : lvni_tensor_cache_take(ctx->cache, bytes, got);
}

static void give(void *p, size_t got)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx == NULL) {
        lvni_core_free(p);
        return;
    }
    lvni_tensor_cache_give(ctx->cache, p, got);
}

static lvn_tensor *header_new(const lvni_tensor_desc *d, lvni_tensor_storage *storage, void *data)
{
    size_t got;
    lvn_tensor *t = take(sizeof *t, &got);
    if (t == NULL) {
        return NULL;
    }
    memset(t, 0, sizeof *t);
    atomic_store_explicit(&t->refs, 1, memory_order_relaxed);
    t->dtype = d->dtype;
    t->ndim = d->ndim;
    memcpy(t->shape, d->shape, (size_t)d->ndim * sizeof *d->shape);
    t->param = -1;
    t->storage = storage;
    t->data = data;
    t->id = atomic_fetch_add_explicit(&next_id, 1, memory_order_relaxed);
    return t;
}

/* A large block knows where it came from, any other goes to the thread that releases it. */
static void *take_on_host(lvni_tensor_storage *s, size_t bytes)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    lvni_tensor_large *large = NULL;
    if (bytes >= LVNI_LARGE_BLOCK && bytes <= LVNI_SIZE_LIMIT && ctx != NULL &&
        lvni_tensor_cache_large(ctx->cache, &large) != LVN_OK) {
        return NULL;
    }
    s->owner = large;
    return large != NULL ? lvni_tensor_large_take(large, bytes) : take(bytes, &s->bytes);
}

static void give_on_host(const lvni_tensor_storage *s)
{
    if (s->owner != NULL) {
        lvni_tensor_large_give(s->owner, s->data);
    } else {
        give(s->data, s->bytes);
    }
}

static void *take_data(lvni_tensor_storage *s, lvni_tensor_device *device, lvn_stream_kind kind,
                       size_t bytes)
{
    return device != NULL ? lvni_tensor_device_take(device, kind, bytes, &s->bytes)
                          : take_on_host(s, bytes);
}

static lvni_tensor_storage *storage_new(void *borrowed, size_t bytes, lvni_tensor_device *device,
                                        lvn_stream_kind kind)
{
    size_t got;
    lvni_tensor_storage *s = take(sizeof *s, &got);
    if (s == NULL) {
        return NULL;
    }
    atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
    s->borrowed = borrowed != NULL;
    s->release = NULL;
    s->on_device = borrowed == NULL && device != NULL;
    s->for_copy = kind == LVN_STREAM_COPY;
    s->bytes = bytes;
    s->owner = NULL;
    s->data = borrowed != NULL ? borrowed : take_data(s, device, kind, bytes);
    if (s->data == NULL) {
        give(s, sizeof *s);
        return NULL;
    }
    return s;
}

static void storage_release(lvni_tensor_storage *s)
{
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1) {
        lvni_tensor_device *device = s->on_device ? lvni_tensor_device_of(s->data) : NULL;
        if (device != NULL) {
            lvni_tensor_device_give(device, s->for_copy ? LVN_STREAM_COPY : LVN_STREAM_COMPUTE,
                                    s->for_copy, s->data, s->bytes);
        } else if (!s->borrowed && !s->on_device) {
            give_on_host(s);
        } else if (s->release != NULL) {
            s->release(s->owner);
        }
        give(s, sizeof *s);
    }
}

/* Checked: rank, signs and the product against overflow. */
static lvn_status make_desc(lvni_tensor_desc *d, lvn_dtype dtype, int ndim, const int64_t *shape)
{
    LVN_ARG(ndim >= 0 && ndim <= LVN_MAX_NDIM, "a tensor has 0 to %d axes, not %d", LVN_MAX_NDIM,
            ndim);
    LVN_ARG((int)dtype >= 0 && dtype < LVN_DTYPE_COUNT, "unknown data type %d", (int)dtype);
    *d = (lvni_tensor_desc){.dtype = dtype, .ndim = ndim};
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        LVN_ARG(shape[i] >= 0 && (shape[i] == 0 || n <= INT64_MAX / 16 / shape[i]),
                "axis %d of a tensor cannot have size %lld", i, (long long)shape[i]);
        d->shape[i] = shape[i];
        n *= shape[i];
    }
    return LVN_OK;
}

static lvn_tensor *new_for(const lvni_tensor_desc *d, lvni_tensor_device *device,
                           lvn_stream_kind kind)
{
    const size_t bytes = (size_t)lvni_tensor_desc_numel(d) * lvn_dtype_size(d->dtype);
    lvni_tensor_storage *s = storage_new(NULL, bytes, device, kind);
    if (s == NULL) {
        return NULL;
    }
    lvn_tensor *t = header_new(d, s, s->data);
    if (t == NULL) {
        storage_release(s);
    }
    return t;
}

lvn_tensor *lvni_tensor_new_on(const lvni_tensor_desc *d, lvni_tensor_device *device)
{
    return new_for(d, device, LVN_STREAM_COMPUTE);
}

lvn_tensor *lvni_tensor_new_for_copy(const lvni_tensor_desc *d, lvni_tensor_device *device)
{
    return new_for(d, device, LVN_STREAM_COPY);
}

lvn_tensor *lvni_tensor_new(const lvni_tensor_desc *d)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    return ctx == NULL ? NULL : lvni_tensor_new_on(d, ctx->device);
}

static lvn_tensor *zeros_on(lvn_dtype dtype, int ndim, const int64_t *shape,
                            lvni_tensor_device *device)
{
    lvni_tensor_desc d;
    if (make_desc(&d, dtype, ndim, shape) != LVN_OK) {
        return NULL;
    }
    lvn_tensor *t = lvni_tensor_new_on(&d, device);
    if (t != NULL &&
        lvni_tensor_mem_zero(t->data, (size_t)lvn_numel(t) * lvn_dtype_size(dtype)) != LVN_OK) {
        lvn_release(t);
        return NULL;
    }
    return t;
}

lvn_tensor *lvn_tensor_create(lvn_dtype dtype, int ndim, const int64_t *shape)
{
    return zeros_on(dtype, ndim, shape, NULL);
}

lvn_tensor *lvni_tensor_zeros(lvn_dtype dtype, int ndim, const int64_t *shape)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    return ctx == NULL ? NULL : zeros_on(dtype, ndim, shape, ctx->device);
}

lvn_tensor *lvn_tensor_wrap(void *data, lvn_dtype dtype, int ndim, const int64_t *shape)
{
    lvni_tensor_desc d;
    if (make_desc(&d, dtype, ndim, shape) != LVN_OK) {
        return NULL;
    }
    if (data == NULL) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "lvn_tensor_wrap needs memory, got NULL");
        return NULL;
    }
    lvni_tensor_storage *s = storage_new(data, 0, NULL, LVN_STREAM_COMPUTE);
    if (s == NULL) {
        return NULL;
    }
    lvn_tensor *t = header_new(&d, s, data);
    if (t == NULL) {
        storage_release(s);
    }
    return t;
}

lvn_tensor *lvni_tensor_wrap_owned(void *data, const lvni_tensor_desc *d,
                                   void (*release)(void *owner), void *owner)
{
    lvn_tensor *t = lvn_tensor_wrap(data, d->dtype, d->ndim, d->shape);
    if (t != NULL) {
        t->storage->release = release;
        t->storage->owner = owner;
    }
    return t;
}

lvn_tensor *lvni_tensor_slice(lvn_tensor *t, int64_t offset, const lvni_tensor_desc *d)
{
    lvn_tensor *v =
        header_new(d, t->storage, (char *)t->data + (size_t)offset * lvn_dtype_size(t->dtype));
    if (v != NULL) {
        atomic_fetch_add_explicit(&t->storage->refs, 1, memory_order_relaxed);
    }
    return v;
}

lvn_tensor *lvni_tensor_view(lvn_tensor *t, int ndim, const int64_t *shape)
{
    lvni_tensor_desc d = {.dtype = t->dtype, .ndim = ndim};
    memcpy(d.shape, shape, (size_t)ndim * sizeof *shape);
    return lvni_tensor_slice(t, 0, &d);
}

lvn_tensor *lvn_retain(lvn_tensor *t)
{
    if (t != NULL) {
        atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    }
    return t;
}

void lvn_release(lvn_tensor *t)
{
    if (t == NULL || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (t->node != NULL) {
        ((lvni_tensor_node_head *)(void *)t->node)->out = NULL;
    }
    lvn_release(t->grad);
    storage_release(t->storage);
    give(t, sizeof *t);
}

lvni_tensor_desc lvni_tensor_get_desc(const lvn_tensor *t)
{
    lvni_tensor_desc d = {.dtype = t->dtype, .ndim = t->ndim};
    memcpy(d.shape, t->shape, sizeof d.shape);
    return d;
}

bool lvni_tensor_same_shape(const lvn_tensor *a, const lvn_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

bool lvni_tensor_alone(const lvn_tensor *t)
{
    return atomic_load_explicit(&t->refs, memory_order_acquire) == 1 && !t->storage->borrowed &&
           atomic_load_explicit(&t->storage->refs, memory_order_acquire) == 1;
}

const char *lvni_tensor_shape_string(int ndim, const int64_t *shape, char out[96])
{
    size_t n = (size_t)snprintf(out, 96, "(");
    for (int i = 0; i < ndim && n < 90; i++) {
        n += (size_t)snprintf(out + n, 96 - n, "%s%lld", i > 0 ? ", " : "", (long long)shape[i]);
    }
    snprintf(out + (n < 94 ? n : 94), n < 94 ? 96 - n : 2, ")");
    return out;
}

lvn_dtype lvn_tensor_dtype(const lvn_tensor *t)
{
    return t == NULL ? LVN_DTYPE_COUNT : t->dtype;
}

int lvn_ndim(const lvn_tensor *t)
{
    return t == NULL ? 0 : t->ndim;
}

int64_t lvn_size(const lvn_tensor *t, int axis)
{
    if (t == NULL) {
        return 0;
    }
    const int i = axis < 0 ? axis + t->ndim : axis;
    return i < 0 || i >= t->ndim ? 0 : t->shape[i];
}

int64_t lvn_numel(const lvn_tensor *t)
{
    int64_t n = t == NULL ? 0 : 1;
    for (int i = 0; t != NULL && i < t->ndim; i++) {
        n *= t->shape[i];
    }
    return n;
}

void *lvn_data(lvn_tensor *t)
{
    return t == NULL ? NULL : t->data;
}

const void *lvn_const_data(const lvn_tensor *t)
{
    return t == NULL ? NULL : t->data;
}

void lvni_tensor_number_set(void *p, lvn_dtype dtype, double value)
{
    switch (dtype) {
    case LVN_F32: *(float *)p = (float)value; break;
    case LVN_F64: *(double *)p = value; break;
    case LVN_I64: *(int64_t *)p = (int64_t)value; break;
    case LVN_I32: *(int32_t *)p = (int32_t)value; break;
    case LVN_U8:
    case LVN_BOOL: *(uint8_t *)p = (uint8_t)value; break;
    case LVN_BF16: *(uint16_t *)p = lvni_core_f32_to_bf16((float)value); break;
    case LVN_F16: *(uint16_t *)p = lvni_core_f32_to_f16((float)value); break;
    case LVN_DTYPE_COUNT: break;
    }
}

lvn_tensor *lvni_tensor_number(const lvni_tensor_desc *d, double value, lvni_tensor_device *device)
{
    alignas(8) unsigned char number[8];
    lvni_tensor_number_set(number, d->dtype, value);
    lvn_tensor *t = lvni_tensor_new_on(d, device);
    if (t != NULL && lvni_tensor_mem_put(t->data, number, lvn_dtype_size(d->dtype)) != LVN_OK) {
        lvn_release(t);
        return NULL;
    }
    return t;
}

double lvni_tensor_number_at(const void *p, lvn_dtype dtype)
{
    switch (dtype) {
    case LVN_F32: return (double)*(const float *)p;
    case LVN_F64: return *(const double *)p;
    case LVN_I64: return (double)*(const int64_t *)p;
    case LVN_I32: return *(const int32_t *)p;
    case LVN_U8:
    case LVN_BOOL: return *(const uint8_t *)p;
    case LVN_BF16: return (double)lvni_core_bf16_to_f32(*(const uint16_t *)p);
    case LVN_F16: return (double)lvni_core_f16_to_f32(*(const uint16_t *)p);
    case LVN_DTYPE_COUNT: break;
    }
    return (double)NAN;
}

double lvn_item(const lvn_tensor *t)
{
    alignas(8) unsigned char value[8];
    if (t == NULL || lvn_numel(t) != 1 ||
        lvni_tensor_mem_copy(value, t->data, lvn_dtype_size(t->dtype)) != LVN_OK) {
        return (double)NAN;
    }
    return lvni_tensor_number_at(value, t->dtype);
}
