/* The step engine: what optimizer steps need, and nothing of the run around them. There is no run
 * directory, log or checkpoint here, and the loader is an argument of a step. Created by the
 * trainer (trainer.c).
 *
 *   engine.c       create and destroy; the model's parameters as the optimizer sees them
 *   step.c         a step: load, forward and backward, reduce, update
 *   waves.c        its micro-batches, one per lane; what coupled ones share
 *   prefetch.c         their batches on the way to the device
 *   graph.c        the step captured on the device, and replayed
 *   stages.c       the same of a model in stages (strategy=balance)
 *   micro_batch.c  forward and backward of one of them
 *   gradient_sync.c   gradient sets, merged in the tree, over all ranks; step_message.c: metrics of
 *                  their micro-batches; staged.c: sets on a device by way of the host, on the
 *                  thread of comm_thread.c
 *   update.c       clip, update; sharded.c: of a part of the weights; phases.c: which parameters a
 *                  phase trains
 *   move_buffers.c  the buffers; step_numbers.c: numbers that modules read
 *   scaler.c       precision, and the loss scale of 16-mixed */
#ifndef LEVIN_TRAINER_ENGINE_H
#define LEVIN_TRAINER_ENGINE_H

#include "ckpt/checkpoint.h"
#include "optim/optim.h"
#include "trainer/prefetch.h"
#include "trainer/gradient_sync.h"
#include "trainer/lanes.h"
#include "trainer/deferred.h"
#include "trainer/micro_batch.h"
#include "trainer/sharded.h"
#include "trainer/step_message.h"

/* Steps that are submitted and looked at before one is captured: what is made at first use is
 * there by then. As many with other batches than the captured ones, and another is captured. */
enum { LVNI_GRAPH_WATCHED = 3 };

typedef enum lvni_trainer_graph_mode {
    LVNI_GRAPH_OFF,
    LVNI_GRAPH_AUTO, /* where it works */
    LVNI_GRAPH_ON    /* LVN_ERR_USAGE where it does not */
} lvni_trainer_graph_mode;
typedef struct lvni_trainer_graph lvni_trainer_graph;
typedef struct lvni_trainer_stages lvni_trainer_stages; /* stages.h */

/* What a phase has of its own; zeros: as the run. */
typedef struct lvni_trainer_phase_options {
    double lr;
    bool has_schedule, has_clip, has_optim;
    lvni_optim_schedule schedule;
    double clip;              /* 2-norm; 0: off */
    lvni_optim_options optim; /* without rate and weight decay */
    int64_t every;            /* it runs in the last step of every so many; 0, 1: in each */
} lvni_trainer_phase_options;

/* Those of the trainer's options (trainer.h) that a step depends on. */
typedef struct lvni_trainer_engine_options {
    lvni_nn_model *model; /* borrowed, as all pointers here */
    lvni_plan plan;
    lvni_optim_options optim;
    lvni_optim_rules rules;
    lvni_optim_schedule schedule;
    lvni_optim_plateau_options plateau; /* with a schedule of that kind */
    lvni_optim_curve weight_decay;      /* steps 0: it is optim.weight_decay throughout */
    lvni_optim_ema_options ema;
    lvni_trainer_precision precision;
    double gradient_clip_val;
    bool detect_anomaly;
    lvni_trainer_bad_batch on_bad_batch;
    lvni_trainer_phase_options phase[LVNI_PHASES];
    uint64_t seed;
    lvni_trainer_graph_mode graph;
    lvni_dist_comm *comm; /* of plan.devices ranks; NULL: one */
    int64_t bucket_bytes;
    int sharded_stage;                      /* of several ranks; 0: each has the whole optimizer */
    const struct lvni_trainer_units *units; /* of a staged plan: the model's, cut */
    /* ranks agree on a stop by the messages of a step; else over the control channel (loop.c) */
    bool signal_in_message;
} lvni_trainer_engine_options;

/* Of one phase of a step; metrics alone when no sample could be read. */
typedef struct lvni_trainer_phase_result {
    lvni_nn_step metrics; /* sums over its samples, on all ranks */
    double grad_norm;     /* before clipping */
    double lr;
    bool clipped;
    bool skipped; /* the gradient overflowed (16-mixed): nothing of it was updated */
    bool updated;
    bool left_out; /* it is not part of this step */
} lvni_trainer_phase_result;

