/* Safetensors files: named tensors and a map of strings in one file that any Python can open.
 *
 * The file: 8 bytes length of the header (little endian), the header (JSON: name -> {dtype, shape,
 * data_offsets}, and "__metadata__" -> {text: text}), then the tensors without gaps. Called by
 * ckpt/checkpoint, by export and by whatever loads weights.
 *
 * Levin's files carry two more metadata keys: "levin.checksums" (a JSON object: tensor name ->
 * XXH3-64 of its bytes, 16 hex digits) and "levin.header_checksum" (XXH3-64 over metadata, names,
 * types and shapes). Files without both are read too. */
#ifndef LEVIN_CKPT_SAFETENSORS_H
#define LEVIN_CKPT_SAFETENSORS_H

#include <levin/tensor.h>

#define LVNI_ST_CHECKSUMS "levin.checksums"
#define LVNI_ST_HEADER_CHECKSUM "levin.header_checksum"

typedef struct lvni_ckpt_st_tensor {
    const char *name;
    lvn_dtype dtype;
    int ndim;
    int64_t shape[LVN_MAX_NDIM];
    const void *data; /* from a file: NULL with LVNI_ST_HEADER_ONLY */
    size_t bytes;     /* filled by the reader; the writer counts by itself */
} lvni_ckpt_st_tensor;

/* A tensor of a type or form that levin does not have, whose elements are not read. The rest is of
 * safetensors files alone. */
typedef struct lvni_ckpt_st_other {
    const char *name;
    char what[64];     /* "2 axes, type I8" */
    const char *type;  /* "I8" */
    const void *shape; /* lvni_ckpt_st_other_size reads it */
    int64_t ndim;
    const void *data; /* as of a tensor */
    size_t bytes;
} lvni_ckpt_st_other;

typedef struct lvni_ckpt_st_meta {
    const char *key, *value;
} lvni_ckpt_st_meta;

/* An entry for the writer with type and shape of `like`; borrows name and data. */
lvni_ckpt_st_tensor lvni_ckpt_st_entry(const char *name, const lvn_tensor *like, const void *data);

/* Write all tensors (in any order) under a temporary name, sync, rename to path. Tensors of 8-byte
 * elements come first, then 4, then 2, then 1, each in name order, and the data starts at a
 * multiple of 64 bytes: so every tensor is aligned without gaps, which the format forbids.
 * LVN_ERR_INVALID: a name twice, empty or not UTF-8, a bad shape, a reserved key; LVN_ERR_IO,
 * LVN_ERR_MEMORY. On failure an older file at path stays as it was. */
lvn_status lvni_ckpt_st_save(const char *path, const lvni_ckpt_st_tensor *tensors,
                             int64_t n_tensors, const lvni_ckpt_st_meta *meta, int64_t n_meta);

typedef struct lvni_ckpt_st_file lvni_ckpt_st_file;

enum {
    LVNI_ST_VERIFY = 1, /* compare checksums; what every loader wants */
    LVNI_ST_HEADER_ONLY =
        2 /* do not read the tensors (with VERIFY: only the header's checksum is compared) */
};

/* Read a file into memory and check its form: sizes, ranges, overlaps, gaps. LVN_ERR_CORRUPT names
 * the tensor; LVN_ERR_NOT_FOUND, LVN_ERR_IO, LVN_ERR_MEMORY. Tensors of a data type or a number of
 * axes that levin does not have are only listed. */
lvn_status lvni_ckpt_st_open(const char *path, unsigned flags, lvni_ckpt_st_file **out);
void lvni_ckpt_st_close(lvni_ckpt_st_file *file); /* NULL is fine; tensors and texts go with it */

int64_t lvni_ckpt_st_count(const lvni_ckpt_st_file *file);
/* Tensors in the byte order of their names. Data of levin's files is aligned to the element; that
 * of others may not be. */
const lvni_ckpt_st_tensor *lvni_ckpt_st_at(const lvni_ckpt_st_file *file, int64_t i);
/* Tensors that were not read, in the byte order of their names. */
int64_t lvni_ckpt_st_count_others(const lvni_ckpt_st_file *file);
const lvni_ckpt_st_other *lvni_ckpt_st_other_at(const lvni_ckpt_st_file *file, int64_t i);
const lvni_ckpt_st_other *lvni_ckpt_st_find_other(const lvni_ckpt_st_file *file, const char *name);
int64_t lvni_ckpt_st_other_size(const lvni_ckpt_st_other *other, int64_t axis);
/* NULL when there is none */
const lvni_ckpt_st_tensor *lvni_ckpt_st_find(const lvni_ckpt_st_file *file, const char *name);
/* NULL when there is none */
const char *lvni_ckpt_st_meta_get(const lvni_ckpt_st_file *file, const char *key);
/* Metadata in the byte order of the keys; NULL after the last. */
const lvni_ckpt_st_meta *lvni_ckpt_st_meta_at(const lvni_ckpt_st_file *file, int64_t i);
/* Element i of a tensor, of any type. */
double lvni_ckpt_st_value(const lvni_ckpt_st_tensor *t, size_t i);
/* The elements as f32, into room for all of them. LVN_ERR_DTYPE: they are not floating-point
 * numbers. */
lvn_status lvni_ckpt_st_read_f32(const lvni_ckpt_st_tensor *t, float *out);

/* For tools that look at damaged files (opened without VERIFY): false when a stored checksum does
 * not match. */
bool lvni_ckpt_st_header_ok(const lvni_ckpt_st_file *file);
bool lvni_ckpt_st_tensor_ok(const lvni_ckpt_st_file *file, int64_t i);

#endif
