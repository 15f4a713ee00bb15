/* Tensors of other libraries, and levin's for them (levin/dlpack.h). Both versions of the format
 * hold the same description of the tensor. */
#include "core/alloc.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

#include <levin/dlpack.h>
#include <string.h>

/* The layout that others were compiled with. */
_Static_assert(sizeof(lvn_dlpack_tensor) == 48 && sizeof(lvn_dlpack) == 80 &&
                   sizeof(lvn_dlpack_old) == 64 && offsetof(lvn_dlpack_tensor, code) == 20 &&
                   offsetof(lvn_dlpack_tensor, shape) == 24 && offsetof(lvn_dlpack, tensor) == 32,
               "the structs have DLPack's layout");

enum { HOST = 1, PINNED_HOST = 3, SIGNED = 0, UNSIGNED = 1, FLOAT = 2, BFLOAT = 4, BOOLEAN = 6 };

static const struct {
    uint8_t code, bits;
} types[LVN_DTYPE_COUNT] = {
    [LVN_F32] = {FLOAT, 32},   [LVN_F64] = {FLOAT, 64},  [LVN_I64] = {SIGNED, 64},
    [LVN_I32] = {SIGNED, 32},  [LVN_U8] = {UNSIGNED, 8}, [LVN_BOOL] = {BOOLEAN, 8},
    [LVN_BF16] = {BFLOAT, 16}, [LVN_F16] = {FLOAT, 16},
};

/* ---- from others ---- */

static lvn_status read_type(const lvn_dlpack_tensor *from, lvn_dtype *out)
{
    for (int i = 0; i < LVN_DTYPE_COUNT; i++) {
        if (types[i].code == from->code && types[i].bits == from->bits && from->lanes == 1) {
            *out = (lvn_dtype)i;
            return LVN_OK;
        }
    }
    LVN_FAIL(LVN_ERR_DTYPE,
             "lvn_from_dlpack: elements of type code %d with %d bits and %d lanes: levin has f32, "
             "f64, i64, i32, u8, bool, bf16 and f16",
             from->code, from->bits, from->lanes);
}

static lvn_status read_description(const lvn_dlpack_tensor *from, lvni_tensor_desc *d)
{
    if (from->device_type != HOST && from->device_type != PINNED_HOST) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "lvn_from_dlpack: the tensor lies on a device (of DLPack's type %d), whose memory "
                 "levin cannot read: move it to the host first",
                 (int)from->device_type);
    }
    LVN_ARG(from->ndim >= 0 && from->ndim <= LVN_MAX_NDIM,
            "lvn_from_dlpack: a tensor has 0 to %d axes, not %d", LVN_MAX_NDIM, (int)from->ndim);
    LVN_ARG(from->ndim == 0 || from->shape != NULL, "lvn_from_dlpack: the shape is NULL");
    int64_t n = 1;
    d->ndim = from->ndim;
    for (int i = 0; i < d->ndim; i++) {
        d->shape[i] = from->shape[i];
        LVN_ARG(d->shape[i] >= 0 && !__builtin_mul_overflow(n, d->shape[i], &n),
                "lvn_from_dlpack: axis %d has the size %lld, which is negative or makes the tensor "
                "larger than memory",
                i, (long long)d->shape[i]);
    }
    return read_type(from, &d->dtype);
}

static bool is_row_major(const lvn_dlpack_tensor *from)
{
    int64_t step = 1;
    for (int i = from->ndim - 1; from->strides != NULL && i >= 0; i--) {
        if (from->shape[i] != 1 && from->strides[i] != step) {
            return false;
        }
        step *= from->shape[i];
    }
    return true;
}

/* Row-major, whatever the strides are; at least one element. */
static void copy_elements(const lvn_dlpack_tensor *from, const char *data, size_t size, int64_t n,
                          char *to)
{
    int64_t at[LVN_MAX_NDIM] = {0};
    const bool dense = is_row_major(from);
    for (int64_t k = 0; k < n; k++) {
        int64_t place = dense ? k : 0;
        for (int i = 0; !dense && i < from->ndim; i++) {
            place += at[i] * from->strides[i];
        }
        memcpy(to + (size_t)k * size, data + place * (int64_t)size, size);
        for (int i = from->ndim - 1; i >= 0 && ++at[i] == from->shape[i]; i--) {
            at[i] = 0;
        }
    }
}

typedef void (*release_fn)(void *owner);

