/* Elements of array files (array.h). */
#include "data/array.h"

#include "core/alloc.h"
#include "core/math.h"
#include "core/vfs.h"
#include "data/idx.h"
#include "data/npy.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [LVNI_ARRAY_BOOL] = {"bool", 1},   [LVNI_ARRAY_U8] = {"uint8", 1},
    [LVNI_ARRAY_I8] = {"int8", 1},     [LVNI_ARRAY_U16] = {"uint16", 2},
    [LVNI_ARRAY_I16] = {"int16", 2},   [LVNI_ARRAY_U32] = {"uint32", 4},
    [LVNI_ARRAY_I32] = {"int32", 4},   [LVNI_ARRAY_U64] = {"uint64", 8},
    [LVNI_ARRAY_I64] = {"int64", 8},   [LVNI_ARRAY_F16] = {"float16", 2},
    [LVNI_ARRAY_F32] = {"float32", 4}, [LVNI_ARRAY_F64] = {"float64", 8},
};

const char *lvni_data_array_type_name(lvni_data_array_type type)
{
    return types[type].name;
}

size_t lvni_data_array_type_bytes(lvni_data_array_type type)
{
    return types[type].bytes;
}

lvn_status lvni_data_array_set_shape(lvni_data_array *a, const char *name, int ndim,
                                     const int64_t *shape)
{
    a->ndim = ndim;
    a->count = 1;
    bool empty = false;
    int64_t bytes = 8; /* of the largest element */
    for (int i = 0; i < ndim; i++) {
        empty = empty || shape[i] == 0;
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, shape[i] == 0 ? 1 : shape[i], &bytes)) {
            LVN_FAIL(LVN_ERR_CORRUPT,
                     "%s: axis %d of length %lld makes the array larger than can be", name, i,
                     (long long)shape[i]);
        }
        a->shape[i] = shape[i];
    }
    a->count = empty ? 0 : bytes / 8;
    return LVN_OK;
}

/* ---- one element ---- */

/* Its bits as a number, whatever the byte order. */
static uint64_t load_bits(const lvni_data_array *a, const uint8_t *p, size_t bytes)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < bytes; i++) {
        bits |= (uint64_t)p[a->big_endian ? bytes - 1 - i : i] << (8 * i);
    }
    return bits;
}

static float element_f32(const lvni_data_array *a, const uint8_t *p)
{
    const uint64_t bits = load_bits(a, p, types[a->type].bytes);
    const uint32_t low = (uint32_t)bits;
    float f;
    double d;
    switch (a->type) {
    case LVNI_ARRAY_BOOL: return bits != 0 ? 1.0F : 0.0F;
    case LVNI_ARRAY_I8: return (float)(int8_t)bits;
    case LVNI_ARRAY_I16: return (float)(int16_t)bits;
    case LVNI_ARRAY_I32: return (float)(int32_t)bits;
    case LVNI_ARRAY_I64: return (float)(int64_t)bits;
    case LVNI_ARRAY_F16: return lvni_core_f16_to_f32((uint16_t)low);
    case LVNI_ARRAY_F32: memcpy(&f, &low, sizeof f); return f;
    case LVNI_ARRAY_F64: memcpy(&d, &bits, sizeof d); return (float)d;
    default: return (float)bits; /* the unsigned ones */
    }
}

static lvn_status element_i64(const lvni_data_array *a, const uint8_t *p, int64_t *out)
{
    const uint64_t bits = load_bits(a, p, types[a->type].bytes);
    switch (a->type) {
    case LVNI_ARRAY_BOOL: *out = bits != 0; return LVN_OK;
    case LVNI_ARRAY_I8: *out = (int64_t)(bits & 127) - (int64_t)(bits & 128); return LVN_OK;
    case LVNI_ARRAY_I16: *out = (int16_t)bits; return LVN_OK;
    case LVNI_ARRAY_I32: *out = (int32_t)bits; return LVN_OK;
    default: break;
    }
    if (a->type == LVNI_ARRAY_U64 && bits > (uint64_t)INT64_MAX) {
        LVN_FAIL(LVN_ERR_CORRUPT, "the value %llu is larger than a 64-bit integer with sign holds",
                 (unsigned long long)bits);
    }
    *out = (int64_t)bits;
    return LVN_OK;
}

