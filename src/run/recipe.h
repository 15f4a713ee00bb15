/* Recipes: what can be trained, one row each. A row names its keys, opens its data and network, has
 * its part of the model card, and uses a trained model; everything around that (ranks, run
 * directory, trainer, checkpoints, exported models, plan) is the same for all of them.
 * recipes/registry.h lists them; recipes/user makes a row of a user's shared object,
 * api/program.c of a user's job. */
#ifndef LEVIN_RUN_RECIPE_H
#define LEVIN_RUN_RECIPE_H

#include "core/config.h"
#include "run/exported.h"
#include "run/fit.h"
#include "run/options.h"
#include "run/preview.h"

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
    bool needs_keys;            /* it has no training without any; then its help is printed */
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
    /* cls and arguments of a trained model, before its weights are read and its data opened (by
     * open, with the same state). NULL: the card has them, or open does. */
    lvn_status (*network)(lvni_run_job *job);
    /* Fills the job for its purpose: has purpose, config and ranks (NULL: `levin plan`, which
     * trains nothing), of a trained model also what its card has been read to. job->state is the
     * recipe's and lives until close, which is called in any case, also after a failure (and after
     * one of network). */
    lvn_status (*open)(lvni_run_job *job);
    void (*close)(lvni_run_job *job); /* NULL: nothing */
    /* When a training has come to its end, in each of its processes, with the ranks still there
     * (inference.h: lvni_run_inference_on); dir: the run directory, of rank 0. Not of a run that
     * keeps nothing. NULL: nothing is left to do. */
    lvn_status (*ended)(const lvni_run_job *job, const char *dir);
    const void *user; /* of a user's job or recipe; NULL of levin's own */
    /* Images of samples while it trains, job->preview_every epochs apart; NULL: none. */
    const lvni_run_preview *preview;

    /* ---- a trained model, of recipes with a card ---- */
    const lvni_run_card_format *card; /* NULL: exported models hold the tensors alone */
    const char *noun;                 /* "classifier": what such a file holds */
    /* " with 6 classes", for the report of an export; NULL: nothing */
    void (*summary)(const lvni_run_job *job, lvni_core_str *out);
    /* Of the keys of a training those that a command with a trained model may give again, where
     * it has them; NULL: none. For the general card. */
    const lvni_core_option_table *own;
    lvni_core_option_list predict_keys, eval_keys, export_keys;
    /* inference.h; predict NULL: nothing is predicted; eval NULL: the means of what the validation
     * step logs */
    const struct lvni_run_results *predict, *eval;
    /* For `levin report RUN data=...`, with the keys of eval: finish appends sections of HTML to
     * the text (lvni_core_str) of use->user. NULL: it has none. */
    const struct lvni_run_results *page;
    /* The row whose page it is, with eval_keys of its own, also where data= is not given: then with
     * that of the run, and where there is none any more a sentence is in its place. NULL: this
     * row, with data= alone. */
    const struct lvni_run_recipe *shown;
    /* Sections of HTML behind the curves of every page, from the files of the run directory alone,
     * also of one that goes on. Fails for want of memory alone. NULL: none. */
    lvn_status (*page_sections)(const char *run, lvni_core_str *out);
    /* Of `eval choose=` (best_checkpoint.h), where eval has that key; NULL: none. */
    const struct lvni_run_choice_rules *choice;
} lvni_run_recipe;

/* One of levin's own: neither a user's job nor a recipe in a shared object. */
bool lvni_run_is_own(const lvni_run_recipe *recipe);

/* The keys of a user's job: so many tables. */
enum { LVNI_RUN_JOB_TABLES = 5 };
extern const lvni_core_option_table *const lvni_run_job_keys[LVNI_RUN_JOB_TABLES + 1];
/* Module and datasets of a user's job, with what the headers of images show (image_headers.h);
 * `of` names it in errors. */
lvn_status lvni_run_open_job(const lvn_job *job, const char *of, lvni_run_job *request);
/* Destroys the job's datasets. */
void lvni_run_close_job(const lvn_job *job);

/* What `levin train NAME` does; args: key=value as on the command line. */
lvn_status lvni_run_train(const lvni_run_recipe *recipe, int n, const char *const *args);
lvn_status lvni_run_plan(const lvni_run_recipe *recipe, int n, const char *const *args);
/* The memory that such a training takes, in place of its plan. */
lvn_status lvni_run_estimate(const lvni_run_recipe *recipe, int n, const char *const *args,
                             lvni_run_memory *out);
/* `levin export RECIPE weights=FILE`, with keys of a training. */
lvn_status lvni_run_export_start(const lvni_run_recipe *recipe, int n, const char *const *args);
/* export.c: `levin export` */
lvn_status lvni_run_export(const lvni_run_recipe *recipe, int n, const char *const *args);

/* The page of a run (report/run_page.h) into the file `output`, - for stdout; recipe: that the run
 * is of, whose defaults are beside its configuration; NULL: not known. sections: its own; or
 * NULL. */
lvn_status lvni_run_page_write(const lvni_run_recipe *recipe, const char *run, const char *sections,
                               const char *output);

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
