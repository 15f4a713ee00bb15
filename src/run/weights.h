/* Weights from files: levin's own (exported models, checkpoints, run directories) and those of
 * PyTorch (safetensors and files of torch.save with the names of a state_dict, torchvision's or
 * timm's). Called by weights= of the training commands and by exported.c. */
#ifndef LEVIN_RUN_WEIGHTS_H
#define LEVIN_RUN_WEIGHTS_H

#include "ckpt/safetensors.h"
#include "core/config.h"
#include "core/sha256.h"
#include "core/str.h"
#include "nn/model.h"

typedef struct lvni_run_weights_report {
    char *file;           /* that was read */
    lvni_core_str prefix; /* of the names in the file; empty: none */
    const char *naming;   /* "timm": whose names these are; "" for those of the model; static */
    int taken, all;       /* tensors of the model: from the file, and in all */
    /* name of the layer that keeps its fresh values; empty: none does */
    lvni_core_str head;
    bool of_part;   /* the part of the source was loaded alone */
    bool untrained; /* since the metadata of the file list it as untrained; else by reset_head */
    /* tensors of the file that the model has no place for: "a (3, 4), b (2), and 7 more"; empty:
     * none */
    lvni_core_str unused;
} lvni_run_weights_report;

typedef struct lvni_run_weights_source {
    const char *path;
    /* The module that is loaded, with names relative to it, as a backbone that a model has behind
     * this path; the rest stays as it is. NULL: the whole model. Of its parts that are not trained
     * the file may have others, or none. */
    const char *part;
    bool or_whole;   /* of a checkpoint that has the part within such a model all is loaded */
    const char *key; /* where in it: a key of nested dicts or the front of names; NULL: not given */
    bool reset_head; /* the model's last layer is left as it is, whatever the file has for it */
    /* A run begins from it, whose constants (lvni_nn_builder_constant) are its own: those of the
     * file are not taken. Else they are, where shapes fit. */
    bool starts;
} lvni_run_weights_source;

/* The network of a model, or of its module `part` where that is not NULL: "resnet18". */
const char *lvni_run_weights_network(const lvni_nn_model *model, const char *part);
/* Set a model's parameters and buffers by name from a file (of a run directory: its last
 * checkpoint, or where the network is a part of that one the exported model; of a folder:
 * model.safetensors and what lvni_run_weights_find knows). Numbers of
 * f64, f16 and bf16 are converted. The names may stand behind a prefix, of wrappers or of a larger
 * model. LVN_ERR_MISMATCH lists names and shapes that do not fit, what only another network has, or
 * prefixes that are equally good. report may be NULL; its texts are freed with
 * lvni_run_weights_report_free, also on failure. */
lvn_status lvni_run_model_load(lvni_nn_model *model, const lvni_run_weights_source *from,
                               lvni_run_weights_report *report);
/* The same from an open file; path is for messages. average: of a checkpoint its averaged weights;
 * other files have one set. */
lvn_status lvni_run_model_load_shown(lvni_nn_model *model, const lvni_ckpt_st_file *file,
                                     const char *part, const char *path, bool average);
/* How many outputs the model's last layer has in the file: rows of its weight. LVN_ERR_MISMATCH:
 * the file has no such layer, or one that nothing trained. */
lvn_status lvni_run_weights_classes(const lvni_nn_model *model, const lvni_run_weights_source *from,
                                    int *n);
/* One line that confirms it, and a warning about what was not used. path: as it was given. */
void lvni_run_weights_report_log(const lvni_run_weights_report *report, const char *path);
void lvni_run_weights_report_free(lvni_run_weights_report *report);

/* path: a file, a run directory (its last checkpoint), or a folder with model.safetensors or
 * pytorch_model.bin, or with the index of several such files (.index.json), as Hugging Face keeps
 * them. *name (lvni_core_free) is the caller's. */
lvn_status lvni_run_weights_find(const char *path, char **name);

/* ---- where pretrained weights come from: weights_sources.c ---- */

/* https://... and others; path is what weights= was given. */
bool lvni_run_source_is_address(const char *path);
/* LVN_ERR_USAGE, with the commands to fetch it, and where the model's pretrained weights are. */
lvn_status lvni_run_source_refuse(const char *path, const char *model);
/* "; pretrained weights of resnet18: curl -LO ..., then KEY=...": of the file's name, else of the
 * model; nothing where neither is known. */
void lvni_run_source_print(const char *path, const char *model, const char *key,
                           lvni_core_str *out);
/* Where published weights are: of "resnet50", or of a name that Lightning Pose has for it and other
 * weights, "resnet50_animal_ap10k". file NULL: unknown. */
typedef struct lvni_run_source_place {
    const char *folder, *file;
} lvni_run_source_place;
lvni_run_source_place lvni_run_source_of(const char *model);
/* That file in the cache of torch, $TORCH_HOME/hub/checkpoints, of another program; *path is the
 * caller's, NULL: it is not there. */