/* ---- runs of elements ---- */

/* Where row-major element e lies, in elements. */
static int64_t place_of(const lvni_data_array *a, int64_t e)
{
    if (!a->fortran) {
        return e;
    }
    /* of the axis behind the one at hand, from the last one on */
    int64_t place = 0, stride = a->count;
    for (int i = a->ndim - 1; i >= 0; i--) {
        stride /= a->shape[i];
        place += e % a->shape[i] * stride;
        e /= a->shape[i];
    }
    return place;
}

static lvn_status check_run(const lvni_data_array *a, int64_t first, int64_t count)
{
    LVN_ARG(first >= 0 && count >= 0 && first <= a->count - count,
            "elements %lld to %lld of an array of %lld were asked for", (long long)first,
            (long long)first + (long long)count, (long long)a->count);
    return LVN_OK;
}

lvn_status lvni_data_array_read_f32(const lvni_data_array *a, int64_t first, int64_t count,
                                    float *out)
{
    LVN_TRY(check_run(a, first, count));
    const size_t bytes = types[a->type].bytes;
    if (a->type == LVNI_ARRAY_F32 && !a->big_endian && !a->fortran) {
        memcpy(out, a->data + (size_t)first * bytes, (size_t)count * bytes);
        return LVN_OK;
    }
    for (int64_t i = 0; i < count; i++) {
        out[i] = element_f32(a, a->data + (size_t)place_of(a, first + i) * bytes);
    }
    return LVN_OK;
}

lvn_status lvni_data_array_read_i64(const lvni_data_array *a, int64_t first, int64_t count,
                                    int64_t *out)
{
    LVN_TRY(check_run(a, first, count));
    if (a->type >= LVNI_ARRAY_F16) {
        LVN_FAIL(LVN_ERR_DTYPE, "an array of %s holds no whole numbers", types[a->type].name);
    }
    for (int64_t i = 0; i < count; i++) {
        LVN_TRY(element_i64(a, a->data + (size_t)place_of(a, first + i) * types[a->type].bytes,
                            &out[i]));
    }
    return LVN_OK;
}

const char *lvni_data_array_shape_text(const lvni_data_array *a, char text[192])
{
    size_t n = (size_t)snprintf(text, 192, "(");
    for (int i = 0; i < a->ndim; i++) {
        n += (size_t)snprintf(text + n, 192 - n, "%s%lld", i > 0 ? ", " : "",
                              (long long)a->shape[i]);
    }
    snprintf(text + n, 192 - n, ")");
    return text;
}

/* ---- files ---- */

lvn_status lvni_data_array_open(const char *path, lvni_data_array *out)
{
    *out = (lvni_data_array){0};
    char *bytes;
    size_t n;
    LVN_TRY(lvni_core_file_read(path, (size_t)1 << 40, &bytes, &n));
    lvn_status s =
        lvni_data_idx_is_gzip(bytes, n) ? lvni_data_idx_unpack(path, &bytes, &n) : LVN_OK;
    if (s == LVN_OK) {
        s = lvni_data_npy_is(bytes, n) ? lvni_data_npy_parse(bytes, n, path, out)
                                       : lvni_data_idx_parse(bytes, n, path, out);
    }
    if (s != LVN_OK) {
        lvni_core_free(bytes);
        *out = (lvni_data_array){0};
        return s;
    }
    out->owned = bytes;
    return LVN_OK;
}

void lvni_data_array_free(lvni_data_array *a)
{
    lvni_core_free(a->owned);
    *a = (lvni_data_array){0};
}
