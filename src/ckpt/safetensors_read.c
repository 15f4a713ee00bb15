/* Reads safetensors files (safetensors.h). No number of a file is trusted: each is checked against
 * the file before it is used. The format: the README of the safetensors project. Called by
 * checkpoint.c, ckpt_hash.c and whatever loads weights. */
#include "ckpt/safetensors_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/math.h"
#include "core/vfs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lvni_ckpt_st_file {
    char *path;
    json_t *root;                 /* owns all names and texts; NULL: the content does */
    lvni_ckpt_st_content content; /* tensors and others by name */
    int64_t n_meta;
    lvni_ckpt_st_meta *meta; /* by key */
    json_t *checksums;       /* NULL: none stored */
    bool header_ok;
};

/* ---- the entries of the header ---- */

/* Where a tensor lies in the data part. */
typedef struct range {
    size_t begin, end;
    const char *name;
} range;

/* "F32": one of ours. */
static bool find_dtype(const char *name, lvn_dtype *out)
{
    for (int i = 0; i < LVN_DTYPE_COUNT; i++) {
        if (strcmp(name, lvni_ckpt_st_dtype_names[i]) == 0) {
            *out = (lvn_dtype)i;
            return true;
        }
    }
    return false;
}

/* As those of the format look, new ones included: F8_E4M3. */
static bool looks_like_dtype(const char *name)
{
    const size_t n = strlen(name);
    return n > 0 && n <= 16 && strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == n;
}

static lvn_status check_shape(const lvni_ckpt_st_file *f, const char *name, const json_t *value)
{
    if (!json_is_array(value)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: tensor '%s' has no shape", f->path, name);
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *size = json_array_get(value, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: axis %zu of tensor '%s' has no valid size", f->path, i,
                     name);
        }
    }
    return LVN_OK;
}

/* Of a checked shape that has at most LVN_MAX_NDIM axes. */
static lvn_status read_shape(const lvni_ckpt_st_file *f, lvni_ckpt_st_tensor *t,
                             const json_t *value)
{
    t->ndim = (int)json_array_size(value);
    for (int i = 0; i < t->ndim; i++) {
        t->shape[i] = json_integer_value(json_array_get(value, (size_t)i));
    }
    if (!lvni_ckpt_st_tensor_bytes(lvn_dtype_size(t->dtype), t->ndim, t->shape, &t->bytes)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: the shape of tensor '%s' is too large for any file", f->path,
                 t->name);
    }
    return LVN_OK;
}

static lvn_status read_range(const lvni_ckpt_st_file *f, const char *name, const json_t *value,
                             size_t data_bytes, range *r)
{
    const json_t *first = json_array_get(value, 0), *last = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(first) || !json_is_integer(last)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: tensor '%s' has no data_offsets", f->path, name);
    }
    const json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin || (uint64_t)end > data_bytes) {
        LVN_FAIL(
            LVN_ERR_CORRUPT,
            "%s: tensor '%s' lies at bytes %lld to %lld of %zu: the file is cut off or damaged",
            f->path, name, (long long)begin, (long long)end, data_bytes);
    }
    *r = (range){.begin = (size_t)begin, .end = (size_t)end, .name = name};
    return LVN_OK;
}

static int compare_ranges(const void *a, const void *b)
{
    const range *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end == y->end ? strcmp(x->name, y->name) : x->end < y->end ? -1 : 1;
}

/* The format wants every byte to belong to exactly one tensor. */
static lvn_status check_cover(const lvni_ckpt_st_file *f, range *ranges, size_t data_bytes)
{
    const int64_t n = f->content.n_tensors + f->content.n_others;
    size_t at = 0;
    if (n > 1) {
        qsort(ranges, (size_t)n, sizeof *ranges, compare_ranges);
    }
    for (int64_t i = 0; i < n; i++) {
        if (ranges[i].begin < at) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: tensors '%s' and '%s' overlap at byte %zu", f->path,
                     ranges[i - 1].name, ranges[i].name, ranges[i].begin);
        }
        if (ranges[i].begin > at) {
            LVN_FAIL(LVN_ERR_CORRUPT,
                     "%s: bytes %zu to %zu, before tensor '%s', do not belong to a tensor", f->path,
                     at, ranges[i].begin, ranges[i].name);
        }
        at = ranges[i].end;
    }
    if (at != data_bytes) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: %zu bytes after the last tensor do not belong to any",
                 f->path, data_bytes - at);
    }
    return LVN_OK;
}