/* What a step that was submitted leaves to be collected. Its metrics have the names and the order
 * in which modules logged them. */
typedef struct lvni_trainer_step_record {
    lvni_ckpt_position before; /* the position before the step, which messages name */
    int64_t samples;
    double lr;
    /* that asked some rank to stop, as of this step; the same on all ranks; 0: none */
    int signal;
    bool validate; /* rank 0's clock asked for it */
    bool save;     /* rank 0 was asked to save; with a sharded stage alone */
    int deferred;  /* of a step that is read late: its number there */
    int n_phases;
    lvni_trainer_phase_result phase[LVNI_PHASES]; /* what is behind the last one is not set */
} lvni_trainer_step_record;

/* What one optimizer step gave. */
typedef struct lvni_trainer_step_result {
    lvni_ckpt_position after;
    lvni_trainer_scaler scaler; /* after it */
    lvni_nn_step metrics;       /* over the step's samples, of all phases */
    int64_t samples;
    double lr;
    int n_phases;
    lvni_trainer_phase_result phase[LVNI_PHASES];
} lvni_trainer_step_result;

typedef struct lvni_trainer_engine {
    lvni_trainer_engine_options o;
    /* the step that is being submitted: where it is, and what it reads */
    lvni_trainer_pass now;
    int n_phases;
    lvni_data_loader *loader;
    /* per micro-batch of this rank: its batch, until the last phase is done with it */
    const lvni_data_loader_batch **held;
    lvni_trainer_prefetch *prefetch; /* to the device that computes; NULL: the host */
    lvni_trainer_graph *graph;       /* NULL: every step is submitted call by call */
    /* set before a step: another one follows with the same loader, and its batches may be on their
     * way when this one ends. The loader stays until a step without, or until the engine is gone.
     */
    bool more_steps;
    bool validation_due; /* rank 0: its message of the step asks all to validate after it */
    bool save_due; /* rank 0, with a sharded stage: its message of the step asks all to save */
    /* the last step failed between two phases: the weights are of no step; not with `deferred` */
    bool torn;

    lvni_trainer_lanes *lanes;
    lvni_trainer_micro_batch_job *job; /* one per lane */
    int *slot;                         /* per lane: number of the set it works in */
    /* coupled micro-batches: one for each group of the wave; else NULL */
    lvni_trainer_group_sync **group_sync;
    int n_group_syncs;
    lvni_dist_group_exchange *exchange; /* when groups lie on several ranks */

    lvni_trainer_gradient_sync *gradient_sync;
    double *micro_batch_weight;   /* of all micro-batches of all ranks */
    lvni_trainer_message message; /* of this rank about its micro-batches */

    lvni_trainer_stages *stages;     /* NULL: this rank has the whole model */
    lvni_trainer_deferred *deferred; /* NULL: submit reads what the step found */
    lvni_optim *optim;
    lvni_trainer_sharded *sharded; /* NULL: this rank has the whole optimizer */
    lvni_trainer_scaler scaler;
    lvni_optim_plateau plateau;
    lvni_optim_ema *ema; /* of the model's n_values values; NULL: off */
    bool *graded; /* of each parameter: a micro-batch of the current phase has a gradient of it */
    /* of each parameter: the first step gave it a gradient; NULL: reported, or left to another rank
     */
    bool *used;
} lvni_trainer_engine;

/* LVN_ERR_UNSUPPORTED: what sharded_stage and the place of the weights do not do together. */
lvn_status lvni_trainer_sharded_check(int stage, bool on_device);

/* LVN_ERR_USAGE: options that do not go together with where the calling thread computes. */
lvn_status lvni_trainer_engine_check(const lvni_trainer_engine_options *options);

/* The calling thread's context gets the teams of the plan: merges and updates run on it. */
lvn_status lvni_trainer_engine_create(const lvni_trainer_engine_options *options,
                                      lvni_trainer_engine **out);
void lvni_trainer_engine_destroy(lvni_trainer_engine *engine); /* NULL is fine */

/* The step after `before`, up to and with the update, from the loader's next batches. `record` is
 * filled as far as the step came, also when it fails. */
lvn_status lvni_trainer_engine_submit(lvni_trainer_engine *engine, lvni_data_loader *loader,
                                      const lvni_ckpt_position *before,
                                      lvni_trainer_step_record *record);
