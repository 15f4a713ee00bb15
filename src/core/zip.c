/* Reads zip archives (zip.h). No number of a file is trusted. The format: PKWARE's APPNOTE 6.3;
 * sizes are those of the central directory, since torch.save leaves them out of the local
 * headers. */
#include "core/error.h"
#include "core/zip.h"

#include "core/alloc.h"
#include "core/inflate.h"
#include "core/vfs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum {
    END_BYTES = 22,     /* the record at the end of the file, without its comment */
    LOCATOR_BYTES = 20, /* where the end record of 64 bits is */
    END64_BYTES = 56,
    CENTRAL_BYTES = 46, /* an entry of the directory, without name, extra fields and comment */
    LOCAL_BYTES = 30,
    MAX_COMMENT = 65535,
    ENCRYPTED = 1,
    STORED = 0,
    DEFLATED = 8
};

static uint64_t number(const char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        value = value << 8 | (unsigned char)at[i];
    }
    return value;
}

static lvn_status read_at(const lvni_core_zip *zip, uint64_t offset, void *to, size_t bytes)
{
    size_t done = 0;
    if (lseek(zip->fd, (off_t)offset, SEEK_SET) < 0) {
        LVN_FAIL(LVN_ERR_IO, "%s: cannot read: %s", zip->path, strerror(errno));
    }
    while (done < bytes) {
        const ssize_t n = lvni_core_vfs_get()->read(zip->fd, (char *)to + done, bytes - done);
        if (n < 0 && errno != EINTR) {
            LVN_FAIL(LVN_ERR_IO, "%s: cannot read: %s", zip->path, strerror(errno));
        }
        if (n == 0) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: the file became shorter while it was read", zip->path);
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return LVN_OK;
}

/* ---- the directory ---- */

typedef struct directory {
    uint64_t offset, bytes, entries;
} directory;

/* Large archives: the record of 64 bits, which a locator before the end record points to. */
static lvn_status read_end64(const lvni_core_zip *zip, uint64_t end, directory *d)
{
    char locator[LOCATOR_BYTES], record[END64_BYTES];
    if (end < LOCATOR_BYTES) {
        return LVN_OK;
    }
    LVN_TRY(read_at(zip, end - LOCATOR_BYTES, locator, sizeof locator));
    if (memcmp(locator, "PK\6\7", 4) != 0) {
        return LVN_OK;
    }
    const uint64_t at = number(locator + 8, 8);
    if (at > zip->file_bytes || zip->file_bytes - at < END64_BYTES) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: its zip directory would be described at byte %llu of %llu",
                 zip->path, (unsigned long long)at, (unsigned long long)zip->file_bytes);
    }
    LVN_TRY(read_at(zip, at, record, sizeof record));
    if (memcmp(record, "PK\6\6", 4) != 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: no description of the zip directory at byte %llu", zip->path,
                 (unsigned long long)at);
    }
    *d = (directory){.entries = number(record + 32, 8),
                     .bytes = number(record + 40, 8),
                     .offset = number(record + 48, 8)};
    return LVN_OK;
}

static lvn_status find_directory(const lvni_core_zip *zip, directory *d)
{
    const uint64_t most = END_BYTES + MAX_COMMENT;
    const size_t n = (size_t)(zip->file_bytes < most ? zip->file_bytes : most);
    char *tail = lvni_core_alloc(LVNI_TAG_CORE, n);
    lvn_status s;
    size_t at = n < END_BYTES ? 0 : n - END_BYTES + 1;
    bool found = false;
    LVNI_TRY_DONE(s, tail == NULL ? LVN_ERR_MEMORY : read_at(zip, zip->file_bytes - n, tail, n));
    while (at > 0 && !found) { /* the comment ends where the file ends */
        at--;
        found =
            memcmp(tail + at, "PK\5\6", 4) == 0 && number(tail + at + 20, 2) == n - END_BYTES - at;
    }
    if (found) {
        *d = (directory){.entries = number(tail + at + 10, 2),
                         .bytes = number(tail + at + 12, 4),
                         .offset = number(tail + at + 16, 4)};
    }
done:
    lvni_core_free(tail);
    LVN_TRY(s);
    if (!found) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: no zip directory at the end of %llu bytes: the file is cut off or damaged",
                 zip->path, (unsigned long long)zip->file_bytes);
    }
    LVN_TRY(read_end64(zip, zip->file_bytes - n + at, d));
    if (d->offset > zip->file_bytes || d->bytes > zip->file_bytes - d->offset ||
        d->entries > d->bytes / CENTRAL_BYTES) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: a zip directory of %llu entries in %llu bytes at byte %llu does not fit a "
                 "file of %llu",
                 zip->path, (unsigned long long)d->entries, (unsigned long long)d->bytes,
                 (unsigned long long)d->offset, (unsigned long long)zip->file_bytes);
    }
    return LVN_OK;
}