/* f->meta from __metadata__, sorted by key. */
static lvn_status read_meta(lvni_ckpt_st_file *f)
{
    json_t *map = json_object_get(f->root, "__metadata__");
    if (json_is_null(map)) { /* as if there were none, which is how others read it */
        map = NULL;
    }
    if (map != NULL && !json_is_object(map)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: __metadata__ is not an object", f->path);
    }
    f->meta = lvni_core_calloc(LVNI_TAG_CKPT, json_object_size(map), sizeof *f->meta);
    if (f->meta == NULL) {
        return LVN_ERR_MEMORY;
    }
    const char *key;
    json_t *value;
    json_object_foreach(map, key, value)
    {
        if (!json_is_string(value)) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: the metadata '%s' is not a text", f->path, key);
        }
        f->meta[f->n_meta++] = (lvni_ckpt_st_meta){.key = key, .value = json_string_value(value)};
    }
    lvni_ckpt_st_sort_meta(f->meta, f->n_meta);
    return LVN_OK;
}

/* Of a type or a number of axes that levin does not have. */
static bool is_other(const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "dtype"));
    lvn_dtype unused;
    return type != NULL && (!find_dtype(type, &unused) ||
                            json_array_size(json_object_get(value, "shape")) > LVN_MAX_NDIM);
}

/* One entry, into the tensors or the others; r: where it lies. */
static lvn_status read_entry(lvni_ckpt_st_file *f, const char *name, const json_t *value,
                             size_t data_bytes, range *r)
{
    const char *type = json_string_value(json_object_get(value, "dtype"));
    const json_t *shape = json_object_get(value, "shape");
    lvni_ckpt_st_tensor t = {.name = name};
    if (type == NULL) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: tensor '%s' has no dtype", f->path, name);
    }
    if (!find_dtype(type, &t.dtype) && !looks_like_dtype(type)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: tensor '%s' has the unknown data type '%s'", f->path, name,
                 type);
    }
    LVN_TRY(check_shape(f, name, shape));
    LVN_TRY(read_range(f, name, json_object_get(value, "data_offsets"), data_bytes, r));
    if (is_other(value)) {
        lvni_ckpt_st_other *other = &f->content.others[f->content.n_others++];
        *other = (lvni_ckpt_st_other){.name = name,
                                      .type = type,
                                      .shape = shape,
                                      .ndim = (int64_t)json_array_size(shape),
                                      .bytes = r->end - r->begin};
        other->data = f->content.data == NULL ? NULL : f->content.data + r->begin;
        snprintf(other->what, sizeof other->what, "%zu ax%s, type %s", json_array_size(shape),
                 lvni_core_plural((int64_t)json_array_size(shape), "is", "es"), type);
        return LVN_OK;
    }
    LVN_TRY(read_shape(f, &t, shape));
    if (r->end - r->begin != t.bytes) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: tensor '%s' has %zu bytes, but type and shape ask for %zu",
                 f->path, name, r->end - r->begin, t.bytes);
    }
    t.data = f->content.data == NULL ? NULL : f->content.data + r->begin;
    f->content.tensors[f->content.n_tensors++] = t;
    return LVN_OK;
}

static lvn_status read_entries(lvni_ckpt_st_file *f, range *ranges, size_t data_bytes)
{
    const char *key;
    json_t *value;
    json_object_foreach(f->root, key, value)
    {
        if (strcmp(key, "__metadata__") != 0) {
            LVN_TRY(read_entry(f, key, value, data_bytes,
                               &ranges[f->content.n_tensors + f->content.n_others]));
        }
    }
    return LVN_OK;
}

