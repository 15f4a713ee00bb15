/* IDX and gzip (idx.h). */
#include "data/idx.h"

#include "core/alloc.h"
#include "data/npy.h"

#include <string.h>
#include <zlib.h>

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

/* ---- gzip ---- */

bool lvni_data_idx_is_gzip(const void *bytes, size_t n)
{
    const uint8_t *b = bytes;
    return n >= 2 && b[0] == 0x1f && b[1] == 0x8b;
}

static void *zip_alloc(void *opaque, uInt count, uInt size)
{
    (void)opaque;
    return lvni_core_calloc(LVNI_TAG_DATA, count, size);
}

static void zip_free(void *opaque, void *p)
{
    (void)opaque;
    lvni_core_free(p);
}

/* zlib counts in 32 bits. */
static uInt portion(size_t n)
{
    return n < ((size_t)1 << 30) ? (uInt)n : (uInt)1 << 30;
}

/* The header of the array lies in the first FIRST bytes. Deflate packs at most RATIO bytes into
 * one. */
enum { FIRST = 1 << 16, RATIO = 1032 };

typedef struct unpacked {
    char *data;
    size_t used, room;
    size_t whole; /* what the header of the array says; 0: not read yet */
} unpacked;

/* A few packed bytes may become any number: what the array's own header says is taken, and no
 * more. */
static lvn_status read_whole(unpacked *u, const char *name, size_t packed)
{
    lvni_data_array a;
    size_t at = 0;
    LVN_TRY(lvni_data_npy_is(u->data, u->used)
                ? lvni_data_npy_parse_header(u->data, u->used, name, &a, &at)
                : parse_header(u->data, u->used, name, &a, &at));
    const size_t bytes = (size_t)a.count * lvni_data_array_type_bytes(a.type);
    if (bytes / RATIO > packed) {
        char text[192];
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: damaged gzip file: %s of %s are %zu bytes, which cannot be packed in %zu",
                 name, lvni_data_array_shape_text(&a, text), lvni_data_array_type_name(a.type),
                 bytes, packed);
    }
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

/* All members of the file, one behind the other. */
static lvn_status inflate_all(z_stream *z, const char *name, const char *bytes, size_t n,
                              unpacked *u)
{
    size_t taken = 0;
    for (;;) {
        LVN_TRY(make_room(u, name, n));
        const uInt in = portion(n - taken), out = portion(u->room - u->used);
        z->next_in = (Bytef *)(uintptr_t)(bytes + taken);
        z->avail_in = in;
        z->next_out = (Bytef *)u->data + u->used;
        z->avail_out = out;
        const int code = inflate(z, Z_NO_FLUSH);
        taken += in - z->avail_in;
        u->used += out - z->avail_out;
        if (code == Z_STREAM_END &&
            (taken == n || !lvni_data_idx_is_gzip(bytes + taken, n - taken))) {
            return LVN_OK;
        }
        if (code == Z_STREAM_END && inflateReset(z) == Z_OK) {
            continue;
        }
        if (code == Z_MEM_ERROR) {
            return LVN_ERR_MEMORY;
        }
        if ((code != Z_OK && code != Z_BUF_ERROR) || (taken == n && u->used < u->room)) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: damaged gzip file: %s", name,
                     z->msg != NULL ? z->msg : "it ends too early");
        }
    }
}

lvn_status lvni_data_idx_unpack(const char *name, char **bytes, size_t *n)
{
    z_stream z = {.zalloc = zip_alloc, .zfree = zip_free};
    if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK) {
        LVN_FAIL(LVN_ERR_MEMORY, "%s: no memory to unpack gzip", name);
    }
    unpacked u = {0};
    const lvn_status s = inflate_all(&z, name, *bytes, *n, &u);
    inflateEnd(&z);
    if (s != LVN_OK) {
        lvni_core_free(u.data);
        return s;
    }
    lvni_core_free(*bytes);
    *bytes = u.data;
    *n = u.used;
    return LVN_OK;
}
