/* One rank's way through a training command. For this folder: fit.c, fit_ranks.c. */
#ifndef LEVIN_RECIPES_FIT_IMPL_H
#define LEVIN_RECIPES_FIT_IMPL_H

#include "core/str.h"
#include "recipes/fit.h"
#include "recipes/run_dir.h"
#include "trainer/trainer.h"

/* Everything a rank of the run needs beside the request. Rank 0 leads: it alone writes the
 * directory and prints. */
typedef struct lvni_recipes_fit_run {
    const lvni_recipes_fit_request *request;
    lvni_recipes_rank rank;
    lvni_plan plan;
    lvni_optim_schedule schedule;
    char *dir;
    char run_id[LVNI_RUN_ID]; /* rank 0 */
    lvni_core_str json, card;
    lvni_core_str memory; /* a line: what the run will take */
    lvni_core_str scarce; /* a line: the machine has less */
    lvni_nn_model *model;
    lvni_trainer *trainer;
    lvni_ckpt *saved; /* a resumed run's checkpoint; NULL: from the beginning */
} lvni_recipes_fit_run;

/* The trainer's options from the configuration; run->json and run->card are made. */
lvn_status lvni_recipes_fit_options(lvni_recipes_fit_run *run, lvni_trainer_options *out);
void lvni_recipes_fit_banner(const lvni_recipes_fit_run *run); /* fit_banner.c: the start block */
/* fit_memory.c: a dry run of each size of micro-batch. Lines into run->memory and run->scarce. */
lvn_status lvni_recipes_fit_predict_memory(lvni_recipes_fit_run *run);
/* fit_ranks.c: how many ranks, and which device each has; a line more where ranks on the CPU are
 * more than its cores. */
void lvni_recipes_fit_report_ranks(const lvni_recipes_fit_run *run);
/* The second line on standard output. */
void lvni_recipes_fit_print_cores(const lvni_recipes_fit_run *run);
/* fit_ranks.c: one line where steps have several phases. */
void lvni_recipes_fit_report_phases(const lvni_recipes_fit_run *run);
#endif
