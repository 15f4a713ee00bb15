/* Trained models in files: exported models, which are safetensors with the names and layouts others
 * use (convolutions OIHW), and checkpoints. The metadata name the recipe and hold its model card: a
 * general part, read and written here, and the recipe's own (recipe.h). Written beside every
 * checkpoint (export.c); read by predict, eval and export (exported.c). */
#ifndef LEVIN_RUN_EXPORTED_H
#define LEVIN_RUN_EXPORTED_H

#include "ckpt/safetensors.h"
#include "core/config.h"
#include "core/pins.h"
#include "core/str.h"
#include "nn/model.h"
#include "run/card.h"
#include "run/fit.h"

#include <jansson.h>

struct lvni_run_recipe;

/* Metadata: the name of the recipe; files without it are of classify. */
#define LVNI_CARD_RECIPE "recipe"
/* The model card, JSON. That of classifiers has a name of its own, and early files with it do not
 * name their recipe. */
#define LVNI_CARD "card"
#define LVNI_CARD_CLASSIFIER "classifier"
#define LVNI_CARD_CLASSIFIER_RECIPE "classify"
enum { LVNI_CARD_VERSION = 1 }; /* of the card; of one without: 1 */

/* The general part of a model card. */
typedef struct lvni_run_card {
    const char *model;   /* name of the network */
    lvni_core_pins pins; /* of the training: forward passes read some, too */
    double ema_decay;    /* of the average that these weights are; 0: they are none */
    const char *data;    /* identity of the training's data; NULL: not known */
    int64_t seed;
} lvni_run_card;

/* What the recipe's part of the card is written of: own_card; of the general card the job. */
const void *lvni_run_own_card(const lvni_run_job *job);
/* own: the recipe's part. */
void lvni_run_card_print(const struct lvni_run_recipe *recipe, const lvni_run_card *card,
                         const void *own, lvni_core_str *out);

/* What a file of a model is written of; all borrowed. */
typedef struct lvni_run_export_content {
    const lvni_nn_model *model;
    const float *values; /* of the model, laid out as its `weights`; its tensors are not used */
    const char *part;    /* the module that is written, with names relative to it; NULL: all */
    const struct lvni_run_recipe *recipe; /* NULL: the file holds the tensors alone */
    const lvni_run_card *card;
    const void *own; /* the recipe's part of the card */
    int64_t step;    /* of the training, kept as LVNI_CKPT_STEP; -1: not kept */
} lvni_run_export_content;
/* Metadata: modules with the values of their start, which nothing trained, "fc, heads.head". */
#define LVNI_EXPORT_UNTRAINED "untrained"
/* Safetensors, or, where the path ends in .pt, the same tensors for torch.load, which have no
 * metadata. */
lvn_status lvni_run_export_model(const lvni_run_export_content *content, const char *path);

typedef struct lvni_run_exported {
    const struct lvni_run_recipe *recipe;
    lvni_run_card card;
    void *own; /* the recipe's part of the card, of its format's read */
    /* Network and data, of the recipe's open. */
    lvni_run_job job;
    bool opened; /* the recipe's close has to be called */
    lvni_nn_model *model;
    char *file;
    int64_t step; /* of its training; -1: not known */
    bool use_ema;
    double decay;                /* of the average that an exported file holds; 0: none */
    char *model_name, *data;     /* owned; card points at them */
    lvni_core_pin_entries *pins; /* the same */
} lvni_run_exported;

/* Of an exported file, a checkpoint, or a run directory
 * (exported_models/exported_<which>.safetensors; which NULL: best, else last). use_ema false: the
 * weights themselves where the file has averages; they come from the run directory's checkpoint of
 * the same name, or from the checkpoint itself, whose averages are taken otherwise. */
typedef struct lvni_run_exported_place {
    const char *path, *which;
    bool use_ema;
} lvni_run_exported_place;

/* LVN_ERR_MISMATCH: it is of another recipe. config: of the command; NULL: none, which no data are
 * opened with. */
lvn_status lvni_run_exported_open(const struct lvni_run_recipe *recipe,
                                  const lvni_run_exported_place *place, lvni_run_purpose purpose,
                                  lvni_core_config *config, lvni_run_exported **out);
/* The model once more, for another rank of the process, on that rank's device. */
lvn_status lvni_run_exported_again(const lvni_run_exported *exported, lvni_nn_model **out);
/* Is there a file that lvni_run_exported_open would read? Nothing is opened. */
lvn_status lvni_run_exported_check(const char *path, const char *which);
/* Of a training of a user's program (lvn_main, lvn_trainer): levin does not have its module. */
bool lvni_run_is_of_program(const lvni_ckpt_st_file *file);
/* The recipe that the file names, in a text of the caller's (lvni_core_free); NULL: it names none.
 * LVN_ERR_MISMATCH: it is of a user's program, with what can be done with it. */
lvn_status lvni_run_exported_recipe(const char *path, const char *which, char **name);
void lvni_run_exported_close(lvni_run_exported *exported); /* NULL is fine */

#endif
