/* A trained model in use: the way of `levin predict` and `levin eval` for all recipes. Ranks divide
 * the chunks of the data; rank 0 gets the rows of all, or all ranks the metrics of the validation
 * step. A recipe names what becomes of them; what it leaves out is as results.c has it:
 * a line of numbers for each sample, and the means of what the validation step logs. */
#ifndef LEVIN_RUN_INFERENCE_H
#define LEVIN_RUN_INFERENCE_H

#include "run/ranks.h"
#include "run/recipe.h"
#include "trainer/trainer.h"

typedef struct lvni_run_inference lvni_run_inference;
typedef struct lvni_run_results lvni_run_results;

/* What a recipe makes of a model's rows, or of its metrics. */
struct lvni_run_results {
    /* Others, by the arguments; NULL, or where it returns NULL: these. */
    const lvni_run_results *(*instead)(const lvni_core_config *config);
    /* Arguments, before ranks are started. NULL: model=, and output= of predict. */
    lvn_status (*check)(const lvni_core_config *config);
    /* Is what is asked for there already? It reports so, and no model is opened. NULL: never. */
    lvn_status (*is_done)(const lvni_core_config *config, bool *done);
    /* In place of all below: the data have parts, each of which goes through
     * lvni_run_inference_on, on use->ranks, with a configuration of its own. NULL: one. */
    lvn_status (*each)(lvni_run_inference *use);
    /* The model; NULL: that of model= and checkpoint=, with its data. */
    lvn_status (*open)(lvni_run_inference *use, lvni_run_exported **out);
    /* Once in a process, with model and data open. NULL: nothing. */
    lvn_status (*begin)(lvni_run_inference *use);
    /* (N, K) of a batch, on the threads of lanes; user: the inference. NULL: metrics. */
    lvni_trainer_predict_output output;
    /* Name of column i; NULL, or where it returns NULL: its number. */
    const char *(*column)(const lvni_run_inference *use, int i);
    /* Of rank 0, in the order of the data; counts into use->n. NULL: a line of numbers. */
    lvn_status (*row)(lvni_run_inference *use, int64_t sample, const float *value, int64_t k);
    /* Rows may come in any order, so that a rank reads samples that follow each other: a video is
     * then decoded once, and not by every rank. */
    bool any_order;
    /* By rank 0, with all rows or metrics. NULL: writes these lines, or prints the metrics. */
    lvn_status (*finish)(lvni_run_inference *use);
    /* A number of these results by its name, and whether more of it is better, in place of finish,
     * for `eval choose=`; LVN_ERR_USAGE: there is none. NULL: a metric of the validation step. */
    lvn_status (*score)(lvni_run_inference *use, const char *metric, double *out, bool *more);
    /* Is there such a number, with model and data open? LVN_ERR_USAGE: as score, before the data
     * are read. NULL: not known before. */
    lvn_status (*check_score)(const lvni_run_inference *use, const char *metric);
    /* Frees what begin made, in any case; leaves the thread's last error. NULL: nothing. */
    void (*end)(lvni_run_inference *use);
};

struct lvni_run_inference {
    const lvni_run_recipe *recipe;
    const lvni_run_results *results;
    const char *command; /* "predict" */
    lvni_core_config *config;
    int n_args; /* that config was made of; of lvni_run_inference_run */
    const char *const *args;
    lvni_run_ranks *ranks;
    lvni_run_exported *exported; /* its model is that of the first rank here */
    const lvn_dataset *data;
    int64_t chunk; /* samples */
    lvn_dtype low; /* of matrix products */
    int64_t n;     /* rows so far */
    lvni_nn_step metrics;
    void *own;            /* of the recipe's results, by begin */
    void *user;           /* of the caller of lvni_run_inference_run */
    bool again;           /* of several models: not the first one */
    const char *metric;   /* of which score is called; NULL: finish is */
    bool as_run;          /* on_error=stop is that of the model's run, which leaves out a few */
    bool goes_on;         /* the ranks have more to do, and agree on how this one went */
    lvni_core_str unread; /* goes_on and on_error=stop: samples that could not be read */
    /* of results.c */
    const char *split; /* "val" */
    bool lines;        /* JSON lines */
    lvni_core_str text;
};

