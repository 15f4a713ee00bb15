/* `levin eval model=RUN choose=METRIC`: which of the checkpoints that a run has kept is the best.
 * Each is measured as a model in use (inference.h); the best one becomes the run's best, as the
 * trainer links and exports it. */
#ifndef LEVIN_RUN_BEST_CHECKPOINT_H
#define LEVIN_RUN_BEST_CHECKPOINT_H

#include "ckpt/checkpoint.h"
#include "run/inference.h"

/* A checkpoint. */
typedef struct lvni_run_candidate {
    int64_t epoch;
    double score;    /* NaN: not known */
    double distance; /* from being acceptable, of its validation; NaN: not known */
    bool is_good;    /* acceptable */
} lvni_run_candidate;

/* What a recipe adds to the choice. */
typedef struct lvni_run_choice_rules {
    /* Measure one checkpoint, with `score`; NULL: those of eval. */
    const lvni_run_results *results;
    /* Which checkpoints are acceptable: distance and is_good of the one that is open. NULL: all. */
    lvn_status (*measure)(const lvni_ckpt *ckpt, lvni_run_candidate *out);
    const char *distance, *unit, *rule; /* "psnr_diff", "dB", "psnr_gain_tol": with judge */
    /* Members of the JSON object beside model and split, a comma in front of each. NULL: none. */
    void (*print_members)(const lvni_core_config *config, lvni_core_str *out);
    /* A page in output=, with the table as text; NULL: none. */
    lvn_status (*page)(const lvni_core_config *config, const char *run, const char *table);
} lvni_run_choice_rules;

/* Keys: choose, choose.mode, prune. */
extern const lvni_core_option_table lvni_run_choose_options;
/* Is choose= given to `levin eval` of that recipe? One of its own keys may have that name. */
bool lvni_run_chooses(const lvni_run_recipe *recipe, const char *command,
                      const lvni_core_config *config);
/* What `levin eval` does then. Takes the configuration, which the n arguments were made into. */
lvn_status lvni_run_choose(const lvni_run_recipe *recipe, lvni_core_config *config, int n,
                           const char *const *args);

/* ---- best_table.c: pure ---- */

typedef struct lvni_run_choice {
    int best;    /* of the best score among acceptable ones, the first of equals; -1: none */
    int closest; /* of the least |distance|, acceptable or not; -1: none is finite */
} lvni_run_choice;

/* What the table is of. */
typedef struct lvni_run_choice_table {
    const char *score; /* names its column */
    bool more_is_better;
    const char *distance; /* the same; NULL: all are acceptable, and no column has that */
    const char *unit;
} lvni_run_choice_table;

lvni_run_choice lvni_run_choose_best(const lvni_run_candidate *c, int n, bool more_is_better);
/* A table, the best one marked, and a last line with the choice, or with the closest one if none is
 * acceptable. */
void lvni_run_choice_print(const lvni_run_candidate *c, int n, const lvni_run_choice_table *t,
                           lvni_core_str *out);
/* Members of a JSON object: "epochs": [{"epoch": 1, "<score>": 0.1, "<distance>": 0.2,
 * "acceptable": true}], "best": 1, "closest": 1; null: not known. */
void lvni_run_choice_json(const lvni_run_candidate *c, int n, const lvni_run_choice_table *t,
                          lvni_core_str *out);

#endif
