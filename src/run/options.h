/* Options of the commands: tables of rows, reading a configuration (options.c), and what the
 * options of a training become (train_options.c, loop_options.c, checkpoint_options.c,
 * optim_options.c, schedule_options.c, phase_options.c). */
#ifndef LEVIN_RUN_OPTIONS_H
#define LEVIN_RUN_OPTIONS_H

#include "core/config.h"
#include "core/option.h"
#include "optim/optim.h"
#include "plan/plan.h"
#include "run/ranks.h"
#include "trainer/trainer.h"

/* weights.key of every command with weights=. */
#define LVNI_RUN_WEIGHTS_KEY_ROW                                                                   \
    {                                                                                              \
        .name = "weights.key", .type = LVNI_OPT_STRING, .flags = LVNI_OPT_YIELDS,                  \
        .help = "Where in the file of weights= they are: a key of a dict (state_dict_ema, net), "  \
                "keys of dicts within dicts (ema.model), or what their names begin with "          \
                "(student.backbone)."                                                              \
    }

/* ---- options.c ---- */

/* config out overwrite resume quiet weights seed ... */
extern const lvni_core_option_table lvni_run_options;
/* In front of the name of a row with LVNI_OPT_YIELDS whose name is the recipe's. */
#define LVNI_RUN_YIELDED "levin."
/* What such a row of every training is called in this configuration. */
const char *lvni_run_key_name(const lvni_core_config *config, const char *name);
/* model checkpoint eval_batch_size devices ... */
extern const lvni_core_option_table lvni_run_inference_options;
/* model checkpoint output card, and the table of a command that takes no others */
extern const lvni_core_option_table lvni_run_export_options;
extern const lvni_core_option_table *const lvni_run_export_keys[];

/* The part of a recipe in reading a configuration. */
typedef struct lvni_run_defaults {
    const char *job; /* defaults of keys that it has not made itself, or NULL */
    /* Once files and arguments are read, before a saved configuration: keys that stand for others.
     * Its own mistakes are added to the others. NULL: none. */
    lvn_status (*prepare)(lvni_core_config *config);
    /* The same for `levin export weights=`. NULL: as prepare. */
    lvn_status (*prepare_export)(lvni_core_config *config);
} lvni_run_defaults;
/* Reads arguments over defaults, config files and, when resuming, the run's saved configuration. */
lvn_status lvni_run_read_config(lvni_core_option_list tables, const char *help,
                                const lvni_run_defaults *of, int n, const char *const *args,
                                lvni_core_config **out);
/* Of strategy=sharded, 1 or 2; else 0. */
bool lvni_run_is_staged(const lvni_core_config *config); /* strategy=balance */
int lvni_run_sharded_stage(const lvni_core_config *config);

/* ---- train_options.c: batch plan ---- */

/* batch_size micro_batches lanes ... */
extern const lvni_core_option_table lvni_run_batch_options;

/* cuda_graph=; own: the recipe is levin's. */
lvni_trainer_graph_mode lvni_run_read_graph(const lvni_core_config *config, bool own);

/* "[3,1]" of balance_ranks=: how many there are, -1: it is not a list. out: the first `room`. */
int lvni_run_read_shares(const char *text, double *out, int room);

/* LVN_ERR_UNSUPPORTED: this CPU has no products of precision=. After lvni_cpu_start. */
lvn_status lvni_run_check_precision(const lvni_core_config *config);
/* The plan of n training samples and streams for a rank; what rank 0 finds resolved is written back
 * into the configuration. coupled: of the model (lvni_nn_model). */
typedef struct lvni_run_plan_data {
    int64_t n_samples;
    int n_streams;
    lvni_plan_stream stream[LVNI_PLAN_STREAMS];
} lvni_run_plan_data;
lvn_status lvni_run_make_plan(lvni_core_config *config, const lvni_run_plan_data *data,
                              const lvni_run_rank *rank, bool coupled, lvni_plan *out);
/* The steps of a run over so many samples, INT64_MAX: it has no end; and its plan, as far as it
 * does not depend on the model. rank NULL: of a run that is not started (lvni_run_ranks_estimate).
 */
lvn_status lvni_run_count_steps(lvni_core_config *config, int64_t samples,
                                const lvni_run_rank *rank, lvni_plan *plan, int64_t *steps);
/* The factor on optim.lr in steps of so many samples. */
double lvni_run_rate_scale(const lvni_core_config *config, int64_t batch);
/* The pinned choices that are given or resolved by now; 0: not yet. */
lvni_core_pins lvni_run_read_pins(const lvni_core_config *config);
/* Before the data is read: LVN_ERR_USAGE with the same message where no number of samples and no
 * model could make these devices fit. */
lvn_status lvni_run_check_plan(const lvni_core_config *config, const lvni_run_rank *rank);

/* ---- loop_options.c: parts of the data, validation, early end ---- */

/* limit_train_batches val_check_interval early_stopping.* max_time ... */
extern const lvni_core_option_table lvni_run_loop_options;
/* checkpoint.*; checkpoint_options.c */
extern const lvni_core_option_table lvni_run_checkpoint_options;
lvn_status lvni_run_read_checkpoints(const lvni_core_config *config, lvni_trainer_options *options);