/* Sizes and offsets that do not fit 32 bits stand in an extra field, in this order. */
static bool read_extra64(const char *extra, size_t n, lvni_core_zip_entry *e)
{
    uint64_t *const wide[] = {&e->bytes, &e->packed, &e->header};
    while (n >= 4) {
        const size_t id = (size_t)number(extra, 2), bytes = (size_t)number(extra + 2, 2);
        if (bytes > n - 4) {
            return false;
        }
        size_t at = 4;
        for (int i = 0; id == 1 && i < 3; i++) {
            if (*wide[i] == UINT32_MAX && at + 8 <= 4 + bytes) {
                *wide[i] = number(extra + at, 8);
                at += 8;
            }
        }
        extra += 4 + bytes;
        n -= 4 + bytes;
    }
    return true;
}

static lvn_status read_central(const lvni_core_zip *zip, const char **at, size_t *left,
                               lvni_core_zip_entry *e)
{
    const char *p = *at;
    if (*left < CENTRAL_BYTES || memcmp(p, "PK\1\2", 4) != 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: the zip directory is damaged: no entry %zu bytes before its "
                 "end",
                 zip->path, *left);
    }
    const size_t name = (size_t)number(p + 28, 2), extra = (size_t)number(p + 30, 2);
    const size_t all = CENTRAL_BYTES + name + extra + (size_t)number(p + 32, 2);
    *e = (lvni_core_zip_entry){.flags = (uint16_t)number(p + 8, 2),
                               .method = (uint16_t)number(p + 10, 2),
                               .crc = (uint32_t)number(p + 16, 4),
                               .packed = number(p + 20, 4),
                               .bytes = number(p + 24, 4),
                               .header = number(p + 42, 4),
                               .name = p + CENTRAL_BYTES,
                               .name_bytes = name};
    if (all > *left || !read_extra64(p + CENTRAL_BYTES + name, extra, e)) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: the zip directory is damaged: an entry of %zu bytes with %zu "
                 "left",
                 zip->path, all, *left);
    }
    *at += all;
    *left -= all;
    return LVN_OK;
}

/* As strcmp does, for names that may have any bytes. */
static int compare_bytes(const char *a, size_t n_a, const char *b, size_t n_b)
{
    const int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return order != 0 ? order : (n_a > n_b) - (n_a < n_b);
}

static int compare_entries(const void *a, const void *b)
{
    const lvni_core_zip_entry *x = a, *y = b;
    return compare_bytes(x->name, x->name_bytes, y->name, y->name_bytes);
}

static lvn_status read_directory(lvni_core_zip *zip, const directory *d)
{
    zip->directory = lvni_core_alloc(LVNI_TAG_CORE, (size_t)d->bytes);
    zip->entries = lvni_core_calloc(LVNI_TAG_CORE, (size_t)d->entries, sizeof *zip->entries);
    if (zip->directory == NULL || zip->entries == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(read_at(zip, d->offset, zip->directory, (size_t)d->bytes));
    const char *at = zip->directory;
    size_t left = (size_t)d->bytes;
    for (; zip->n_entries < (int64_t)d->entries; zip->n_entries++) {
        LVN_TRY(read_central(zip, &at, &left, &zip->entries[zip->n_entries]));
    }
    if (zip->n_entries > 1) {
        qsort(zip->entries, (size_t)zip->n_entries, sizeof *zip->entries, compare_entries);
    }
    for (int64_t i = 1; i < zip->n_entries; i++) {
        const lvni_core_zip_entry *e = &zip->entries[i];
        if (compare_entries(e - 1, e) == 0) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: the zip archive has '%.*s' twice", zip->path,
                     (int)e->name_bytes, e->name);
        }
    }
    return LVN_OK;
}

bool lvni_core_zip_is(const void *bytes, size_t n)
{
    return n >= 4 && memcmp(bytes, "PK\3\4", 4) == 0;
}

lvn_status lvni_core_zip_open(const char *path, int fd, uint64_t file_bytes, lvni_core_zip *out)
{
    directory d = {0};
    *out = (lvni_core_zip){.path = path, .fd = fd, .file_bytes = file_bytes};
    LVN_TRY(find_directory(out, &d));
    return read_directory(out, &d);
}

void lvni_core_zip_close(lvni_core_zip *zip)
{
    lvni_core_free(zip->entries);
    lvni_core_free(zip->directory);
}

/* ---- entries ---- */

lvni_core_zip_entry *lvni_core_zip_find(const lvni_core_zip *zip, const char *prefix,
                                        size_t prefix_bytes, const char *name, size_t name_bytes)
{
    int64_t low = 0, high = zip->n_entries;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        lvni_core_zip_entry *e = &zip->entries[middle];
        const size_t head = e->name_bytes < prefix_bytes ? e->name_bytes : prefix_bytes;
        int order = compare_bytes(e->name, head, prefix, prefix_bytes);
        if (order == 0) {
            order = compare_bytes(e->name + head, e->name_bytes - head, name, name_bytes);
        }
        if (order == 0) {
            return e;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return NULL;
}

static lvn_status check_crc(const lvni_core_zip *zip, const lvni_core_zip_entry *e,
                            const char *data)
{
    uLong crc = 0;
    for (uint64_t at = 0; at < e->bytes;) {
        const uint64_t left = e->bytes - at;
        const uInt n = left < (uInt)1 << 30 ? (uInt)left : (uInt)1 << 30;
        crc = crc32(crc, (const Bytef *)data + at, n);
        at += n;
    }
    if (e->crc != 0 && e->crc != crc) { /* 0: torch.serialization.set_crc32_options(False) */
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: '%.*s' does not match its CRC-32: the file is damaged",
                 zip->path, (int)e->name_bytes, e->name);
    }
    return LVN_OK;
}