/* What the step computed, once for every record, in the order of steps. With engine->deferred one
 * step may be submitted before the one before it is collected, else each is collected at once.
 * LVN_ERR_NON_FINITE: the run learns nothing any more. When it fails the weights are those before
 * the step unless lvni_trainer_engine_torn, and later ones that were submitted must be discarded,
 * the last one first. */
lvn_status lvni_trainer_engine_collect(lvni_trainer_engine *engine,
                                       const lvni_trainer_step_record *record,
                                       lvni_trainer_step_result *result);

/* A step that was submitted after one that failed: the device did nothing of it. */
void lvni_trainer_engine_discard(lvni_trainer_engine *engine,
                                 const lvni_trainer_step_record *record);
/* After a failure, with every step collected or discarded: the device or the host did a part of the
 * step that failed, and the weights are of no step. */
bool lvni_trainer_engine_torn(const lvni_trainer_engine *engine);

/* Of each phase: its own, with the run's weight decay, or the run's. */
void lvni_trainer_optim_of_phases(const lvni_optim_options *run,
                                  const lvni_trainer_phase_options phase[LVNI_PHASES],
                                  lvni_optim_options out[LVNI_PHASES]);
/* The parameters with the settings that the rules give them, and their phases; freed by the caller.
 * LVN_ERR_USAGE as lvni_optim_rules_apply and lvni_optim_phases_apply. */
lvn_status lvni_trainer_parameters(const lvni_nn_model *model, const lvni_optim_rules *rules,
                                   lvni_optim_parameter **out);

/* ---- the parts of a step (step.c) ---- */

/* A record of nothing, except for the position before the step. */
void lvni_trainer_record_begin(const lvni_trainer_engine *engine, lvni_trainer_step_record *record);
/* Of a step that has begun (lvni_trainer_deferred_begin): all of it, and its phases alone. */
lvn_status lvni_trainer_submit_step(lvni_trainer_engine *engine, lvni_trainer_step_record *record);
lvn_status lvni_trainer_submit_phases(lvni_trainer_engine *engine,
                                      lvni_trainer_step_record *record);

/* waves.c */
/* Samples of the step that could not be read, as far as its batches are here, and do not count
 * yet. */
int64_t lvni_trainer_engine_noted(const lvni_trainer_engine *engine);
/* Before the micro-batches of a phase. */
void lvni_trainer_waves_begin(lvni_trainer_engine *engine);
/* The batches of n micro-batches from `micro_batch` on, one per lane; those of an earlier phase are
 * still here. */
lvn_status lvni_trainer_wave_load(lvni_trainer_engine *engine, int micro_batch, int n);
/* The same of one, in this lane; and what wave_merge does with it, which gives its batch back. */
lvn_status lvni_trainer_wave_load_at(lvni_trainer_engine *engine, int micro_batch, int lane);
lvn_status lvni_trainer_wave_merge_at(lvni_trainer_engine *engine, int lane);
/* Their forward and backward passes. */
lvn_status lvni_trainer_wave_run(lvni_trainer_engine *engine, int n);
/* Their gradients into the tree, and what they report into this rank's message, in their order. */
lvn_status lvni_trainer_wave_merge(lvni_trainer_engine *engine, int n);
/* The step has all its batches: those of the next one, as far as they are ready, begin their way to
 * the device. */
lvn_status lvni_trainer_wave_ahead(lvni_trainer_engine *engine);
/* The loader goes on with the batches of n micro-batches. */
void lvni_trainer_wave_release(lvni_trainer_engine *engine, int micro_batch, int n);
/* After the last wave: the sum over all micro-batches of all ranks; NULL when no sample could be
 * read. What all of them report goes into `r`. */
lvn_status lvni_trainer_waves_reduce(lvni_trainer_engine *engine, lvni_trainer_step_record *r,
                                     lvni_nn_set **total);

/* update.c */
typedef struct lvni_trainer_rates {
    const lvni_optim_schedule *schedule;
    double lr;
    double decay;    /* a factor on weight decay */
    double momentum; /* or beta1; 0: it does not move */
} lvni_trainer_rates;
/* Of a phase of the step that is being submitted, of a run with that many skipped ones. */
lvni_trainer_rates lvni_trainer_rates_at(const lvni_trainer_engine *engine, int phase,
                                         int64_t skipped);
