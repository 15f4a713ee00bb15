/* Reads safetensors files (safetensors.h). Nothing in a file is believed: every number of the
 * header is checked against the file before it is used. Called by ckpt/checkpoint.c,
 * ckpt/ckpt_hash.c and whoever loads weights. */
#include "ckpt/safetensors_file.h"

#include "core/alloc.h"
#include "core/json_read.h"
#include "core/vfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LENGTH_BYTES = 8 };

static lvn_status system_error(const char *path, const char *what)
{
    const int error = errno;
    LVN_FAIL(error == ENOENT ? LVN_ERR_NOT_FOUND : LVN_ERR_IO, "%s: cannot %s: %s", path, what,
             strerror(error));
}

static lvn_status read_exactly(int fd, const char *path, void *buffer, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        const ssize_t n = lvni_core_vfs_get()->read(fd, (char *)buffer + done, bytes - done);
        if (n < 0 && errno != EINTR) {
            return system_error(path, "read");
        }
        if (n == 0) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: the file became shorter while it was read", path);
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return LVN_OK;
}

/* The stored checksums; header_ok says whether the header is what was written. */
static lvn_status read_checksums(lvni_ckpt_st_file *f)
{
    const char *text = lvni_ckpt_st_meta_get(f, LVNI_ST_CHECKSUMS);
    const char *stored = lvni_ckpt_st_meta_get(f, LVNI_ST_HEADER_CHECKSUM);
    f->header_ok = (text == NULL) == (stored == NULL); /* one without the other: a key is damaged */
    if (text != NULL) {
        const lvn_status status =
            lvni_core_json_read(f->path, "the list of checksums", text, strlen(text),
                                JSON_REJECT_DUPLICATES, LVNI_JSON_INNER, &f->checksums);
        if (status != LVN_OK && status != LVN_ERR_CORRUPT) {
            return status;
        }
        f->header_ok = f->header_ok && json_is_object(f->checksums);
    }
    if (stored != NULL) {
        char hex[LVNI_ST_HEX];
        lvni_ckpt_st_header_checksum(f->tensors, f->n_tensors, f->meta, f->n_meta, hex);
        f->header_ok = f->header_ok && strcmp(hex, stored) == 0;
    }
    return LVN_OK;
}

/* Length and text of the header; *data_bytes is what the file has behind it. */
static lvn_status read_header(lvni_ckpt_st_file *f, int fd, size_t file_bytes, size_t *data_bytes)
{
    unsigned char raw[LENGTH_BYTES];
    if (file_bytes < sizeof raw) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: %zu bytes are too few for a safetensors file", f->path,
                 file_bytes);
    }
    LVN_TRY(read_exactly(fd, f->path, raw, sizeof raw));
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) {
        length = length << 8 | raw[i];
    }
    if (length <= file_bytes - sizeof raw && length > LVNI_ST_MAX_HEADER) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: a header of %llu bytes; at most %zu (16 MiB) are read",
                 f->path, (unsigned long long)length, LVNI_ST_MAX_HEADER);
    }
    if (length > file_bytes - sizeof raw) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: a header of %llu bytes in a file of %zu: cut off, or no safetensors file",
                 f->path, (unsigned long long)length, file_bytes);
    }
    char *text = lvni_core_alloc(LVNI_TAG_CKPT, (size_t)length);
    if (text == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status status = read_exactly(fd, f->path, text, (size_t)length);
    if (status == LVN_OK) {
        status = lvni_core_json_read(f->path, "the header", text, (size_t)length,
                                     JSON_REJECT_DUPLICATES, LVNI_JSON_FILE, &f->root);
    }
    lvni_core_free(text);
    if (status == LVN_OK && !json_is_object(f->root)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: the header is no JSON object", f->path);
    }
    *data_bytes = file_bytes - sizeof raw - (size_t)length;
    return status;
}

