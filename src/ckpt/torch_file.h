/* Files of torch.save (.pt, .pth, Lightning's .ckpt): a zip archive with a pickle that describes
 * the object and one entry per storage. Only tensors are read. The pickle is parsed, and nothing in
 * it is ever executed: classes and calls that are not those of tensors stand for nothing. Called by
 * whatever loads weights and by levin ckpt convert. */
#ifndef LEVIN_CKPT_TORCH_FILE_H
#define LEVIN_CKPT_TORCH_FILE_H

#include "ckpt/safetensors.h"

/* The tensors of the state_dict at `path`. key NULL: the dict of tensors under "state_dict",
 * "model_state_dict", "model" or "module", else the dict that was saved. Else the one under this
 * key ("state_dict_ema"), under keys of nested dicts ("ema.model"), or what of a dict's names
 * begins with what is left of it and a dot: *inner ("model" of "net.model"; NULL: nothing is left;
 * all tensors of that dict are read). Points into key.
 * Strided tensors are made contiguous; tensors that share a storage share memory. No metadata.
 * Tensors that are sparse, quantised or of types that levin does not have are only listed.
 * Memory is at most 128 times the file and 1 MiB, and the tensors at most 8 times the file.
 * LVNI_ST_VERIFY compares the CRC-32 of what is read, where one is stored. LVN_ERR_CORRUPT: not of
 * this form; LVN_ERR_UNSUPPORTED: a whole module, the format before PyTorch 1.6, a compressed
 * archive, no such key; LVN_ERR_NOT_FOUND, LVN_ERR_IO, LVN_ERR_MEMORY. */
lvn_status lvni_ckpt_torch_open(const char *path, unsigned flags, const char *key,
                                const char **inner, lvni_ckpt_st_file **out);

/* lvni_ckpt_torch_open for a file that begins as those of torch.save do, whatever its name; for one
 * whose name ends in .index.json, the files that it lists ("weight_map", as Hugging Face writes
 * them for large models), which lie beside it; else lvni_ckpt_st_open, with *inner = key. */
lvn_status lvni_ckpt_tensors_open(const char *path, unsigned flags, const char *key,
                                  const char **inner, lvni_ckpt_st_file **out);

/* Does the file begin as those of torch.save do? false, too, where it cannot be read. */
bool lvni_ckpt_is_torch(const char *path);

/* The index of a model in several files, by its name. */
bool lvni_ckpt_is_index(const char *path);

/* A file that torch.load(path, weights_only=True) opens as an OrderedDict, as lvni_ckpt_st_save
 * writes: under a temporary name first. Each
 * tensor has a storage of its own. LVN_ERR_UNSUPPORTED: over 4 GiB. */
lvn_status lvni_ckpt_torch_save(const char *path, const lvni_ckpt_st_tensor *tensors,
                                int64_t n_tensors);

/* A list of texts, in UTF-8. */
typedef struct lvni_ckpt_torch_texts {
    const char *name;
    const char *const *text;
    int64_t n;
} lvni_ckpt_torch_texts;
/* The same as a plain dict that begins with this list. texts NULL: an OrderedDict of tensors. */
lvn_status lvni_ckpt_torch_save_texts(const char *path, const lvni_ckpt_torch_texts *texts,
                                      const lvni_ckpt_st_tensor *tensors, int64_t n_tensors);

#endif