/* The first n bytes of an entry, whose sizes fit each other, from packed bytes in memory; of all
 * its bytes nothing may be behind them. */
static lvn_status inflate_begin(const lvni_core_zip *zip, const lvni_core_zip_entry *e,
                                const char *packed, char *to, size_t n)
{
    lvni_core_inflater *inflater;
    size_t got = 0;
    bool ended = false;
    LVN_TRY(lvni_core_inflate_open(LVNI_INFLATE_RAW, packed, (size_t)e->packed, &inflater));
    const lvn_status s = lvni_core_inflate_next(inflater, to, n, &got, &ended);
    lvni_core_inflate_close(inflater);
    if (s == LVN_ERR_CORRUPT || (s == LVN_OK && (got < n || (n == e->bytes && !ended)))) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: '%.*s' cannot be unpacked: the file is damaged", zip->path,
                 (int)e->name_bytes, e->name);
    }
    return s;
}

static lvn_status read_deflated(const lvni_core_zip *zip, const lvni_core_zip_entry *e,
                                uint64_t data, char *to, size_t n)
{
    char *packed = lvni_core_alloc(LVNI_TAG_CORE, e->packed > 0 ? (size_t)e->packed : 1);
    if (packed == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status s = read_at(zip, data, packed, (size_t)e->packed);
    if (s == LVN_OK) {
        s = inflate_begin(zip, e, packed, to, n);
    }
    lvni_core_free(packed);
    return s;
}

lvn_status lvni_core_zip_check(const lvni_core_zip *zip, const lvni_core_zip_entry *e)
{
    const int name = (int)e->name_bytes;
    if ((e->method != STORED && e->method != DEFLATED) || (e->flags & ENCRYPTED) != 0) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s: '%.*s' is %s", zip->path, name, e->name,
                 (e->flags & ENCRYPTED) != 0 ? "encrypted" : "compressed in an unusual way");
    }
    if (e->method == DEFLATED && e->bytes / LVNI_INFLATE_RATIO > e->packed) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: '%.*s' cannot have %llu bytes, packed in %llu", zip->path,
                 name, e->name, (unsigned long long)e->bytes, (unsigned long long)e->packed);
    }
    const uint64_t there = e->method == STORED ? e->bytes : e->packed;
    if (e->header > zip->file_bytes || there > zip->file_bytes - e->header) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: '%.*s' has %llu bytes behind byte %llu of %llu: cut off",
                 zip->path, name, e->name, (unsigned long long)there, (unsigned long long)e->header,
                 (unsigned long long)zip->file_bytes);
    }
    return LVN_OK;
}

/* Where the content begins. */
static lvn_status find_content(const lvni_core_zip *zip, const lvni_core_zip_entry *e,
                               uint64_t *data)
{
    char local[LOCAL_BYTES];
    const int name = (int)e->name_bytes;
    LVN_TRY(lvni_core_zip_check(zip, e));
    if (e->header > zip->file_bytes || zip->file_bytes - e->header < LOCAL_BYTES) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: '%.*s' would begin at byte %llu of %llu", zip->path, name,
                 e->name, (unsigned long long)e->header, (unsigned long long)zip->file_bytes);
    }
    LVN_TRY(read_at(zip, e->header, local, sizeof local));
    if (memcmp(local, "PK\3\4", 4) != 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: '%.*s' does not begin at byte %llu, as the directory has it",
                 zip->path, name, e->name, (unsigned long long)e->header);
    }
    *data = e->header + LOCAL_BYTES + number(local + 26, 2) + number(local + 28, 2);
    const uint64_t there = e->method == STORED ? e->bytes : e->packed;
    if (*data > zip->file_bytes || there > zip->file_bytes - *data) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: '%.*s' has %llu bytes from byte %llu of %llu: cut off",
                 zip->path, name, e->name, (unsigned long long)there, (unsigned long long)*data,
                 (unsigned long long)zip->file_bytes);
    }
    return LVN_OK;
}

lvn_status lvni_core_zip_read_begin(const lvni_core_zip *zip, const lvni_core_zip_entry *e,
                                    char *to, size_t n)
{
    uint64_t data = 0;
    LVN_TRY(find_content(zip, e, &data));
    return e->method == STORED ? read_at(zip, data, to, n) : read_deflated(zip, e, data, to, n);
}

lvn_status lvni_core_zip_read(const lvni_core_zip *zip, const lvni_core_zip_entry *e, bool verify,
                              char *to)
{
    LVN_TRY(lvni_core_zip_read_begin(zip, e, to, (size_t)e->bytes));
    return verify ? check_crc(zip, e, to) : LVN_OK;
}
