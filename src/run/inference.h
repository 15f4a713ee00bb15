/* A trained model in use: the way that `predict` and `eval` of all recipes share. Ranks divide the
 * chunks of the data; rank 0 gets the rows of all in order, or all ranks the metrics. The recipe
 * opens the data and turns rows or metrics into results. */
#ifndef LEVIN_RUN_INFERENCE_H
#define LEVIN_RUN_INFERENCE_H

#include "run/ranks.h"
#include "run/recipe.h"
#include "trainer/trainer.h"

typedef struct lvni_run_inference lvni_run_inference;

struct lvni_run_inference {
    const lvni_run_recipe *recipe;
    const char *command; /* "predict" */
    lvni_core_config *config;
    /* Before ranks are started; NULL: none. */
    lvn_status (*check)(const lvni_core_config *config);
    /* Once in a process, with `exported` open: `data`, which stays the recipe's. */
    lvn_status (*open)(lvni_run_inference *use);
    /* (N, K) of a batch, each row to `row` with this use as its user; NULL: metrics. */
    lvni_trainer_predict_output output;
    lvni_trainer_predict_row row;
    lvn_status (*finish)(const lvni_run_inference *use); /* by rank 0, with all rows or metrics */
    void *user;

    /* ---- from here on filled on the way ---- */
    lvni_run_ranks *ranks;
    lvni_run_exported *exported; /* its model is that of the first rank here */
    const lvn_dataset *data;
    int64_t chunk;        /* samples; before open: eval_batch_size */
    lvn_dtype low;        /* of matrix products; before open: LVN_F32 */
    int64_t n;            /* rows so far, counted by `row` */
    lvni_nn_step metrics; /* without `output` */
};

/* The configuration of `predict` or `eval` of a recipe; json=true of predict goes to stdout, unless
 * output= is given. */
lvn_status lvni_run_inference_read(const lvni_run_recipe *recipe, const char *command, int n,
                                   const char *const *args, lvni_core_config **out);
/* For check: model= is given, and there is such a file. */
lvn_status lvni_run_inference_check(const lvni_core_config *config);
/* For check of predict: output= is a table or JSON lines; `what` is written ("predictions"). */
lvn_status lvni_run_inference_check_output(const lvni_core_config *config, const char *what);
/* Rows of predict are JSON lines: json=true, or output= ends so. */
bool lvni_run_inference_wants_lines(const lvni_core_config *config);
/* n arguments, of which `config` was made, for the ranks that are started. What the recipe has
 * opened it closes itself, afterwards. */
lvn_status lvni_run_inference_run(lvni_run_inference *use, int n, const char *const *args);
/* The model of model= and checkpoint= with use_ema=. */
lvni_run_exported_place lvni_run_inference_place(const lvni_core_config *config);
/* Rank 0 of the command. */
bool lvni_run_inference_leads(const lvni_run_inference *use);

#endif
