/* The inside of an open safetensors file, shared by safetensors_read.c and
 * safetensors_entries.c. */
#ifndef LEVIN_CKPT_SAFETENSORS_FILE_H
#define LEVIN_CKPT_SAFETENSORS_FILE_H

#include "ckpt/safetensors_impl.h"

#include <jansson.h>

struct lvni_ckpt_st_file {
    char *path;
    json_t *root; /* owns all names and texts */
    int64_t n_tensors, n_meta;
    lvni_ckpt_st_tensor *tensors; /* by name */
    lvni_ckpt_st_meta *meta;      /* by key */
    json_t *checksums;            /* NULL: none stored */
    bool header_ok;
    char *data;
};

/* From f->root, an object: f->meta, sorted by key. LVN_ERR_CORRUPT, LVN_ERR_MEMORY. */
lvn_status lvni_ckpt_st_read_meta(lvni_ckpt_st_file *f);
/* From f->root: f->tensors, sorted by name, with their places in f->data where there is one; its
 * data_bytes bytes are read later, and each belongs to exactly one tensor. LVN_ERR_CORRUPT,
 * LVN_ERR_UNSUPPORTED, LVN_ERR_MEMORY. */
lvn_status lvni_ckpt_st_read_tensors(lvni_ckpt_st_file *f, size_t data_bytes);

#endif
