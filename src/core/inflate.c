/* inflate.h, by zlib, which counts in 32 bits. */
#include "core/inflate.h"

#include "core/alloc.h"

#include <zlib.h>

struct lvni_core_inflater {
    z_stream z;
    lvni_core_inflate_format format;
    const char *packed;
    size_t n, taken;
};

static void *zip_alloc(void *user, uInt items, uInt size)
{
    (void)user;
    return lvni_core_calloc(LVNI_TAG_CORE, items, size);
}

static void zip_free(void *user, void *p)
{
    (void)user;
    lvni_core_free(p);
}

static uInt portion(size_t n)
{
    return n < (size_t)1 << 30 ? (uInt)n : (uInt)1 << 30;
}

bool lvni_core_inflate_is_gzip(const void *bytes, size_t n)
{
    const uint8_t *b = bytes;
    return n >= 2 && b[0] == 0x1f && b[1] == 0x8b;
}

lvn_status lvni_core_inflate_open(lvni_core_inflate_format format, const void *packed, size_t n,
                                  lvni_core_inflater **out)
{
    lvni_core_inflater *f = LVNI_NEW(LVNI_TAG_CORE, lvni_core_inflater);
    *out = NULL;
    if (f == NULL) {
        return LVN_ERR_MEMORY;
    }
    f->z = (z_stream){.zalloc = zip_alloc, .zfree = zip_free};
    f->format = format;
    f->packed = packed;
    f->n = n;
    if (inflateInit2(&f->z, format == LVNI_INFLATE_RAW ? -MAX_WBITS : 16 + MAX_WBITS) != Z_OK) {
        lvni_core_free(f);
        LVN_FAIL(LVN_ERR_MEMORY, "no memory to unpack");
    }
    *out = f;
    return LVN_OK;
}

void lvni_core_inflate_close(lvni_core_inflater *f)
{
    if (f != NULL) {
        inflateEnd(&f->z);
        lvni_core_free(f);
    }
}

/* Behind the end of a member: another begins. */
static bool goes_on(lvni_core_inflater *f)
{
    return f->format == LVNI_INFLATE_GZIP &&
           lvni_core_inflate_is_gzip(f->packed + f->taken, f->n - f->taken) &&
           inflateReset(&f->z) == Z_OK;
}

/* One call of zlib. */
static int step(lvni_core_inflater *f, char *to, size_t room, size_t *got)
{
    const uInt in = portion(f->n - f->taken), out = portion(room - *got);
    f->z.next_in = (Bytef *)(uintptr_t)(f->packed + f->taken);
    f->z.avail_in = in;
    f->z.next_out = (Bytef *)to + *got;
    f->z.avail_out = out;
    const int code = inflate(&f->z, Z_NO_FLUSH);
    f->taken += in - f->z.avail_in;
    *got += out - f->z.avail_out;
    return code;
}

/* The end of a stream may be seen only once its last byte is out: there is a call without room. */
lvn_status lvni_core_inflate_next(lvni_core_inflater *f, void *to, size_t room, size_t *got,
                                  bool *ended)
{
    int code = Z_OK;
    *got = 0;
    *ended = false;
    while (code == Z_OK) {
        code = step(f, to, room, got);
        if (code == Z_STREAM_END && !goes_on(f)) {
            *ended = true;
            return LVN_OK;
        }
        code = code == Z_STREAM_END ? Z_OK : code;
    }
    if (code == Z_BUF_ERROR && *got == room) {
        return LVN_OK;
    }
    if (code == Z_MEM_ERROR) {
        LVN_FAIL(LVN_ERR_MEMORY, "no memory to unpack");
    }
    LVN_FAIL(LVN_ERR_CORRUPT, "%s",
             code != Z_BUF_ERROR && f->z.msg != NULL ? f->z.msg : "it ends too early");
}
