/* Array files: elements of any type, IDX, gzip, and which format a file has (array.h). NumPy's own
 * format is in npy.c. */
#include "data/array.h"

#include "core/alloc.h"
#include "core/inflate.h"
#include "core/math.h"
#include "core/str.h"
#include "core/vfs.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [LVNI_ARRAY_BOOL] = {"bool", 1},     [LVNI_ARRAY_U8] = {"uint8", 1},
    [LVNI_ARRAY_I8] = {"int8", 1},       [LVNI_ARRAY_U16] = {"uint16", 2},
    [LVNI_ARRAY_I16] = {"int16", 2},     [LVNI_ARRAY_U32] = {"uint32", 4},
    [LVNI_ARRAY_I32] = {"int32", 4},     [LVNI_ARRAY_U64] = {"uint64", 8},
    [LVNI_ARRAY_I64] = {"int64", 8},     [LVNI_ARRAY_F16] = {"float16", 2},
    [LVNI_ARRAY_F32] = {"float32", 4},   [LVNI_ARRAY_F64] = {"float64", 8},
    [LVNI_ARRAY_C64] = {"complex64", 8}, [LVNI_ARRAY_C128] = {"complex128", 16},
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
    int64_t bytes = 16; /* of the largest element */
    for (int i = 0; i < ndim; i++) {
        empty = empty || shape[i] == 0;
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, shape[i] == 0 ? 1 : shape[i], &bytes)) {
            LVN_FAIL(LVN_ERR_CORRUPT,
                     "%s: axis %d of length %lld makes the array larger than can be", name, i,
                     (long long)shape[i]);
        }
        a->shape[i] = shape[i];
    }
    a->count = empty ? 0 : bytes / 16;
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

/* Real and imaginary part. */
static void element_complex(const lvni_data_array *a, const uint8_t *p, double out[2])
{
    const size_t half = types[a->type].bytes / 2;
    lvni_data_array part = *a;
    part.type = a->type == LVNI_ARRAY_C64    ? LVNI_ARRAY_F32
                : a->type == LVNI_ARRAY_C128 ? LVNI_ARRAY_F64
                                             : a->type;
    for (int i = 0; i < (part.type != a->type ? 2 : 1); i++) {
        const uint64_t bits = load_bits(&part, p + (size_t)i * half, types[part.type].bytes);
        switch (part.type) {
        case LVNI_ARRAY_F64: memcpy(&out[i], &bits, sizeof out[i]); break;
        case LVNI_ARRAY_I64: out[i] = (double)(int64_t)bits; break;
        case LVNI_ARRAY_I32: out[i] = (double)(int32_t)bits; break;
        case LVNI_ARRAY_U32:
        case LVNI_ARRAY_U64: out[i] = (double)bits; break;
        default: out[i] = (double)element_f32(&part, p + (size_t)i * half);
        }
    }
    if (part.type == a->type) {
        out[1] = 0.0;
    }
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
    if (a->type >= LVNI_ARRAY_C64) {
        LVN_FAIL(LVN_ERR_DTYPE, "an array of %s holds no real numbers", types[a->type].name);
    }
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

lvn_status lvni_data_array_read_complex(const lvni_data_array *a, int64_t first, int64_t count,
                                        double *out)
{
    LVN_TRY(check_run(a, first, count));
    for (int64_t i = 0; i < count; i++) {
        element_complex(a, a->data + (size_t)place_of(a, first + i) * types[a->type].bytes,
                        out + 2 * i);
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

/* ---- IDX ---- */

static bool type_of(uint8_t code, lvni_data_array_type *out)
{
    switch (code) {
    case 0x08: *out = LVNI_ARRAY_U8; return true;
    case 0x09: *out = LVNI_ARRAY_I8; return true;
    case 0x0B: *out = LVNI_ARRAY_I16; return true;
    case 0x0C: *out = LVNI_ARRAY_I32; return true;
    case 0x0D: *out = LVNI_ARRAY_F32; return true;
    case 0x0E: *out = LVNI_ARRAY_F64; return true;
    default: return false;
    }
}

/* Type and shape; *data_at is where the elements begin. */
static lvn_status parse_header(const void *bytes, size_t n, const char *name, lvni_data_array *out,
                               size_t *data_at)
{
    const uint8_t *b = bytes;
    *out = (lvni_data_array){.big_endian = true};
    if (n < 4 || b[0] != 0 || b[1] != 0 || !type_of(b[2], &out->type) ||
        b[3] > LVNI_ARRAY_MAX_NDIM) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: neither an IDX file (as those of MNIST) nor a .npy file (%zu bytes)", name,
                 n);
    }
    const size_t at = 4 + 4 * (size_t)b[3];
    int64_t shape[LVNI_ARRAY_MAX_NDIM] = {0};
    if (n < at) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: damaged IDX file: %d axes need a header of %zu bytes, the file has %zu", name,
                 b[3], at, n);
    }
    for (int i = 0; i < b[3]; i++) {
        const uint8_t *p = b + 4 + (ptrdiff_t)4 * i;
        shape[i] = (int64_t)p[0] << 24 | (int64_t)p[1] << 16 | (int64_t)p[2] << 8 | p[3];
    }
    *data_at = at;
    return lvni_data_array_set_shape(out, name, b[3], shape);
}

