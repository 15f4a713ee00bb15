/* One rank's way through a training command. For this folder. */
#ifndef LEVIN_RUN_FIT_IMPL_H
#define LEVIN_RUN_FIT_IMPL_H

#include "ckpt/checkpoint.h"
#include "core/config.h"
#include "core/str.h"
#include "nn/model.h"
#include "optim/optim.h"
#include "run/options.h"
#include "run/recipe.h"
#include "run/run_dir.h"
#include "trainer/memory.h"
#include "trainer/trainer.h"
#include "trainer/units.h"

#include <pthread.h>

/* Ranks that are threads share the configuration of their process: the first one resolves it before
 * the others read it. */
typedef struct lvni_run_fit_turn {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over; /* the first rank has resolved it, or has failed */
} lvni_run_fit_turn;

/* Everything a rank of the run needs beside the request. Rank 0 leads: it alone writes the
 * directory and prints. */
typedef struct lvni_run_fit_run {
    const lvni_run_job *request;
    lvni_run_fit_turn *turn;
    lvni_run_rank rank;
    lvni_run_plan_data data;
    lvni_plan plan;
    lvni_optim_schedule schedule;
    char *dir;                /* NULL: other ranks, and a run that keeps nothing */
    bool has_dir;             /* it was made, or is resumed */
    char run_id[LVNI_RUN_ID]; /* rank 0 */
    lvni_core_str json, card;
    lvni_trainer_memory_need need; /* on rank 0 with those of the other threads */
    lvni_trainer_units units;      /* of a staged plan, cut */
    lvni_core_str stages;          /* lines: the stages */
    lvni_core_str memory;          /* a line: what the run will take */
    lvni_core_str scarce;          /* a line: the machine has less */
    bool too_scarce;               /* so much less that the run does not begin (memory_check) */
    lvni_core_str machine;         /* what the bits come from, of all ranks (trainer/identity.h) */
    lvni_core_str hardware;        /* a line: ranks whose bits differ */
    uint64_t *available;           /* memory that each rank finds on its host; NULL: one rank */
    bool measures;                 /* the shares of the ranks are still to be measured */
    lvni_core_str shares;          /* a line: why the ranks have theirs */
    int *bounds;                   /* shares of the ranks (plan.h); NULL: equal */
    lvni_nn_model *model;
    lvni_trainer *trainer;
    lvni_run_previews previews;
    lvni_ckpt *saved; /* a resumed run's checkpoint; NULL: from the beginning */
} lvni_run_fit_run;

/* The trainer's options from the configuration; run->json and run->card are made. */
lvn_status lvni_run_fit_options(lvni_run_fit_run *run, lvni_trainer_options *out);

/* ---- fit_ranks.c: what ranks compare and choose together; collectives ---- */

/* LVN_ERR_USAGE where ranks, which a launcher has started, were given another out=. */
lvn_status lvni_run_fit_compare_out(const lvni_run_fit_run *run);
/* Before anything else: processors, devices and libraries of all ranks, into run->machine and
 * run->hardware. LVN_ERR_USAGE where same_hardware=require and they differ. */
lvn_status lvni_run_fit_compare_hardware(lvni_run_fit_run *run);
/* balance_ranks=auto, or a saved list for another number of ranks. */
bool lvni_run_fit_measures(const lvni_run_fit_run *run);
/* strategy=sharded on a device is refused. */
lvn_status lvni_run_fit_check_sharded(const lvni_run_fit_run *run);
/* Behind the first plan of a rank: the shares that are given or kept, and the plan with them. No
 * collective. */
lvn_status lvni_run_fit_take_shares(lvni_run_fit_run *run);
/* Where run->measures: every rank measures, rank 0 chooses for all; plan and memory are made again.
 */
lvn_status lvni_run_fit_balance(lvni_run_fit_run *run);
/* Once there are trainers: LVN_ERR_USAGE where a rank sees other data. */
lvn_status lvni_run_fit_compare_runs(const lvni_run_fit_run *run);

/* ---- fit_stages.c: strategy=balance ---- */

/* Of a staged plan: the model's units and their cut into run->units, the same on all ranks, and
 * lines about it into run->stages; *need becomes that of this rank's stage. LVN_ERR_USAGE: there is
 * no cut. */
lvn_status lvni_run_fit_cut(lvni_run_fit_run *run, const lvni_trainer_options *options,
                            lvni_trainer_memory_need *need);

/* ---- fit_tuning.c: autotune=true ---- */

/* Before there is a trainer, a collective: where the run has no choices yet, rank 0 measures them
 * for all. */
