/* The file behind weights=. Called by weights.c and preprocess.c. */
#ifndef LEVIN_RECIPES_WEIGHTS_FILE_H
#define LEVIN_RECIPES_WEIGHTS_FILE_H

#include "ckpt/safetensors.h"

/* path: a file, a run directory (its last checkpoint), or a folder with model.safetensors, as
 * Hugging Face keeps them. *name (lvni_core_free) is the caller's. */
lvn_status lvni_recipes_weights_find(const char *path, char **name);
/* The same, opened: a config.json beside model.safetensors must not name another network than
 * `model`. *file (lvni_ckpt_st_close) is the caller's. LVN_ERR_UNSUPPORTED: a file of torch.save;
 * LVN_ERR_MISMATCH: of another network. */
lvn_status lvni_recipes_weights_open(const char *path, const char *model, char **name,
                                     lvni_ckpt_st_file **file);

#endif
