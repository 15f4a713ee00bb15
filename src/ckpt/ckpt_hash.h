/* `levin ckpt hash FILE`: two numbers that say whether two runs came to the same bits.
 *
 * weights: XXH3-128 over the tensors called model/... (parameters and buffers), in the byte order
 * of their names: name without "model/", dtype, shape, bytes. In a file without any model/... (an
 * exported model)
 * every tensor is a weight. state:   the same over all tensors of the file with their full names,
 *   followed by
 * the metadata levin.step, levin.epochs_done, levin.samples_seen, levin.scaler, levin.schedule
 * where present. Never the config, the layout, the run's name or a time. The numbers are of the
 * tensors as they are in the file, damaged ones included; `damaged` says which these are. */
#ifndef LEVIN_CKPT_CKPT_HASH_H
#define LEVIN_CKPT_CKPT_HASH_H

#include "ckpt/safetensors.h"

typedef struct lvni_ckpt_hashes {
    char weights[33], state[33]; /* 32 hex digits */
    int64_t n_damaged;
    char **damaged; /* names of tensors whose checksum does not match; "__metadata__" stands for the
                       header. Owned */
} lvni_ckpt_hashes;

/* LVN_OK also when checksums do not match (look at n_damaged: the command prints them and leaves
 * with 1); LVN_ERR_CORRUPT when the form of the file is broken, otherwise as lvni_ckpt_st_open().
 * Free with lvni_ckpt_hashes_free(). */
lvn_status lvni_ckpt_hash_file(const char *path, lvni_ckpt_hashes *out);
void lvni_ckpt_hashes_free(lvni_ckpt_hashes *hashes);

#endif