lvn_status lvni_run_source_cached(const char *model, char **path);
/* What is given with model=: its file where it names published weights (LVN_ERR_USAGE, with the
 * commands to fetch it), no model.drop_path where there are no layers to pass by. */
lvn_status lvni_run_source_check_model(const lvni_core_config *config);
lvn_status lvni_run_file_sha256(const char *path, char hex[LVNI_SHA256_HEX]);
/* A file with the name of a published one has the digits of its SHA-256. LVN_ERR_CORRUPT: not. */
lvn_status lvni_run_source_check(const char *path);

/* ---- for weights.c ---- */

/* The file of lvni_run_weights_find, opened: a config.json beside it must not
 * name another network than `model`. *inner: of the key, what names begin with (torch_file.h).
 * *file (lvni_ckpt_st_close) is the caller's. As lvni_ckpt_tensors_open; LVN_ERR_MISMATCH: of
 * another network. */
lvn_status lvni_run_weights_open(const lvni_run_weights_source *from, const char *model,
                                 char **name, const char **inner, lvni_ckpt_st_file **file);

enum {
    LVNI_NAMING_OWN,         /* those of the model */
    LVNI_NAMING_TIMM,        /* of a model with torchvision's names */
    LVNI_NAMING_OLD,         /* torchvision's first files of vision transformers */
    LVNI_NAMING_TORCHVISION, /* of a model with timm's names */
    LVNI_NAMING_LIGHTNING_POSE,
    LVNI_NAMING_HUGGING_FACE,   /* of a vision transformer with timm's names */
    LVNI_NAMING_VISION_ENCODER, /* Lightning Pose's of a model with such a backbone */
    LVNI_NAMING_RCGAN,
    LVNI_NAMINGS,
    LVNI_WEIGHT_NAME = 320
};

const char *lvni_run_naming_label(int naming); /* "timm"; "" for OWN */
/* The name of one of the model's tensors, or of what its name begins with up to a dot. */
void lvni_run_naming_translate(int naming, const char *name, char out[LVNI_WEIGHT_NAME]);
/* In how many tensors, with rows one behind the other, a file has the model's tensor `name`; out:
 * what to ask for to find part i < the result, "blocks.0.attn.k.weight". 1: as it is. */
int lvni_run_naming_part(int naming, const char *name, int i, char out[LVNI_WEIGHT_NAME]);
/* The same of rcGAN's: weights_rcgan.c. */
void lvni_run_rcgan_name(const char *name, char out[LVNI_WEIGHT_NAME]);
/* Has no file with this naming the buffer? Numbers of a recipe keep what they begin with. */
bool lvni_run_naming_lacks(int naming, const char *buffer);
/* "squeeze and excitation" for a name that only networks with it have; NULL: none. */
const char *lvni_run_naming_foreign(const char *name);

/* One tensor of a file, read or other, without what wrappers put into its name. */
typedef struct lvni_run_weight_name {
    const char *plain;
    int64_t tensor; /* in the file; behind the last: one of its others */
} lvni_run_weight_name;

typedef struct lvni_run_weight_names {
    const lvni_ckpt_st_file *file;
    lvni_run_weight_name *entries; /* by name */
    int64_t n;
    char *text;
    const char *under; /* as given to make; borrowed */
} lvni_run_weight_names;

/* under: only names that begin with it and a dot, and without that; NULL: all. Free in every case.
 * LVN_ERR_MISMATCH: none begins so. */
lvn_status lvni_run_weight_names_make(const lvni_ckpt_st_file *file, const char *path,
                                      const char *under, lvni_run_weight_names *out);
void lvni_run_weight_names_free(lvni_run_weight_names *names);
/* What is looked for: a network's parameters. */
typedef struct lvni_run_weights_wanted {
    const char *network;     /* "resnet18"; for messages */
    const char *const *name; /* of its parameters */
    int n;
} lvni_run_weights_wanted;
/* The naming and the prefix under which most of them are. LVN_ERR_MISMATCH: two prefixes are
 * equally good, and what is there differs. */
lvn_status lvni_run_weight_names_choose(const lvni_run_weight_names *names,
                                        const lvni_run_weights_wanted *wanted, const char *path,
                                        int *naming, char prefix[LVNI_WEIGHT_NAME]);
/* One of the model's tensors in the file, or one that was not read; NULL: there is none. */
const lvni_ckpt_st_tensor *lvni_run_weight_names_find(const lvni_run_weight_names *names,
                                                      int naming, const char *prefix,
                                                      const char *name);
const lvni_ckpt_st_other *lvni_run_weight_names_find_other(const lvni_run_weight_names *names,
                                                           int naming, const char *prefix,
                                                           const char *name);
/* Which of the networks with published weights all of these tensors make up ("resnet18"), with or
 * without a last layer; NULL: none. */
const char *lvni_run_weight_names_network(const lvni_run_weight_names *names);

#endif