static lvn_status read_file(lvni_ckpt_st_file *f, int fd, unsigned flags)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return system_error(f->path, "look at");
    }
    if (!S_ISREG(info.st_mode)) {
        LVN_FAIL(LVN_ERR_IO, "%s: cannot read: it is no file", f->path);
    }
    size_t data_bytes = 0;
    LVN_TRY(read_header(f, fd, (size_t)info.st_size, &data_bytes));
    LVN_TRY(lvni_ckpt_st_read_meta(f));
    if ((flags & LVNI_ST_HEADER_ONLY) == 0) {
        f->data = lvni_core_alloc(LVNI_TAG_CKPT, data_bytes);
        if (f->data == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    LVN_TRY(lvni_ckpt_st_read_tensors(f, data_bytes));
    LVN_TRY(read_checksums(f));
    return f->data == NULL ? LVN_OK : read_exactly(fd, f->path, f->data, data_bytes);
}

static lvn_status verify(const lvni_ckpt_st_file *f)
{
    if (!f->header_ok) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: the header (names, types, shapes, metadata) does not match its checksum",
                 f->path);
    }
    for (int64_t i = 0; f->data != NULL && i < f->n_tensors; i++) {
        if (!lvni_ckpt_st_tensor_ok(f, i)) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: tensor '%s' does not match its checksum", f->path,
                     f->tensors[i].name);
        }
    }
    return LVN_OK;
}

static lvn_status open_and_read(lvni_ckpt_st_file *f, unsigned flags)
{
    const int fd = lvni_core_vfs_get()->open(f->path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return system_error(f->path, "open");
    }
    const lvn_status status = read_file(f, fd, flags);
    lvni_core_vfs_get()->close(fd); /* nothing was written: a failure loses nothing */
    LVN_TRY(status);
    return (flags & LVNI_ST_VERIFY) != 0 ? verify(f) : LVN_OK;
}

lvn_status lvni_ckpt_st_open(const char *path, unsigned flags, lvni_ckpt_st_file **out)
{
    *out = NULL;
    LVN_ARG(path != NULL, "reading tensors needs a path");
    lvni_ckpt_st_file *f = LVNI_NEW(LVNI_TAG_CKPT, lvni_ckpt_st_file);
    if (f == NULL) {
        return LVN_ERR_MEMORY;
    }
    f->path = lvni_core_strdup(LVNI_TAG_CKPT, path);
    const lvn_status status = f->path == NULL ? LVN_ERR_MEMORY : open_and_read(f, flags);
    if (status != LVN_OK) {
        lvni_ckpt_st_close(f);
        return status;
    }
    *out = f;
    return LVN_OK;
}

void lvni_ckpt_st_close(lvni_ckpt_st_file *f)
{
    if (f == NULL) {
        return;
    }
    lvni_core_free(f->data);
    json_decref(f->checksums);
    lvni_core_free(f->tensors);
    lvni_core_free(f->meta);
    json_decref(f->root);
    lvni_core_free(f->path);
    lvni_core_free(f);
}

int64_t lvni_ckpt_st_count(const lvni_ckpt_st_file *f)
{
    return f->n_tensors;
}

const lvni_ckpt_st_tensor *lvni_ckpt_st_at(const lvni_ckpt_st_file *f, int64_t i)
{
    return i >= 0 && i < f->n_tensors ? &f->tensors[i] : NULL;
}

static int compare_name(const void *name, const void *t)
{
    return strcmp(name, ((const lvni_ckpt_st_tensor *)t)->name);
}

const lvni_ckpt_st_tensor *lvni_ckpt_st_find(const lvni_ckpt_st_file *f, const char *name)
{
    return f->n_tensors == 0
               ? NULL
               : bsearch(name, f->tensors, (size_t)f->n_tensors, sizeof *f->tensors, compare_name);
}

const char *lvni_ckpt_st_meta_get(const lvni_ckpt_st_file *f, const char *key)
{
    for (int64_t i = 0; i < f->n_meta; i++) {
        if (strcmp(f->meta[i].key, key) == 0) {
            return f->meta[i].value;
        }
    }
    return NULL;
}

bool lvni_ckpt_st_header_ok(const lvni_ckpt_st_file *f)
{
    return f->header_ok;
}

bool lvni_ckpt_st_tensor_ok(const lvni_ckpt_st_file *f, int64_t i)
{
    if (f->checksums == NULL) {
        return true;
    }
    char hex[LVNI_ST_HEX];
    lvni_ckpt_st_checksum(f->tensors[i].data, f->tensors[i].bytes, hex);
    const char *stored = json_string_value(json_object_get(f->checksums, f->tensors[i].name));
    return stored != NULL && strcmp(hex, stored) == 0;
}
