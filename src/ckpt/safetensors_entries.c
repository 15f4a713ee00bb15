/* What the JSON of a safetensors file says of its tensors and texts (safetensors_file.h), each
 * number checked against the file. The format: the README of the safetensors project. */
#include "ckpt/safetensors_file.h"

#include "core/alloc.h"

#include <stdlib.h>
#include <string.h>

/* Where a tensor lies in the data part. */
typedef struct range {
    size_t begin, end;
    const char *name;
} range;

/* Types of other programs: known, so that the message can tell damage from what levin does not
 * have. */
static const struct {
    const char *name;
    size_t size;
} foreign[] = {{"I8", 1},  {"I16", 2}, {"U16", 2},     {"U32", 4},
               {"U64", 8}, {"C64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

static lvn_status read_dtype(const lvni_ckpt_st_file *f, lvni_ckpt_st_tensor *t,
                             const json_t *value, size_t *element)
{
    const char *name = json_string_value(value);
    if (name == NULL) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: tensor '%s' has no dtype", f->path, t->name);
    }
    for (int i = 0; i < LVN_DTYPE_COUNT; i++) {
        if (strcmp(name, lvni_ckpt_st_dtype_names[i]) == 0) {
            t->dtype = (lvn_dtype)i;
            *element = lvn_dtype_size(t->dtype);
            return LVN_OK;
        }
    }
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        if (strcmp(name, foreign[i].name) == 0) {
            LVN_FAIL(
                LVN_ERR_UNSUPPORTED,
                "%s: tensor '%s' has data type %s; levin reads F32, F64, I64, I32, U8 and BOOL: "
                "convert the file",
                f->path, t->name, name);
        }
    }
    LVN_FAIL(LVN_ERR_CORRUPT, "%s: tensor '%s' has the unknown data type '%s'", f->path, t->name,
             name);
}

static lvn_status read_shape(const lvni_ckpt_st_file *f, lvni_ckpt_st_tensor *t,
                             const json_t *value, size_t element)
{
    if (!json_is_array(value)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: tensor '%s' has no shape", f->path, t->name);
    }
    const size_t ndim = json_array_size(value);
    if (ndim > LVN_MAX_NDIM) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s: tensor '%s' has %zu axes; levin has up to %d", f->path,
                 t->name, ndim, LVN_MAX_NDIM);
    }
    t->ndim = (int)ndim;
    for (size_t i = 0; i < ndim; i++) {
        const json_t *size = json_array_get(value, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: axis %zu of tensor '%s' has no valid size", f->path, i,
                     t->name);
        }
        t->shape[i] = json_integer_value(size);
    }
    if (!lvni_ckpt_st_tensor_bytes(element, t->ndim, t->shape, &t->bytes)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: the shape of tensor '%s' is too large for any file", f->path,
                 t->name);
    }
    return LVN_OK;
}

static lvn_status read_range(const lvni_ckpt_st_file *f, const lvni_ckpt_st_tensor *t,
                             const json_t *value, size_t data_bytes, range *r)
{
    const json_t *first = json_array_get(value, 0), *last = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(first) || !json_is_integer(last)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: tensor '%s' has no data_offsets", f->path, t->name);
    }
    const json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin || (uint64_t)end > data_bytes) {
        LVN_FAIL(
            LVN_ERR_CORRUPT,
            "%s: tensor '%s' lies at bytes %lld to %lld of %zu: the file is cut off or damaged",
            f->path, t->name, (long long)begin, (long long)end, data_bytes);
    }
    *r = (range){.begin = (size_t)begin, .end = (size_t)end, .name = t->name};
    if (r->end - r->begin != t->bytes) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: tensor '%s' has %zu bytes, but type and shape ask for %zu",
                 f->path, t->name, r->end - r->begin, t->bytes);
    }
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
    size_t at = 0;
    if (f->n_tensors > 1) {
        qsort(ranges, (size_t)f->n_tensors, sizeof *ranges, compare_ranges);
    }
    for (int64_t i = 0; i < f->n_tensors; i++) {
        if (ranges[i].begin < at) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: tensors '%s' and '%s' overlap at byte %zu", f->path,
                     ranges[i - 1].name, ranges[i].name, ranges[i].begin);
        }
        if (ranges[i].begin > at) {
            LVN_FAIL(LVN_ERR_CORRUPT,
                     "%s: bytes %zu to %zu, before tensor '%s', belong to no tensor", f->path, at,
                     ranges[i].begin, ranges[i].name);
        }
        at = ranges[i].end;
    }
    if (at != data_bytes) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: %zu bytes after the last tensor belong to none", f->path,
                 data_bytes - at);
    }
    return LVN_OK;
}

/* The texts of __metadata__ */
lvn_status lvni_ckpt_st_read_meta(lvni_ckpt_st_file *f)
{
    json_t *map = json_object_get(f->root, "__metadata__");
    if (map != NULL && !json_is_object(map)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: __metadata__ is no object", f->path);
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
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: the metadata '%s' is no text", f->path, key);
        }
        f->meta[f->n_meta++] = (lvni_ckpt_st_meta){.key = key, .value = json_string_value(value)};
    }
    lvni_ckpt_st_sort_meta(f->meta, f->n_meta);
    return LVN_OK;
}

static lvn_status read_entries(lvni_ckpt_st_file *f, range *ranges, size_t data_bytes)
{
    const char *key;
    json_t *value;
    json_object_foreach(f->root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            continue;
        }
        lvni_ckpt_st_tensor *t = &f->tensors[f->n_tensors];
        t->name = key;
        size_t element = 0;
        LVN_TRY(read_dtype(f, t, json_object_get(value, "dtype"), &element));
        LVN_TRY(read_shape(f, t, json_object_get(value, "shape"), element));
        LVN_TRY(read_range(f, t, json_object_get(value, "data_offsets"), data_bytes,
                           &ranges[f->n_tensors]));
        f->n_tensors++;
    }
    return LVN_OK;
}

/* Tensors with their place in f->data (which is read later). */
lvn_status lvni_ckpt_st_read_tensors(lvni_ckpt_st_file *f, size_t data_bytes)
{
    const size_t most = json_object_size(f->root);
    range *ranges = lvni_core_calloc(LVNI_TAG_CKPT, most, sizeof *ranges);
    f->tensors = lvni_core_calloc(LVNI_TAG_CKPT, most, sizeof *f->tensors);
    lvn_status status = ranges != NULL && f->tensors != NULL ? LVN_OK : LVN_ERR_MEMORY;
    if (status == LVN_OK) {
        status = read_entries(f, ranges, data_bytes);
    }
    if (status == LVN_OK && f->data != NULL) {
        for (int64_t i = 0; i < f->n_tensors; i++) {
            f->tensors[i].data = f->data + ranges[i].begin;
        }
    }
    if (status == LVN_OK) {
        status = check_cover(f, ranges, data_bytes);
    }
    lvni_core_free(ranges);
    lvni_ckpt_st_sort_tensors(f->tensors, f->n_tensors);
    return status;
}
