/* Writing zip archives of stored entries (zip.h). Offsets and sizes have 32 bits: larger ones would
 * need records of another kind. */
#include "core/zip.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "core/vfs.h"

#include <string.h>
#include <zlib.h>

enum { ALIGN = 64, LOCAL_BYTES = 30, OF_EACH = 256 /* headers and padding, and more */ };

typedef struct writer {
    lvni_core_atomic_file *file;
    lvni_core_str text; /* a header, in the end the directory */
    uint32_t *crc, *at; /* of each entry; at: of its header */
    uint64_t bytes;     /* so far */
} writer;

/* The lowest byte first. */
static void put_number(lvni_core_str *s, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        lvni_core_str_char(s, (char)(unsigned char)value);
        value >>= 8;
    }
}

static uint64_t bytes_of(const lvni_core_zip_content *e)
{
    return (uint64_t)e->head_bytes + e->bytes;
}

static uint32_t crc_of(const lvni_core_zip_content *e)
{
    uLong crc = crc32(0, (const Bytef *)e->head, (uInt)e->head_bytes);
    for (size_t at = 0; at < e->bytes;) {
        const size_t n = e->bytes - at < (size_t)1 << 30 ? e->bytes - at : (size_t)1 << 30;
        crc = crc32(crc, (const Bytef *)e->data + at, (uInt)n);
        at += n;
    }
    return (uint32_t)crc;
}

static lvn_status check_size(const char *path, const lvni_core_zip_content *contents, int64_t n,
                             const char *instead)
{
    uint64_t all = OF_EACH;
    for (int64_t i = 0; i < n; i++) {
        all += bytes_of(&contents[i]) + 2 * strlen(contents[i].name) + OF_EACH;
    }
    if (all > UINT32_MAX || n >= UINT16_MAX) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "cannot write %s: an archive of %lld files with about %llu bytes; up to 4 GiB and "
                 "65,000 files can be written in this format: %s",
                 path, (long long)n, (unsigned long long)all, instead);
    }
    return LVN_OK;
}

static lvn_status write_bytes(writer *w, const void *data, size_t n)
{
    w->bytes += n;
    return n == 0 ? LVN_OK : lvni_core_atomic_write(w->file, data, n);
}

/* Flags, method, time and date (1980-01-01, so that equal contents are equal archives), CRC, sizes,
 * length of the name: as both headers have them. */
static void put_common(lvni_core_str *s, const lvni_core_zip_content *e, uint32_t crc)
{
    put_number(s, 0x800, 2); /* names are UTF-8 */
    put_number(s, 0, 4);
    put_number(s, 33, 2);
    put_number(s, crc, 4);
    put_number(s, bytes_of(e), 4);
    put_number(s, bytes_of(e), 4);
    put_number(s, strlen(e->name), 2);
}

/* The content begins at a multiple of ALIGN, by an extra field that readers pass over. */
static lvn_status write_entry(writer *w, const lvni_core_zip_content *e, int64_t i)
{
    lvni_core_str *s = &w->text;
    const size_t before = (size_t)w->bytes + LOCAL_BYTES + strlen(e->name) + 4;
    const size_t padding = (ALIGN - before % ALIGN) % ALIGN;
    w->at[i] = (uint32_t)w->bytes;
    w->crc[i] = crc_of(e);
    lvni_core_str_clear(s);
    lvni_core_str_append(s, "PK\3\4");
    put_number(s, 20, 2);
    put_common(s, e, w->crc[i]);
    put_number(s, 4 + padding, 2);
    lvni_core_str_append(s, e->name);
    lvni_core_str_append(s, "FB");
    put_number(s, padding, 2);
    for (size_t k = 0; k < padding; k++) {
        lvni_core_str_char(s, 'Z');
    }
    LVN_TRY(lvni_core_str_status(s));
    LVN_TRY(write_bytes(w, s->data, s->len));
    LVN_TRY(write_bytes(w, e->head, e->head_bytes));
    return write_bytes(w, e->data, e->bytes);
}

static lvn_status write_directory(writer *w, const lvni_core_zip_content *contents, int64_t n)
{
    lvni_core_str *s = &w->text;
    lvni_core_str_clear(s);
    for (int64_t i = 0; i < n; i++) {
        lvni_core_str_append(s, "PK\1\2");
        put_number(s, 20, 2);
        put_number(s, 20, 2);
        put_common(s, &contents[i], w->crc[i]);
        put_number(s, 0, 12); /* neither extra field nor comment nor attributes */
        put_number(s, w->at[i], 4);
        lvni_core_str_append(s, contents[i].name);
    }
    const uint64_t bytes = s->len;
    lvni_core_str_append(s, "PK\5\6");
    put_number(s, 0, 4);
    put_number(s, (uint64_t)n, 2);
    put_number(s, (uint64_t)n, 2);
    put_number(s, bytes, 4);
    put_number(s, w->bytes, 4);
    put_number(s, 0, 2);
    LVN_TRY(lvni_core_str_status(s));
    return write_bytes(w, s->data, s->len);
}

static lvn_status write_all(writer *w, const lvni_core_zip_content *contents, int64_t n)
{
    w->crc = lvni_core_calloc(LVNI_TAG_CORE, (size_t)n + 1, sizeof *w->crc);
    w->at = lvni_core_calloc(LVNI_TAG_CORE, (size_t)n + 1, sizeof *w->at);
    if (w->crc == NULL || w->at == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        LVN_TRY(write_entry(w, &contents[i], i));
    }
    return write_directory(w, contents, n);
}

lvn_status lvni_core_zip_write(const char *path, const lvni_core_zip_content *contents, int64_t n,
                               const char *instead)
{
    writer w = {0};
    LVN_TRY(check_size(path, contents, n, instead));
    LVN_TRY(lvni_core_atomic_open(path, &w.file));
    const lvn_status s = write_all(&w, contents, n);
    lvni_core_str_free(&w.text);
    lvni_core_free(w.crc);
    lvni_core_free(w.at);
    if (s != LVN_OK) {
        lvni_core_atomic_abort(w.file);
        return s;
    }
    return lvni_core_atomic_commit(w.file);
}