/* The largest norm of the phase's gradient; 0: any. */
double lvni_trainer_clip_of(const lvni_trainer_engine *engine, int phase);
/* The phase is part of the step that is being submitted. */
bool lvni_trainer_phase_runs(const lvni_trainer_engine *engine, int phase);
/* No phase of the step is behind the current one. */
bool lvni_trainer_in_last_phase(const lvni_trainer_engine *engine);
/* Weights, buffers and optimizer state of the current phase, from its summed gradient. */
lvn_status lvni_trainer_update(lvni_trainer_engine *engine, const lvni_nn_set *total,
                               lvni_trainer_step_record *r);
/* step_numbers.c */
/* LVN_ERR_USAGE: one, or the momentum of a module that follows, goes until the end of a run without
 * an end. */
lvn_status lvni_trainer_numbers_check(const lvni_trainer_engine *engine);
/* Those of the step that is being submitted. */
void lvni_trainer_numbers_begin(lvni_trainer_engine *engine);
/* move_buffers.c */
/* Buffers of the current phase, after its parameters. */
lvn_status lvni_trainer_move_buffers(lvni_trainer_engine *engine, const lvni_nn_set *total);
/* How far those that follow go in the step that is being submitted, by rule. */
void lvni_trainer_follow_factors(const lvni_trainer_engine *engine,
                                 lvn_step_average factor[LVN_STEP_FOLLOWS]);
/* update.c */
/* LVN_ERR_NON_FINITE with the message of a gradient's norm. */
lvn_status lvni_trainer_fail_norm(const lvni_trainer_engine *engine, int phase, double norm,
                                  const lvni_ckpt_position *before);
/* After the last phase: the average. */
void lvni_trainer_update_average(lvni_trainer_engine *engine, const lvni_trainer_step_record *r);
lvn_status lvni_trainer_unused_begin(lvni_trainer_engine *engine);
/* of a micro-batch with samples, before others are merged into it */
void lvni_trainer_unused_record(lvni_trainer_engine *engine, const lvni_nn_set *set);
/* engine->graded is about all micro-batches of all ranks */
void lvni_trainer_unused_end_phase(lvni_trainer_engine *engine);
/* after a step; the first one counts */
void lvni_trainer_unused_report(lvni_trainer_engine *engine);

/* graph.c
 *
 * The step of a device captured and replayed (levin/backend.h: capture_begin): after a few steps
 * one is captured while modules submit it, and later ones are submitted with one call, without
 * calling modules. Their batches are copied to where the captured step reads them, and what changes
 * from step to step is in the step block. Bits are those of steps that are submitted call by call.
 *
 * A step is replayed when it has the batches of the captured one, by number and shape; others are
 * submitted. Nothing is captured where a step does what a replay would not do again: copies from
 * the host, waits for the device, batches and moving numbers that modules read on the host. */

/* Of "off", "auto", "on". */
lvni_trainer_graph_mode lvni_trainer_graph_mode_of(const char *name);
/* LVN_ERR_USAGE: LVNI_GRAPH_ON where it is known before that it does not work. */
lvn_status lvni_trainer_graph_check(const lvni_trainer_engine_options *options);
/* When everything else of the engine is there. *out NULL: steps are not captured. */
lvn_status lvni_trainer_graph_create(lvni_trainer_engine *engine, lvni_trainer_graph **out);
void lvni_trainer_graph_destroy(lvni_trainer_graph *graph); /* waits; NULL is fine */

/* Between steps: the engine's state is another one. NULL is fine. */
void lvni_trainer_graph_forget(lvni_trainer_graph *graph);

/* In place of lvni_trainer_submit_step. */
lvn_status lvni_trainer_graph_submit(lvni_trainer_engine *engine, lvni_trainer_step_record *record);
int64_t lvni_trainer_graph_replays(const lvni_trainer_graph *graph); /* steps so far; NULL: 0 */
/* The batches of the step that is being submitted are here, and not in the feed. NULL: no. */
bool lvni_trainer_graph_loaded(const lvni_trainer_graph *graph);
/* That of the rank's micro-batch i: the loader's, and on the device. */
void lvni_trainer_graph_batch(const lvni_trainer_graph *graph, int64_t i,
                              const lvni_data_loader_batch **batch,
                              const lvni_data_loader_batch **on_device);

#endif