/* f->content.tensors and f->content.others, sorted by name, with their places in f->content.data
 * where there is one: its data_bytes bytes are read later, and each belongs to exactly one tensor.
 */
static lvn_status read_tensors(lvni_ckpt_st_file *f, size_t data_bytes)
{
    const size_t all = json_object_size(f->root);
    size_t others = 0;
    const char *key;
    json_t *value;
    json_object_foreach(f->root, key, value)
    {
        others += strcmp(key, "__metadata__") != 0 && is_other(value);
    }
    range *ranges = lvni_core_calloc(LVNI_TAG_CKPT, all, sizeof *ranges);
    f->content.tensors = lvni_core_calloc(LVNI_TAG_CKPT, all - others, sizeof *f->content.tensors);
    f->content.others = lvni_core_calloc(LVNI_TAG_CKPT, others, sizeof *f->content.others);
    lvn_status status;
    LVNI_TRY_DONE(status, ranges == NULL || f->content.tensors == NULL || f->content.others == NULL
                              ? LVN_ERR_MEMORY
                              : read_entries(f, ranges, data_bytes));
    status = check_cover(f, ranges, data_bytes);
done:
    lvni_core_free(ranges);
    lvni_ckpt_st_sort_tensors(f->content.tensors, f->content.n_tensors);
    lvni_ckpt_st_sort_others(f->content.others, f->content.n_others);
    return status;
}

/* ---- the file ---- */

enum { LENGTH_BYTES = 8 };

static lvn_status read_exactly(int fd, const char *path, void *buffer, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        const ssize_t n = lvni_core_vfs_get()->read(fd, (char *)buffer + done, bytes - done);
        if (n < 0 && errno != EINTR) {
            LVN_FAIL(LVN_ERR_IO, "%s: cannot read: %s", path, strerror(errno));
        }
        if (n == 0) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: the file became shorter while it was read", path);
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return LVN_OK;
}

/* The stored checksums; header_ok: the header is what was written. */
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
        lvni_ckpt_st_header_checksum(f->content.tensors, f->content.n_tensors, f->meta, f->n_meta,
                                     hex);
        /* levin writes only what it reads: another type is a damaged one */
        f->header_ok = f->header_ok && f->content.n_others == 0 && strcmp(hex, stored) == 0;
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
    if (length > file_bytes - sizeof raw && memcmp(raw, "PK\3\4", 4) == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: a zip archive, as torch.save of PyTorch writes, and not a safetensors file: "
                 "levin ckpt convert %s W.safetensors writes its tensors into one",
                 f->path, f->path);
    }
    if (length > file_bytes - sizeof raw) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: a header of %llu bytes in a file of %zu: cut off, or not a safetensors file",
                 f->path, (unsigned long long)length, file_bytes);
    }
    char *text = lvni_core_alloc(LVNI_TAG_CKPT, (size_t)length);
    lvn_status status;
    LVNI_TRY_DONE(status,
                  text == NULL ? LVN_ERR_MEMORY : read_exactly(fd, f->path, text, (size_t)length));
    status = lvni_core_json_read(f->path, "the header", text, (size_t)length,
                                 JSON_REJECT_DUPLICATES, LVNI_JSON_FILE, &f->root);
done:
    lvni_core_free(text);
    LVN_TRY(status);
    if (!json_is_object(f->root)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: the header is not a JSON object", f->path);
    }
    *data_bytes = file_bytes - sizeof raw - (size_t)length;
    return LVN_OK;
}

static lvn_status read_file(lvni_ckpt_st_file *f, int fd, size_t file_bytes, unsigned flags)
{
    size_t data_bytes = 0;
    LVN_TRY(read_header(f, fd, file_bytes, &data_bytes));
    LVN_TRY(read_meta(f));
    if ((flags & LVNI_ST_HEADER_ONLY) == 0) {
        f->content.data = lvni_core_alloc(LVNI_TAG_CKPT, data_bytes);
        if (f->content.data == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    LVN_TRY(read_tensors(f, data_bytes));
    LVN_TRY(read_checksums(f));
    char *data = f->content.data;
    return data == NULL ? LVN_OK : read_exactly(fd, f->path, data, data_bytes);
}

static lvn_status verify(const lvni_ckpt_st_file *f)
{
    if (!f->header_ok) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: the header (names, types, shapes, metadata) does not match its checksum",
                 f->path);
    }
    for (int64_t i = 0; f->content.data != NULL && i < f->content.n_tensors; i++) {
        if (!lvni_ckpt_st_tensor_ok(f, i)) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: tensor '%s' does not match its checksum", f->path,
                     f->content.tensors[i].name);
        }
    }
    return LVN_OK;
}

