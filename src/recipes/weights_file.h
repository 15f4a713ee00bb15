/* The file behind weights=. Called by weights.c. */
#ifndef LEVIN_RECIPES_WEIGHTS_FILE_H
#define LEVIN_RECIPES_WEIGHTS_FILE_H

#include "ckpt/safetensors.h"

/* path: a file, a run directory (its last checkpoint), or a folder with model.safetensors, as
 * Hugging Face keeps them: there a config.json beside it must not name another network than
 * `model`. *name (lvni_free) and *file (lvni_st_close) are the caller's. LVN_ERR_UNSUPPORTED: a
 * file of torch.save; LVN_ERR_MISMATCH: of another network. */
lvn_status lvni_weights_open(const char *path, const char *model, char **name, lvni_st_file **file);

#endif
