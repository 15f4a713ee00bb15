/* What writer and reader of safetensors files share. For this folder only. */
#ifndef LEVIN_CKPT_SAFETENSORS_IMPL_H
#define LEVIN_CKPT_SAFETENSORS_IMPL_H

#include "ckpt/safetensors.h"

enum { LVNI_ST_HEX = 17 }; /* 16 digits and the zero */
#define LVNI_ST_MAX_HEADER                                                                         \
    ((size_t)16 << 20) /* bytes; a thousand times what a large network needs */

extern const char *const lvni_ckpt_st_dtype_names[LVN_DTYPE_COUNT]; /* "F32" ... as in the file */

/* XXH3-64 of some bytes as 16 lower-case hex digits. */
void lvni_ckpt_st_checksum(const void *data, size_t bytes, char hex[LVNI_ST_HEX]);
/* The same over metadata (without the header's own checksum) and the description of the tensors.
 * Both sorted by name. */
void lvni_ckpt_st_header_checksum(const lvni_ckpt_st_tensor *tensors, int64_t n_tensors,
                                  const lvni_ckpt_st_meta *meta, int64_t n_meta,
                                  char hex[LVNI_ST_HEX]);

void lvni_ckpt_st_sort_tensors(lvni_ckpt_st_tensor *tensors, int64_t n); /* by bytes of the name */
void lvni_ckpt_st_sort_others(lvni_ckpt_st_other *others, int64_t n);
void lvni_ckpt_st_sort_meta(lvni_ckpt_st_meta *meta, int64_t n); /* by bytes of the key */

/* Bytes of a tensor of this shape; false when negative or too large for size_t. */
bool lvni_ckpt_st_tensor_bytes(size_t element, int ndim, const int64_t *shape, size_t *bytes);

/* What no writer accepts; fills t->bytes. LVN_ERR_INVALID: no name or one that is not UTF-8, a bad
 * type or shape, no data. */
lvn_status lvni_ckpt_st_check_tensor(const char *path, lvni_ckpt_st_tensor *t);

/* What an open file holds; parts: open files whose names and data these are. */
typedef struct lvni_ckpt_st_content {
    lvni_ckpt_st_tensor *tensors;
    lvni_ckpt_st_other *others;
    int64_t n_tensors, n_others;
    char *names, *data;
    lvni_ckpt_st_file **parts;
    int64_t n_parts;
} lvni_ckpt_st_content;

void lvni_ckpt_st_content_free(lvni_ckpt_st_content *content);
/* An open file of what a reader of another format read: takes all of it, also on failure.
 * LVN_ERR_CORRUPT: a name twice. */
lvn_status lvni_ckpt_st_adopt(const char *path, lvni_ckpt_st_content *content,
                              lvni_ckpt_st_file **out);

/* sharded_read.c: all tensors of the files that an index lists, in memory together.
 * LVN_ERR_CORRUPT: not such an index, or a tensor that it lists is not in its file. */
lvn_status lvni_ckpt_sharded_open(const char *path, unsigned flags, lvni_ckpt_st_file **out);

#endif
