/* Recipes: what can be trained, one row each. A row names its keys, opens its data and network,
 * writes and reads its part of the model card, and uses a trained model; everything around that
 * (ranks, run directory, trainer, checkpoints, exported models, plan) is the same for all of them.
 * recipes/registry.h lists them; recipes/user makes a row of a user's shared object,
 * api/program.c of a user's job. */
#ifndef LEVIN_RUN_RECIPE_H
#define LEVIN_RUN_RECIPE_H

#include "core/config.h"
#include "run/exported.h"
#include "run/fit.h"
#include "run/options.h"

#include <levin/trainer.h>

typedef struct lvni_run_recipe {
    const char *name; /* "classify" */
    /* as it is typed in place of the name ("./mine.so"); NULL: the name */
    const char *argument;
    /* "data=DIR [key=value ...]", and what training it does; for the help */
    const char *use, *help;
    /* predict, eval and export are of it where they name neither a recipe nor a model of another;
     * their help has its keys */
    bool is_default;
    lvni_run_defaults defaults; /* of keys of every training */
    /* For errors: the keys that the model's shape follows from ("model and model.*"), and the one
     * that makes samples smaller ("image_size"); NULL: none in particular. */
    const char *model_keys, *size_key;
    /* its keys in `levin train NAME` */
    lvni_core_option_list keys;
    /* Is that a configuration file of the program whose files it takes as they are? For the error
     * of another recipe. NULL: it takes none. */
    bool (*takes_file)(const char *path);
    /* Keys that such files alone have, whose batch_size counts per device. The first ones; NULL: no
     * more. Where takes_file is. */
    const char *(*sign)(int i);
    /* Errors that every rank would find, before ranks are started; NULL: none. */
    lvn_status (*check)(const lvni_core_config *config);
    /* Data, loss and network of a training: `request` has config and ranks (NULL: `levin plan`,
     * which trains nothing) and gets the rest. *state is the recipe's and lives until close, which
     * is called in any case. */
    lvn_status (*open)(const struct lvni_run_recipe *recipe, lvni_run_fit_request *request,
                       void **state);
    void (*close)(void *state); /* NULL is fine */
    const void *user;           /* of a user's job or recipe; NULL of levin's own */

    /* ---- the model card in exported models and checkpoints (exported.h); without a key there is
     * none, and exported models hold the tensors alone ---- */
    const char *card_key; /* in the metadata: LVNI_CARD, if it has none of its own */
    const char *noun;     /* "classifier": what such a file holds */
    /* Appends the recipe's part, each member with a comma in front; own: what open left in the
     * request, or card_read in the exported model. */
    void (*card_write)(const lvni_run_card *card, const void *own, lvni_core_str *out);
    /* Reads it from `json`: e->own, and the network to build (e->cls, e->arguments). */
    lvn_status (*card_read)(lvni_run_exported *e, const json_t *json);
    void (*card_free)(void *own);
    /* " with 6 classes", for the report of an export; NULL: nothing */
    void (*card_summary)(const void *own, lvni_core_str *out);
    /* Errors of a resume: the card of the checkpoint at `path`, and that of now. NULL: none. */
    lvn_status (*card_compare)(const char *path, const json_t *saved, const json_t *now);

    /* ---- a trained model: commands of their own, with arguments as on the command line;
     * inference.h is the way that they share ---- */
    lvni_core_option_list predict_keys;
    lvn_status (*predict)(const struct lvni_run_recipe *recipe, int n, const char *const *args);
    lvni_core_option_list eval_keys;
    lvn_status (*eval)(const struct lvni_run_recipe *recipe, int n, const char *const *args);
    lvni_core_option_list export_keys;
} lvni_run_recipe;

/* One of levin's own: neither a user's job nor a recipe in a shared object. */
bool lvni_run_is_own(const lvni_run_recipe *recipe);

/* The keys of a user's job. */
extern const lvni_core_option_table *const lvni_run_job_keys[];
/* Module and datasets of a user's job; `of` names it in errors. */
lvn_status lvni_run_open_job(const lvn_job *job, const char *of, lvni_run_fit_request *request);
/* Destroys the job's datasets. */
void lvni_run_close_job(const lvn_job *job);

/* What `levin train NAME` does; args: key=value as on the command line. */
lvn_status lvni_run_train(const lvni_run_recipe *recipe, int n, const char *const *args);
lvn_status lvni_run_plan(const lvni_run_recipe *recipe, int n, const char *const *args);
/* `levin export RECIPE weights=FILE`, with keys of a training. */
lvn_status lvni_run_export_start(const lvni_run_recipe *recipe, int n, const char *const *args);
/* export.c: `levin export` */
lvn_status lvni_run_export(const lvni_run_recipe *recipe, int n, const char *const *args);

/* As it is typed: its name, or the file. */
const char *lvni_run_typed(const lvni_run_recipe *recipe);
enum { LVNI_RUN_HELP = 512 };
/* What lists the keys of `command` ("levin help train.classify"); returns text. */
const char *lvni_run_help_of(const lvni_run_recipe *recipe, const char *command,
                             char text[LVNI_RUN_HELP]);
/* The same for a program of a user's. command: the words that start it again ("train", NAME), as in
 * ranks.h; help: where its keys are listed. */
lvn_status lvni_run_train_with(const lvni_run_recipe *recipe, const char *const command[2],
                               const char *help, int n, const char *const *args);

/* What drives a training in place of lvni_trainer_fit, and writes nothing (fit.h): a finder. */
typedef struct lvni_run_driver {
    lvn_status (*weigh)(void *host, const lvni_run_ranks *ranks, const lvni_run_rank *rank,
                        const lvni_nn_model *model, const lvni_plan *plan,
                        const struct lvni_trainer_memory_need *need);
    lvn_status (*drive)(void *host, const lvni_run_ranks *ranks, const lvni_run_rank *rank,
                        lvni_trainer *trainer);
    void *host;
} lvni_run_driver;
/* On the ranks of `config`, which command->command and its arguments start again. */
lvn_status lvni_run_drive(const lvni_run_recipe *recipe, lvni_core_config *config,
                          const lvni_run_ranks_command *command, const lvni_run_driver *driver);

#endif