/* The configuration of `predict` or `eval` of a recipe; json=true of predict goes to stdout, unless
 * output= is given. */
lvn_status lvni_run_inference_read(const lvni_run_recipe *recipe, const char *command, int n,
                                   const char *const *args, lvni_core_config **out);
/* How one model is measured, or predicts. */
typedef struct lvni_run_measurement {
    const lvni_run_results *results;
    void *user;         /* use->user */
    bool again;         /* use->again */
    const char *metric; /* use->metric */
    int n;              /* arguments that the configuration was made of */
    const char *const *args;
} lvni_run_measurement;
/* Takes `config`. */
lvn_status lvni_run_inference_run(const lvni_run_recipe *recipe, const char *command,
                                  const lvni_run_measurement *of, lvni_core_config *config);
/* The same on ranks that are there, as at the end of a training. What goes wrong with the model or
 * the data, on whichever rank, fails on all of them alike, and they can go on with others.
 * LVN_ERR_CANCELLED: one was asked to stop, before, or between two waves of chunks. */
lvn_status lvni_run_inference_on(const lvni_run_recipe *recipe, const char *command,
                                 const lvni_run_measurement *of, lvni_core_config *config,
                                 lvni_run_ranks *ranks);
/* What `levin predict` and `levin eval` do. */
lvn_status lvni_run_predict(const lvni_run_recipe *recipe, int n, const char *const *args);
lvn_status lvni_run_eval(const lvni_run_recipe *recipe, int n, const char *const *args);

/* ---- for results ---- */

/* model= is given, and there is such a file. */
lvn_status lvni_run_inference_check(const lvni_core_config *config);
/* For check of predict: output= is a table or JSON lines; `what` is written ("predictions"). */
lvn_status lvni_run_inference_check_output(const lvni_core_config *config, const char *what);
/* Rows of predict are JSON lines: json=true, or output= ends so. */
bool lvni_run_inference_wants_lines(const lvni_core_config *config);
/* The model of model= and checkpoint= with use_ema=. */
lvni_run_exported_place lvni_run_inference_place(const lvni_core_config *config);
/* Rank 0 of the command. */
bool lvni_run_inference_leads(const lvni_run_inference *use);
/* Name of a sample by its dataset, or else its number, in `number`. */
const char *lvni_run_sample_name(const lvni_run_inference *use, int64_t sample, char number[24]);
/* There was a row; LVN_ERR_CORRUPT: no sample could be read. */
lvn_status lvni_run_check_rows(const lvni_run_inference *use);
/* use->text into output=, and how many predictions that are. */
lvn_status lvni_run_write_rows(lvni_run_inference *use);

/* ---- results.c ---- */

/* Keys of a recipe that leaves results to it: output; split. */
extern const lvni_core_option_table lvni_run_predict_options, lvni_run_eval_options;
/* Chooses among the datasets that the recipe has opened: job.used, or by split=. */
lvn_status lvni_run_choose_data(lvni_run_inference *use);
/* Where row, finish and score of the results are NULL: a line of numbers; the means of what the
 * validation step logs; one of them. LVN_ERR_INVALID: it logs none, LVN_ERR_USAGE: not that one. */
lvn_status lvni_run_take_row(lvni_run_inference *use, int64_t sample, const float *value,
                             int64_t k);
lvn_status lvni_run_print_metrics(lvni_run_inference *use);
/* Is there such a metric ("loss", "val/loss")? Its mean; else the names of all, appended. */
bool lvni_run_metric_find(const lvni_nn_step *metrics, const char *metric, double *mean,
                          lvni_core_str *names);
lvn_status lvni_run_metric_score(lvni_run_inference *use, const char *metric, double *out,
                                 bool *more);

#endif