static lvn_status open_and_read(lvni_ckpt_st_file *f, unsigned flags)
{
    int fd;
    uint64_t bytes;
    LVN_TRY(lvni_core_regular_open(f->path, &fd, &bytes));
    const lvn_status status = read_file(f, fd, (size_t)bytes, flags);
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

void lvni_ckpt_st_content_free(lvni_ckpt_st_content *c)
{
    for (int64_t i = 0; i < c->n_parts; i++) {
        lvni_ckpt_st_close(c->parts[i]);
    }
    lvni_core_free(c->parts);
    lvni_core_free(c->tensors);
    lvni_core_free(c->others);
    lvni_core_free(c->names);
    lvni_core_free(c->data);
}

/* A name of two tensors, whether they are read or not; NULL: there is none. Both lists are in the
 * order of names. */
static const char *find_twice(const lvni_ckpt_st_content *c)
{
    const char *last = NULL;
    for (int64_t i = 0, k = 0; i < c->n_tensors || k < c->n_others;) {
        const bool read = k == c->n_others ||
                          (i < c->n_tensors && strcmp(c->tensors[i].name, c->others[k].name) <= 0);
        const char *name = read ? c->tensors[i++].name : c->others[k++].name;
        if (last != NULL && strcmp(last, name) == 0) {
            return name;
        }
        last = name;
    }
    return NULL;
}

lvn_status lvni_ckpt_st_adopt(const char *path, lvni_ckpt_st_content *c, lvni_ckpt_st_file **out)
{
    lvni_ckpt_st_file *f = LVNI_NEW(LVNI_TAG_CKPT, lvni_ckpt_st_file);
    if (f == NULL) {
        lvni_ckpt_st_content_free(c);
        return LVN_ERR_MEMORY;
    }
    *f = (lvni_ckpt_st_file){
        .path = lvni_core_strdup(LVNI_TAG_CKPT, path), .content = *c, .header_ok = true};
    lvn_status status = f->path == NULL ? LVN_ERR_MEMORY : LVN_OK;
    lvni_ckpt_st_sort_tensors(c->tensors, c->n_tensors);
    lvni_ckpt_st_sort_others(c->others, c->n_others);
    const char *twice = find_twice(c);
    if (status == LVN_OK && twice != NULL) {
        status = lvn_error_set(LVN_ERR_CORRUPT, __FILE__, __LINE__,
                               "%s: two tensors are called '%s'", path, twice);
    }
    if (status != LVN_OK) {
        lvni_ckpt_st_close(f);
        f = NULL;
    }
    *out = f;
    return status;
}

void lvni_ckpt_st_close(lvni_ckpt_st_file *f)
{
    if (f == NULL) {
        return;
    }
    lvni_ckpt_st_content_free(&f->content);
    json_decref(f->checksums);
    lvni_core_free(f->meta);
    json_decref(f->root);
    lvni_core_free(f->path);
    lvni_core_free(f);
}

int64_t lvni_ckpt_st_count(const lvni_ckpt_st_file *f)
{
    return f->content.n_tensors;
}

const lvni_ckpt_st_tensor *lvni_ckpt_st_at(const lvni_ckpt_st_file *f, int64_t i)
{
    return i >= 0 && i < f->content.n_tensors ? &f->content.tensors[i] : NULL;
}

static int compare_name(const void *name, const void *t)
{
    return strcmp(name, ((const lvni_ckpt_st_tensor *)t)->name);
}

const lvni_ckpt_st_tensor *lvni_ckpt_st_find(const lvni_ckpt_st_file *f, const char *name)
{
    return f->content.n_tensors == 0
               ? NULL
               : bsearch(name, f->content.tensors, (size_t)f->content.n_tensors,
                         sizeof *f->content.tensors, compare_name);
}

int64_t lvni_ckpt_st_count_others(const lvni_ckpt_st_file *f)
{
    return f->content.n_others;
}

const lvni_ckpt_st_other *lvni_ckpt_st_other_at(const lvni_ckpt_st_file *f, int64_t i)
{
    return i >= 0 && i < f->content.n_others ? &f->content.others[i] : NULL;
}

static int compare_other(const void *name, const void *other)
{
    return strcmp(name, ((const lvni_ckpt_st_other *)other)->name);
}

const lvni_ckpt_st_other *lvni_ckpt_st_find_other(const lvni_ckpt_st_file *f, const char *name)
{
    const lvni_ckpt_st_content *c = &f->content;
    return c->n_others == 0
               ? NULL
               : bsearch(name, c->others, (size_t)c->n_others, sizeof *c->others, compare_other);
}

int64_t lvni_ckpt_st_other_size(const lvni_ckpt_st_other *other, int64_t axis)
{
    return json_integer_value(json_array_get(other->shape, (size_t)axis));
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

const lvni_ckpt_st_meta *lvni_ckpt_st_meta_at(const lvni_ckpt_st_file *f, int64_t i)
{
    return i >= 0 && i < f->n_meta ? &f->meta[i] : NULL;
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
    lvni_ckpt_st_checksum(f->content.tensors[i].data, f->content.tensors[i].bytes, hex);
    const char *stored =
        json_string_value(json_object_get(f->checksums, f->content.tensors[i].name));
    return stored != NULL && strcmp(hex, stored) == 0;
}

/* ---- weights as f32, whatever floating type they were written in ---- */

static uint16_t half_at(const char *from, size_t i)
{
    uint16_t h;
    memcpy(&h, from + i * sizeof h, sizeof h);
    return h;
}

double lvni_ckpt_st_value(const lvni_ckpt_st_tensor *t, size_t i)
{
    const size_t size = lvn_dtype_size(t->dtype);
    union {
        float f32;
        double f64;
        int64_t i64;
        int32_t i32;
        uint16_t half;
        uint8_t u8;
    } x = {.i64 = 0};
    memcpy(&x, (const char *)t->data + i * size, size);
    switch ((int)t->dtype) {
    case LVN_F32: return (double)x.f32;
    case LVN_F64: return x.f64;
    case LVN_BF16: return (double)lvni_core_bf16_to_f32(x.half);
    case LVN_F16: return (double)lvni_core_f16_to_f32(x.half);
    case LVN_I64: return (double)x.i64;
    case LVN_I32: return (double)x.i32;
    default: return (double)x.u8;
    }
}

lvn_status lvni_ckpt_st_read_f32(const lvni_ckpt_st_tensor *t, float *out)
{
    const size_t size = lvn_dtype_size(t->dtype), n = t->bytes / size;
    const char *from = t->data; /* files of others are not aligned */
    switch ((int)t->dtype) {
    case LVN_F32: memcpy(out, from, t->bytes); return LVN_OK;
    case LVN_F64:
        for (size_t i = 0; i < n; i++) {
            double d;
            memcpy(&d, from + i * sizeof d, sizeof d);
            out[i] = (float)d;
        }
        return LVN_OK;
    case LVN_BF16:
        for (size_t i = 0; i < n; i++) {
            out[i] = lvni_core_bf16_to_f32(half_at(from, i));
        }
        return LVN_OK;
    case LVN_F16:
        for (size_t i = 0; i < n; i++) {
            out[i] = lvni_core_f16_to_f32(half_at(from, i));
        }
        return LVN_OK;
    default:
        LVN_FAIL(LVN_ERR_DTYPE,
                 "tensor %s has elements of type %s; weights are floating-point numbers", t->name,
                 lvn_dtype_name(t->dtype));
    }
}
