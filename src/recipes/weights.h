/* Weights from files: levin's own (exported models, checkpoints, run directories) and those of
 * PyTorch (safetensors and files of torch.save with the names of a state_dict, torchvision's or
 * timm's). Called by weights= of the training commands and by exported.c. */
#ifndef LEVIN_RECIPES_WEIGHTS_H
#define LEVIN_RECIPES_WEIGHTS_H

#include "ckpt/safetensors.h"
#include "core/str.h"
#include "nn/model.h"

typedef struct lvni_recipes_weights_report {
    char *file;         /* that was read */
    const char *prefix; /* of the names in the file, "" for none; static */
    const char *naming; /* "timm": whose names these are; "" for those of the model; static */
    int taken, all;     /* tensors of the model: from the file, and in all */
    /* name of the layer that keeps its fresh values; empty without reset_head */
    lvni_core_str head;
    /* tensors of the file that the model has no place for: "a (3, 4), b (2), and 7 more"; empty:
     * none */
    lvni_core_str unused;
} lvni_recipes_weights_report;

/* Set a model's parameters and buffers by name from the file at `path` (of a run directory: its
 * last checkpoint; of a folder with model.safetensors: this one). Numbers of f64, f16 and bf16 are
 * converted. Every name may begin with module., model., net., backbone. or _orig_mod. in the file,
 * or with two of them as model._orig_mod. reset_head: the model's last layer is left as it is,
 * whatever the file has for it. LVN_ERR_MISMATCH lists names and shapes that do not fit, or what
 * only another network has. report may be NULL; its texts are freed with
 * lvni_recipes_weights_report_free, also on failure. */
lvn_status lvni_recipes_model_load(lvni_nn_model *model, const char *path, bool reset_head,
                                   lvni_recipes_weights_report *report);
/* The same from an open file; path is for messages. average: of a checkpoint its averaged weights;
 * other files have one set. */
lvn_status lvni_recipes_model_load_shown(lvni_nn_model *model, const lvni_ckpt_st_file *file,
                                         const char *path, bool average);
/* How many outputs the model's last layer has in the file: rows of its weight. LVN_ERR_MISMATCH:
 * the file has no such layer. */
lvn_status lvni_recipes_weights_classes(const lvni_nn_model *model, const char *path, int *n);
/* One line that confirms it, and a warning about what was not used. path: as it was given. */
void lvni_recipes_weights_report_log(const lvni_recipes_weights_report *report, const char *path);
void lvni_recipes_weights_report_free(lvni_recipes_weights_report *report);

/* path: a file, a run directory (its last checkpoint), or a folder with model.safetensors, as
 * Hugging Face keeps them. *name (lvni_core_free) is the caller's. */
lvn_status lvni_recipes_weights_find(const char *path, char **name);

/* ---- for weights.c ---- */

/* The file of lvni_recipes_weights_find, opened: a config.json beside model.safetensors must not
 * name another network than `model`. *file (lvni_ckpt_st_close) is the caller's.
 * As lvni_ckpt_tensors_open; LVN_ERR_MISMATCH: of another network. */
lvn_status lvni_recipes_weights_open(const char *path, const char *model, char **name,
                                     lvni_ckpt_st_file **file);

enum {
    LVNI_NAMING_OWN, /* torchvision's: those of the model */
    LVNI_NAMING_TIMM,
    LVNI_NAMING_OLD, /* torchvision's first files of vision transformers */
    LVNI_NAMING_RCGAN,
    LVNI_NAMINGS,
    LVNI_WEIGHT_NAME = 320
};

const char *lvni_recipes_naming_label(int naming); /* "timm"; "" for OWN */
/* The name of one of the model's tensors, or of what its name begins with up to a dot. */
void lvni_recipes_naming_translate(int naming, const char *name, char out[LVNI_WEIGHT_NAME]);
/* The same of rcGAN's: gan_names.c. */
void lvni_recipes_gan_name(const char *name, char out[LVNI_WEIGHT_NAME]);
/* Has no file with this naming the buffer? Numbers of a recipe keep what they begin with. */
bool lvni_recipes_naming_lacks(int naming, const char *buffer);
/* "squeeze and excitation" for a name that only networks with it have; NULL: none. */
const char *lvni_recipes_naming_foreign(const char *name);

#endif