/* release: called when nothing needs the memory of `from` any more */
static lvn_tensor *take(const lvn_dlpack_tensor *from, bool read_only, release_fn release,
                        void *owner)
{
    lvni_tensor_desc d = {0};
    if (read_description(from, &d) != LVN_OK) {
        return NULL;
    }
    const size_t size = lvn_dtype_size(d.dtype);
    const int64_t n = lvni_tensor_desc_numel(&d);
    char *data = from->data == NULL ? NULL : (char *)from->data + from->byte_offset;
    if (n != 0 && data == NULL) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "lvn_from_dlpack: the data of %lld elements is NULL", (long long)n);
        return NULL;
    }
    if (n > 0 && !read_only && is_row_major(from) && (uintptr_t)data % size == 0) {
        return lvni_tensor_wrap_owned(data, &d, release, owner);
    }
    lvn_tensor *t = lvn_tensor_create(d.dtype, d.ndim, d.shape); /* checks the shape, too */
    if (t != NULL) {
        copy_elements(from, data, size, n, t->data);
        release(owner);
    }
    return t;
}

static void release_theirs(void *owner)
{
    lvn_dlpack *from = owner;
    if (from->deleter != NULL) {
        from->deleter(from);
    }
}

static void release_theirs_old(void *owner)
{
    lvn_dlpack_old *from = owner;
    if (from->deleter != NULL) {
        from->deleter(from);
    }
}

static bool is_null(const void *from)
{
    if (from == NULL) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__, "lvn_from_dlpack: the tensor is NULL");
    }
    return from == NULL;
}

lvn_tensor *lvn_from_dlpack(lvn_dlpack *from)
{
    if (is_null(from)) {
        return NULL;
    }
    if (from->major != LVN_DLPACK_MAJOR) {
        lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__,
                      "lvn_from_dlpack: the tensor is of DLPack's version %u.%u, and levin reads "
                      "%d: ask for max_version (%d, %d)",
                      from->major, from->minor, LVN_DLPACK_MAJOR, LVN_DLPACK_MAJOR,
                      LVN_DLPACK_MINOR);
        return NULL;
    }
    return take(&from->tensor, (from->flags & LVN_DLPACK_READ_ONLY) != 0, release_theirs, from);
}

lvn_tensor *lvn_from_dlpack_old(lvn_dlpack_old *from)
{
    return is_null(from) ? NULL : take(&from->tensor, false, release_theirs_old, from);
}

/* ---- for others ---- */

/* A tensor that others hold: what they get, and what it points to. */
typedef struct given {
    union {
        lvn_dlpack now;
        lvn_dlpack_old old;
    } managed;
    lvn_tensor *tensor;
    int64_t shape[LVN_MAX_NDIM], strides[LVN_MAX_NDIM];
} given;

static void release_ours(given *g)
{
    lvn_release(g->tensor);
    lvni_core_free(g);
}

static void delete_now(lvn_dlpack *self)
{
    release_ours(self->context);
}

static void delete_old(lvn_dlpack_old *self)
{
    release_ours(self->context);
}

static given *give(lvn_tensor *t, lvn_dlpack_tensor *out)
{
    if (t != NULL && lvni_tensor_device_of(t->data) != NULL) {
        lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__,
                      "lvn_to_dlpack: the tensor lies on %s, whose memory others cannot read: "
                      "lvn_to_device(t, LVN_CPU) copies it",
                      lvni_tensor_device_name(lvni_tensor_device_of(t->data)));
        return NULL;
    }
    given *g = t == NULL ? NULL : LVNI_NEW(LVNI_TAG_TENSOR, given);
    if (g == NULL) {
        return NULL;
    }
    g->tensor = lvn_retain(t);
    int64_t step = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        g->shape[i] = t->shape[i];
        g->strides[i] = step;
        step *= t->shape[i];
    }
    *out = (lvn_dlpack_tensor){.data = t->data,
                               .device_type = HOST,
                               .ndim = t->ndim,
                               .code = types[t->dtype].code,
                               .bits = types[t->dtype].bits,
                               .lanes = 1,
                               .shape = g->shape,
                               .strides = g->strides};
    return g;
}

lvn_dlpack *lvn_to_dlpack(lvn_tensor *t, uint64_t flags)
{
    lvn_dlpack_tensor tensor;
    given *g = give(t, &tensor);
    if (g == NULL) {
        return NULL;
    }
    g->managed.now = (lvn_dlpack){.major = LVN_DLPACK_MAJOR,
                                  .minor = LVN_DLPACK_MINOR,
                                  .context = g,
                                  .deleter = delete_now,
                                  .flags = flags & LVN_DLPACK_READ_ONLY,
                                  .tensor = tensor};
    return &g->managed.now;
}

lvn_dlpack_old *lvn_to_dlpack_old(lvn_tensor *t)
{
    lvn_dlpack_tensor tensor;
    given *g = give(t, &tensor);
    if (g == NULL) {
        return NULL;
    }
    g->managed.old = (lvn_dlpack_old){.tensor = tensor, .context = g, .deleter = delete_old};
    return &g->managed.old;
}