lvn_status lvni_data_idx_parse(const void *bytes, size_t n, const char *name, lvni_data_array *out)
{
    size_t at;
    LVN_TRY(parse_header(bytes, n, name, out, &at));
    const size_t need = (size_t)out->count * lvni_data_array_type_bytes(out->type);
    if (need != n - at) {
        char text[192];
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: damaged IDX file: %s of %s needs %zu bytes, %zu are there",
                 name, lvni_data_array_shape_text(out, text), lvni_data_array_type_name(out->type),
                 need, n - at);
    }
    out->data = (const uint8_t *)bytes + at;
    return LVN_OK;
}

/* ---- packed arrays ---- */

/* An array of zeros is packed a thousand to one, and a small file would take the memory of a whole
 * run: more than MOST_UNPACKED is taken from files that have a part of it. Photos are packed at
 * most 3 to one, drawings 50. */
enum { MOST_RATIO = 100 };
static const uint64_t MOST_UNPACKED = (uint64_t)256 << 20;

lvn_status lvni_data_array_check_packed(const lvni_data_array *a, const char *name, uint64_t packed,
                                        const char *instead)
{
    const uint64_t need = (uint64_t)a->count * types[a->type].bytes;
    if (need > MOST_UNPACKED && need / MOST_RATIO > packed) {
        char text[192], unpacked_text[LVNI_BYTES_TEXT], packed_text[LVNI_BYTES_TEXT];
        lvni_core_bytes_text(need, unpacked_text);
        lvni_core_bytes_text(packed, packed_text);
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: %s of %s take %s, packed in %s: above %d to one only files that were made to "
                 "fill the memory are; where it is right, %s",
                 name, lvni_data_array_shape_text(a, text), types[a->type].name, unpacked_text,
                 packed_text, (int)MOST_RATIO, instead);
    }
    return LVN_OK;
}

/* ---- gzip ---- */

enum { FIRST = 1 << 16 }; /* bytes, in which the header of the array lies */

typedef struct unpacked {
    char *data;
    size_t used, room;
    size_t whole; /* file size by the header of the array; 0: not read yet */
} unpacked;

/* A few packed bytes may become any number: no more is unpacked than the array's own header
 * states. */
static lvn_status read_whole(unpacked *u, const char *name, size_t packed)
{
    lvni_data_array a;
    size_t at = 0;
    LVN_TRY(lvni_data_npy_is(u->data, u->used)
                ? lvni_data_npy_parse_header(u->data, u->used, name, &a, &at)
                : parse_header(u->data, u->used, name, &a, &at));
    const size_t bytes = (size_t)a.count * lvni_data_array_type_bytes(a.type);
    if (bytes / LVNI_INFLATE_RATIO > packed) {
        char text[192];
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: damaged gzip file: %s of %s are %zu bytes, which cannot be packed in %zu",
                 name, lvni_data_array_shape_text(&a, text), lvni_data_array_type_name(a.type),
                 bytes, packed);
    }
    LVN_TRY(lvni_data_array_check_packed(&a, name, packed, "unpack it with gunzip"));
    u->whole = at + bytes;
    return LVN_OK;
}

static lvn_status make_room(unpacked *u, const char *name, size_t packed)
{
    if (u->used < u->room) {
        return LVN_OK;
    }
    LVN_TRY(u->room > 0 && u->whole == 0 ? read_whole(u, name, packed) : LVN_OK);
    if (u->room > 0 && u->used > u->whole) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: damaged gzip file: more than the %zu bytes of its array",
                 name, u->whole);
    }
    const size_t twice = u->room < u->whole / 2 ? u->room * 2 : u->whole + 1;
    const size_t room = u->room == 0 ? FIRST : twice;
    char *data = lvni_core_realloc(LVNI_TAG_DATA, u->data, room);
    if (data == NULL) {
        return LVN_ERR_MEMORY;
    }
    u->data = data;
    u->room = room;
    return LVN_OK;
}

static lvn_status inflate_all(lvni_core_inflater *f, const char *name, size_t packed, unpacked *u)
{
    for (bool ended = false; !ended;) {
        size_t got;
        LVN_TRY(make_room(u, name, packed));
        const lvn_status s =
            lvni_core_inflate_next(f, u->data + u->used, u->room - u->used, &got, &ended);
        if (s == LVN_ERR_CORRUPT) {
            const lvn_error why = *lvn_last_error();
            LVN_FAIL(s, "%s: damaged gzip file: %s", name, why.message);
        }
        LVN_TRY(s);
        u->used += got;
    }
    return LVN_OK;
}

lvn_status lvni_data_idx_unpack(const char *name, char **bytes, size_t *n)
{
    lvni_core_inflater *f;
    unpacked u = {0};
    LVN_TRY(lvni_core_inflate_open(LVNI_INFLATE_GZIP, *bytes, *n, &f));
    const lvn_status s = inflate_all(f, name, *n, &u);
    lvni_core_inflate_close(f);
    if (s != LVN_OK) {
        lvni_core_free(u.data);
        return s;
    }
    lvni_core_free(*bytes);
    *bytes = u.data;
    *n = u.used;
    return LVN_OK;
}

/* ---- files ---- */

lvn_status lvni_data_array_open(const char *path, lvni_data_array *out)
{
    *out = (lvni_data_array){0};
    char *bytes;
    size_t n;
    LVN_TRY(lvni_core_regular_read(path, (size_t)1 << 40, &bytes, &n));
    lvn_status s =
        lvni_core_inflate_is_gzip(bytes, n) ? lvni_data_idx_unpack(path, &bytes, &n) : LVN_OK;
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