/* "10" batches or "0.25" of all; both 0: all, unless it is none. */
typedef struct lvni_run_limit {
    int64_t batches;
    double part;
    bool none;
} lvni_run_limit;
/* limit_train_batches or limit_val_batches, or what overfit_batches makes of them. */
lvni_run_limit lvni_run_read_limit(const lvni_core_config *config, const char *key);
bool lvni_run_overfits(const lvni_core_config *config); /* samples come in their own order */
/* When it is validated and ends, into options that have plan and val. LVN_ERR_USAGE: parts that are
 * smaller than a batch, a metric that cannot be. */
lvn_status lvni_run_read_loop(const lvni_core_config *config, lvni_trainer_options *options);
/* fast_dev_run=: batches, 0: off, -1: it is neither. */
int64_t lvni_run_dev_run(const char *text);
/* Nothing is written. */
bool lvni_run_is_dev_run(const lvni_core_config *config);
/* A run that is given max_steps= or max_time= and no max_epochs= has no limit of epochs. */
lvn_status lvni_run_resolve_end(lvni_core_config *config);
/* Of every command: keys of other trainers that have no effect, and how a batch is counted. */
void lvni_run_report_notes(const lvni_core_config *config);
/* early_stopping.monitor where a patience is given alone; monitors in Lightning's spelling. */
lvn_status lvni_run_resolve_monitors(lvni_core_config *config);
/* fast_dev_run=, if it is on, as the keys that it stands for. */
lvn_status lvni_run_resolve_dev_run(lvni_core_config *config);

/* ---- optim_options.c: optimizer ---- */

/* optim.* scheduler.* freeze lr_scale ema.* use_ema gradient_clip_* */
extern const lvni_core_option_table lvni_run_optim_table;

/* Writes defaults that an optimizer has of its own into the configuration. */
lvn_status lvni_run_resolve_optim(lvni_core_config *config);
/* gradient_clip_val is of each element of the gradient, which the optimizer clamps. */
bool lvni_run_clips_value(const lvni_core_config *config);
/* LVN_ERR_USAGE: settings that do not go together. */
lvn_status lvni_run_read_optim(const lvni_core_config *config, lvni_optim_options *out);
/* An optimizer, by n characters of its name, as it is where nothing is given; rate and weight decay
 * are 0. False: there is none. */
bool lvni_run_default_optim(const char *name, size_t n, lvni_optim_options *out);
/* Patterns are borrowed from the configuration. */
void lvni_run_read_rules(const lvni_core_config *config, const lvni_plan *plan,
                         lvni_optim_rules *out);
void lvni_run_read_ema(const lvni_core_config *config, lvni_optim_ema_options *out);
/* Steps of the whole run; INT64_MAX: it has no end. */
int64_t lvni_run_horizon(const lvni_core_config *config, const lvni_plan *plan);
/* LVN_ERR_USAGE when the run's length does not fit the schedule. */
lvn_status lvni_run_read_schedule(const lvni_core_config *config, const lvni_plan *plan,
                                  lvni_optim_schedule *out);
/* The same with another scheduler.name. */
lvn_status lvni_run_read_schedule_as(const lvni_core_config *config, const lvni_plan *plan,
                                     const char *name, lvni_optim_schedule *out);
/* phase_options.c: optim.phases of a class with these phases. LVN_ERR_USAGE: it has no such phase.
 */
lvn_status lvni_run_read_phases(const lvni_core_config *config, const lvni_plan *plan,
                                const char *const *phases,
                                lvni_trainer_phase_options out[LVNI_PHASES]);
/* LVN_ERR_USAGE: a group's own numbers do not go with optimizer and schedule of its phase. */
lvn_status lvni_run_check_groups(const lvni_optim_schedule *run,
                                 const lvni_trainer_phase_options phase[LVNI_PHASES],
                                 const lvni_optim_options *optim,
                                 const lvni_optim_parameter *parameter, int n);
/* validates: the run has a validation set. LVN_ERR_USAGE: it cannot have the monitored metric. */
lvn_status lvni_run_read_plateau(const lvni_core_config *config, bool validates,
                                 lvni_optim_plateau_options *out);
/* Of the metric that the key `monitor` names: as the key `mode` has it, auto by the metric's name.
 */
/* acc, f1, psnr and others of which more is better, by name. */
bool lvni_run_is_better_when_more(const char *metric);
bool lvni_run_more_is_better(const lvni_core_config *c, const char *mode, const char *monitor);
/* LVN_ERR_USAGE: `monitor`, given as `key`, is not the name of a metric that the run can have. */
lvn_status lvni_run_check_monitor(const lvni_core_config *config, const char *key,
                                  const char *monitor, bool validates);
/* The curve of weight decay over a run of that many steps (INT64_MAX: without end); *weight_decay
 * becomes its larger end. */
lvn_status lvni_run_read_decay(const lvni_core_config *config, int64_t steps, double *weight_decay,
                               lvni_optim_curve *curve);
/* The last step of a saved run (the configuration of its checkpoint) with this plan's data;
 * INT64_MAX: it had no end; 0: unknown. */
int64_t lvni_run_saved_end(const char *config_json, const lvni_plan *plan);

#endif