lvn_status lvni_run_fit_autotune(lvni_run_fit_run *run);
/* In a plan: whether the run would measure. */
void lvni_run_fit_print_tuning(const lvni_run_fit_run *run);
/* In a plan, or once a checkpoint is restored: warns of choices that were made elsewhere and do not
 * count. */
void lvni_run_fit_check_choices(const lvni_run_fit_run *run);

/* ---- export.c, of recipes with a model card ---- */

/* The card, for checkpoints. */
void lvni_run_fit_card(const lvni_run_job *request, lvni_core_str *out);
/* The model, with these values of `step` in place of its weights, for others to `path`; called
 * beside the training. */
lvn_status lvni_run_fit_export(const lvni_run_job *request, const lvni_nn_model *model,
                               const float *values, int64_t step, const char *path);

/* ---- fit_report.c ---- */

/* A dry run of each size of micro-batch. Lines into run->memory and run->scarce. LVN_ERR_USAGE: the
 * network cannot take one of them. */
lvn_status lvni_run_fit_predict_memory(lvni_run_fit_run *run);
/* LVN_ERR_USAGE where that takes far more than there is, unless memory_check=warn. */
lvn_status lvni_run_fit_check_memory(const lvni_run_fit_run *run);
void lvni_run_fit_warn_memory(const lvni_run_fit_run *run); /* where it takes more */
void lvni_run_fit_banner(const lvni_run_fit_run *run);      /* the start block */
/* A line on standard output where ranks on the CPU are more than its cores. */
void lvni_run_fit_print_cores(const lvni_run_fit_run *run);
/* On standard output what `levin plan train` prints: batches, steps, ranks, device, model, memory.
 */
lvn_status lvni_run_fit_print_plan(const lvni_run_fit_run *run);

/* ---- fit_saved.c ---- */

/* The newest checkpoint in the run directory `dir` that is whole, or that of resume_epoch.
 * LVN_ERR_NOT_FOUND: there is none yet; LVN_ERR_USAGE: none of that epoch. */
lvn_status lvni_run_load_saved(const lvni_core_config *config, const char *dir, lvni_ckpt **out);
/* Before a run is resumed: LVN_ERR_USAGE where it has had checkpoints and none is left. */
lvn_status lvni_run_check_gone(const char *dir);
/* The run goes on from `to`, an earlier checkpoint (resume_epoch): it becomes last, and what lies
 * behind it is removed, as the next resume would go on from there; nothing changes where the run is
 * finished with it. Logs each file. */
lvn_status lvni_run_rewind(const char *dir, const lvni_ckpt *to, bool finished);

/* ---- fit_resume.c ---- */

/* Weights of an exported model or a checkpoint into the job's model, by name; nothing without
 * weights=. */
lvn_status lvni_run_load_start(const lvni_run_job *job, lvni_nn_model *model);
/* LVN_ERR_USAGE when a key of job->fixed has another value than in `ckpt`, from which the run
 * resumes. */
lvn_status lvni_run_check_fixed(const lvni_run_job *job, const lvni_ckpt *ckpt);
/* LVN_ERR_USAGE when the command line gives a run that resumes from `ckpt` other weights to begin
 * with. */
lvn_status lvni_run_check_start(const lvni_core_config *config, const lvni_ckpt *ckpt);
/* Logs which curves end at another step than in the saved run. */
void lvni_run_report_moved_end(const lvni_run_fit_run *run, const lvni_ckpt *ckpt);
/* Warns of every key that has another value in the resumed run, unless that is reported already
 * (trainer/identity.h). */
void lvni_run_report_changes(const lvni_run_fit_run *run, const lvni_ckpt *ckpt);

/* LVN_ERR_USAGE when the checkpoint is of another recipe, or its card does not fit this one's (of
 * the data as it is now). */
lvn_status lvni_run_check_saved_card(const lvni_run_recipe *recipe, const lvni_ckpt *ckpt,
                                     const char *card);

/* After a kill between a checkpoint and what is made of it, `best` beside `last` and the exported
 * models become as if there had been none. */
typedef struct lvni_run_repair_options {
    const char *dir; /* of the run */
    /* the checkpoint that the run resumes from: it is whole, so best may be linked to it */
    const lvni_ckpt *loaded;
    const lvni_nn_model *model; /* for names, shapes and places; its weights are not used */
    bool use_ema;               /* averages are exported where the checkpoint has them */
    /* As the trainer calls it (trainer.h): makes exported_models/exported_<name>. */
    lvn_status (*export_model)(void *user, const char *name, const float *values, int64_t step);
    void *user;
} lvni_run_repair_options;

/* Logs each file that it makes, and each that a checkpoint cannot give (damaged, of another
 * model), which stays as it is; an export that cannot be written is an error. */
lvn_status lvni_run_repair_exports(const lvni_run_repair_options *repair);

#endif
