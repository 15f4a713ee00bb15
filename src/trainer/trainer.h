/* The trainer: one model, one training set, one optimizer, on this process's lanes. Made by a
 * recipe, run by lvni_trainer_fit.
 *
 *   engine.h    the step engine: one optimizer step
 *   logging.c    what is logged: metrics.jsonl, loggers, the progress line, the epoch's sums
 *   checkpointing.c    checkpoints, the signal that stops all ranks; choose.c: which are best and
 * kept; save.c writes them beside the training, state.c: what they hold, identity.c: are they of
 * this run? loop.c      epochs: steps, and what happens between them; validate.c: validation;
 * monitors.c: rates, the end and the best that follow from metrics (early.h) clock.c     what is
 * due by the clock drive.c     the same, driven by a caller: step, validate, save, load trainer.c
 * create and destroy On their own: evaluate.c, validation and prediction in fixed chunks; memory.h,
 * what a run would take. */
#ifndef LEVIN_TRAINER_TRAINER_H
#define LEVIN_TRAINER_TRAINER_H

#include "control/control.h"
#include "log/progress.h"
#include "trainer/early.h"
#include "trainer/engine.h"
#include "trainer/kept.h"

struct lvni_log_metrics;                              /* log/metrics.h */
struct lvni_log_loggers;                              /* log/loggers.h */
typedef struct lvni_trainer_saver lvni_trainer_saver; /* save.c */

/* What a host program is shown of a run, on this rank's thread, between two steps; each may be
 * NULL. */
typedef struct lvni_trainer_hooks {
    void (*step)(void *user, const lvni_trainer_step_result *result);
    void (*validation)(void *user);               /* report.last_val */
    void (*epoch)(void *user);                    /* report.epoch_sum */
    void (*checkpoint)(void *user, int64_t step); /* checkpoints/last is written */
    void *user;
} lvni_trainer_hooks;

/* Images of the first samples that a validation sees, of the rank that has them: the first. */
typedef struct lvni_trainer_preview {
    /* Before a validation at this position. */
    bool (*is_due)(void *user, const lvn_module *root, const lvni_plan *plan,
                   const lvni_ckpt_position *at);
    /* On a lane, behind the validation step of this batch; NULL: its error, and without one
     * nothing is drawn. */
    lvn_tensor *(*images)(const lvn_module *root, const lvn_batch *batch, void *user);
    /* When all went well: a copy in host memory. */
    void (*take)(void *user, const float *images, const int64_t *shape, int64_t step);
    void *user;
} lvni_trainer_preview;

/* Training samples of which each has several views: a row of tiles, `gap` pixels apart. */
typedef struct lvni_trainer_page {
    const uint8_t *rgb; /* (height, width, 3) */
    int width, height;
    int tile_width, tile_height, gap, columns, rows;
    const char *const *column, *const *row; /* what they are, UTF-8 */
} lvni_trainer_page;

/* Rows of a batch, (N, K), and what becomes of each: evaluate.c. */
typedef lvn_tensor *(*lvni_trainer_predict_output)(const lvn_module *root, const lvn_batch *batch,
                                                   void *user);
typedef lvn_status (*lvni_trainer_predict_row)(void *user, int64_t sample, const float *value,
                                               int64_t n_values);

/* A validation whose numbers follow from the rows of all samples together, in place of the means
 * of what the validation step logs. Ranks divide the samples; rank 0 alone has the state, gets the
 * rows of all in the order of the data, and all ranks get its numbers. It sees the whole set,
 * whatever val_chunks is; one of sanity_chunks sees the first. */
typedef struct lvni_trainer_evaluation {
    lvni_trainer_predict_output output; /* on the threads of lanes; NULL: means are taken */
    lvn_status (*begin)(void *user, void **state);
    lvni_trainer_predict_row row; /* user: the state */
    /* Gives its numbers with lvn_log_number, under the same names whatever it has seen. */
    lvn_status (*finish)(void *state, lvn_step *step);
    void (*end)(void *state); /* also of a state that begin left unfinished; NULL is fine */
    void *user;               /* of output and begin */
} lvni_trainer_evaluation;

/* Which checkpoints are written and kept (choose.c). */
typedef struct lvni_trainer_keep_options {
    const char *monitor;   /* what is best by "val/NAME" or "train/NAME"; NULL: by val/acc, else
                              val/loss, else train/loss */
    bool newest_is_best;   /* without a monitor and a validation */
    bool larger_is_better; /* of the monitor */
    int64_t save_top_k;    /* under names of their own: the k best, -1: all; 0: none */
    /* beside these the checkpoint of every so many epochs, which stays; 0: none */
    int64_t keep_every_n_epochs;
    const char *filename;   /* of both: file_pattern.h */
    bool names_in_filename; /* "epoch=" before the value */
    int64_t every_n_steps;  /* 0: off */
    int64_t every_n_epochs; /* 0: 1 */
    double every_s;         /* by rank 0's clock; 0: off */
} lvni_trainer_keep_options;

typedef struct lvni_trainer_options {
    lvni_nn_model *model; /* borrowed, as all pointers here */
    const lvn_dataset *train;
    const lvn_dataset *val; /* NULL: no validation */
    lvni_trainer_evaluation evaluation;
    lvni_plan plan;
    lvni_optim_options optim;
    lvni_optim_rules rules; /* all zero: every parameter alike */
    lvni_optim_schedule schedule;
    lvni_optim_plateau_options plateau; /* with a schedule of that kind */
    lvni_optim_curve weight_decay;      /* steps 0: it is optim.weight_decay throughout */
    lvni_optim_ema_options ema;
    bool use_ema; /* validation and export_model see the average */
    lvni_trainer_precision precision;
    double gradient_clip_val; /* 2-norm; 0: off */
    bool detect_anomaly;      /* kernels/anomaly.h, in every micro-batch */
    lvni_trainer_bad_batch on_bad_batch;
    lvni_trainer_phase_options phase[LVNI_PHASES];
    uint64_t seed;
    lvni_trainer_graph_mode graph;
    int64_t max_epochs;            /* -1: no limit */
    int64_t max_steps;             /* -1: no limit */
    int64_t min_epochs, min_steps; /* before early stopping ends the run */
    double max_time_s;             /* of training, with what came before a resume; 0: no limit */
    /* rank 0: as if SIGUSR1 came at this time (lvni_core_now_ns), or twice the longest save before;
     * 0: never. When it has come stop_later gives a later one, or 0: it stays (NULL: always). */
    uint64_t stop_ns;
    uint64_t (*stop_later)(void);
    lvni_trainer_early_options early;
    /* validation: after every n-th epoch (0: 1), there after the step that has every so manieth
     * batch, of which a step has plan.accumulate (0: after the last), of so many chunks (0: all);
     * and of so many before the first step, whose result is not kept (-1: all) */
    int64_t val_every_n_epochs, val_every_n_batches, val_chunks, sanity_chunks;
    double val_every_s; /* instead of batches: by rank 0's clock; 0: off */
    int workers;        /* loader threads */
    /* That each of them keeps to decode samples; for the prediction of memory alone. */
    size_t worker_bytes, val_worker_bytes;
    bool skip_unreadable;
    bool headers_read; /* of the data, and accepted: not skipping ends only where many fail */
    bool balanced;     /* samples are drawn with replacement, classes alike (data/sampler.h) */
    lvn_order order;   /* of the training set, not balanced */
    const lvn_stream *stream; /* those of the plan, in its order; NULL: none */
    /* of plan.devices ranks; NULL: one. Every rank has a trainer, with the same options except
     * plan.rank; out, export_model and the run's messages are rank 0's */
    lvni_dist_comm *comm;
    /* of this process, where it is one rank of several: gets every step, so that a lost rank is
     * reported with its step; NULL: none */
    lvni_control *control;
    int64_t bucket_bytes;                   /* of gradients that travel at once; with a comm */
    int sharded_stage;                      /* strategy=sharded: 1 or 2; with a comm. Else 0 */
    const struct lvni_trainer_units *units; /* of a staged plan: the model's, cut (units.h) */
    const char *out;                        /* run directory, exists; NULL: nothing is written */
    lvni_trainer_keep_options keep;
    int64_t log_every_n_steps;
    const char *const *loggers; /* n_loggers names (log/loggers.h), with `out` */
    size_t n_loggers;
    /* floating-point operations of forward and backward for a sample (memory.h), and how many a
     * device can do in a second; 0: not known */
    double sample_flops, peak_flops;
    bool log_histograms; /* of the parameters, with each checkpoint */
    bool quiet;
    bool profiles;           /* lvni_trainer_fit logs where its time went (profile.h) */
    const char *config_json; /* for checkpoints */
    const char *run_id;      /* for checkpoints; NULL: none */
    /* of all ranks (identity.h), for checkpoints; NULL: this rank's */
    const char *machine;
    bool same_hardware; /* a checkpoint of another machine is refused */
    /* of what the files of the data hold, for checkpoints (identity.h); 0: it is not files */
    uint64_t data_files;
    bool same_files; /* a checkpoint of other files under the same names is refused */
    /* that decide the model's shape, for errors: "model and model.*"; NULL: not known */
    const char *model_keys;
    /* what was trained, and the model's description of itself, for checkpoints; key NULL: none */
    lvni_ckpt_st_meta recipe, card;
    /* Write the model for others; called beside each `last` and `best`, in a thread of its own
     * while training goes on. May be NULL. name: "last" or "best"; values: the model's n_values
     * after `step`, laid out as its `weights`, which is in use by then. */
    lvn_status (*export_model)(void *user, const char *name, const float *values, int64_t step);
    void *user;
    lvni_trainer_hooks hooks;
    lvni_trainer_preview preview;
    /* Write such a page as a PNG file, with captions; size: its pixels, width and height. NULL:
     * without. */
    lvn_status (*write_page)(const char *path, const lvni_trainer_page *page, int size[2]);
} lvni_trainer_options;

/* What a run logs while it runs (logging.c). */
typedef struct lvni_trainer_logging {
    const lvni_trainer_options *o;
    struct lvni_log_metrics *log;     /* metrics.jsonl; NULL: not open */
    struct lvni_log_loggers *loggers; /* NULL: none */
    bool resumed;     /* from a checkpoint, also one of step 0: what was logged before stays */
    lvn_status ended; /* how the newest call that made steps did */
    lvni_log_progress progress;
    lvni_nn_step epoch_sum; /* metrics of the epoch so far, without skipped steps */
    lvni_nn_step last_val;  /* of the newest validation */
    int64_t samples;        /* trained on since start_ns */
    uint64_t start_ns;
    double earlier_s;   /* that the run took before it was resumed */
    uint64_t waited_ns; /* for the loader of this rank, since that was made */
    /* at the last measurement; since then samples and steps per second, the part of the time
     * that went by for batches, and the cores that the process kept busy */
    int64_t logged_at, logged_at_step;
    uint64_t waited_at_ns;
    double logged_at_s, cpu_at_s;
    double halted_at_s, halted_cpu_s; /* the newest halt */
    double rate, step_rate, wait_share, cpu_cores;
} lvni_trainer_logging;

/* What a run leaves behind, and when it ends early (checkpointing.c, save.c). */
typedef struct lvni_trainer_checkpointing {
    lvni_trainer_saver *saver; /* NULL before the first save */
    uint64_t data_identity;    /* of the training set (identity.h) */
    uint64_t stream_identity[LVN_MAX_STREAMS];
    /* of checkpoints/last, as far as it is known to be written; -1: none yet */
    int64_t saved_step;
    /* of which rank 0's copy has the state of all ranks; -1: none. With a sharded stage */
    int64_t gathered_step;
    /* after a failure: where the run can go on, to stand behind the error's message, which other
     * ranks replace by that of the rank that failed first; "": nothing to add */
    char kept[768];
    /* that asked some rank to stop, as of the last step; the same on all ranks */
    int signal;
    bool save_asked;     /* of rank 0, as of the last step, on all ranks; with a sharded stage */
    bool stop_asked;     /* the control channel knows of this rank's signal */
    uint64_t saved_ns;   /* when the newest save began, or the run */
    uint64_t longest_ns; /* of all saves of this process */
    bool at_limit;       /* stop_ns has come */
    bool timed;          /* within lvni_trainer_fit: the end by the clock counts */
    /* rank 0, with a run directory: under names of their own; the newest of them, once it has been
     * chosen: "" is none */
    lvni_trainer_kept files;
    char next_name[LVNI_FILE_NAME];
    int64_t next_step;
    double next_score;
    bool next_stays; /* keep_every_n_epochs */
} lvni_trainer_checkpointing;

typedef struct lvni_trainer {
    lvni_trainer_options o;
    lvni_ckpt_position at; /* between two steps: after those that were submitted */
    /* submitted and not collected: n_open of them, the oldest first */
    lvni_trainer_step_record open[LVNI_DEFERRED_STEPS];
    int first_open, n_open;
    lvni_data_loader *loader, *val_loader; /* NULL until needed */
    /* what they note; NULL: the first sample that cannot be read is an error */
    lvni_data_unreadable *unreadable, *val_unreadable;
    lvni_trainer_engine *engine;
    lvni_trainer_early early;
    uint64_t validated_ns;   /* when that ended, or the run began */
    uint64_t unvalidated_ns; /* before this start, since the newest validation */
    bool validation_asked;   /* of rank 0's clock, as of the last step; the same on all ranks */
    int64_t validated_step;  /* of the newest validation; -1: none */
    bool previews;           /* an evaluation makes images, too: */
    struct {
        float *values; /* NULL: none yet */
        int64_t shape[LVN_MAX_NDIM];
    } images;
    lvni_trainer_logging report;
    lvni_trainer_checkpointing checkpointing;
} lvni_trainer;

/* Whether where it computes and these options go together (cuda_graph=on, on_bad_batch), before
 * anything is made: LVN_ERR_USAGE. A trainer's creation asks, too. */
lvn_status lvni_trainer_check(const lvni_trainer_options *options);
/* trainer.c, state.c, loop.c */
lvn_status lvni_trainer_create(const lvni_trainer_options *options, lvni_trainer **out);
void lvni_trainer_destroy(lvni_trainer *trainer);
/* Continue from a checkpoint: before lvni_trainer_fit. LVN_ERR_USAGE when it is of another model,
 * optimizer or (within an epoch) run. */
lvn_status lvni_trainer_restore(lvni_trainer *trainer, const lvni_ckpt *ckpt);
/* Train to the end. LVN_ERR_CANCELLED: stopped by a signal, the checkpoint is written; another call
 * goes on. */
lvn_status lvni_trainer_fit(lvni_trainer *trainer);
/* Nothing is left to do: neither steps nor the validation of the last epoch. */
bool lvni_trainer_finished(const lvni_trainer *trainer);
/* What ended the run, "max_steps=60", into size bytes; "" where it is not at its end. */
void lvni_trainer_end_reason(const lvni_trainer *trainer, char *text, size_t size);
/* No step follows on this position; the last epoch may lack its validation. */
bool lvni_trainer_ends_at(const lvni_trainer *trainer, const lvni_ckpt_position *at);

/* One optimizer step: submitted to the engine, and collected (loop.c). */
lvn_status lvni_trainer_step(lvni_trainer *trainer, lvni_trainer_step_result *result);

/* ---- instead of lvni_trainer_fit: a caller that drives the steps (drive.c); collectives of the
 * ranks, except lvni_trainer_save_as ---- */
/* The next step, logged as those of lvni_trainer_fit are. The end of an epoch is logged, and is
 * without validation and checkpoint. LVN_ERR_USAGE: the run is at its end. */
lvn_status lvni_trainer_advance(lvni_trainer *trainer, lvni_trainer_step_result *result);
/* Of now: result in report.last_val. */
lvn_status lvni_trainer_validate(lvni_trainer *trainer);
/* The next step is that one of the epoch; what lies between is left out. For finders, which have to
 * see its short last step. */
void lvni_trainer_skip_to(lvni_trainer *trainer, int64_t step_in_epoch);
/* The state of now as a checkpoint at this path, by any rank alone. */
lvn_status lvni_trainer_save_as(lvni_trainer *trainer, const char *path);
/* lvni_trainer_restore at any time between two steps. When it fails the trainer is as before. */
lvn_status lvni_trainer_load(lvni_trainer *trainer, const lvni_ckpt *ckpt);

/* logging.c: metrics.jsonl, loggers and the progress line */
/* step: steps done. ends_again: the newest one's validation, or the end of its epoch, is still to
 * come; what an earlier start has logged of them goes. */
lvn_status lvni_trainer_logging_open(lvni_trainer_logging *report, int64_t step, bool ends_again);
/* Around a validation or a save: its time is not part of the throughput. */
void lvni_trainer_logging_halt(lvni_trainer_logging *report);
void lvni_trainer_logging_continue(lvni_trainer_logging *report);
void lvni_trainer_logging_close(lvni_trainer_logging *report);
/* Into the epoch's sums. LVN_ERR_INVALID: its steps report too many different metrics. */
lvn_status lvni_trainer_logging_add(lvni_trainer_logging *report,
                                    const lvni_trainer_step_result *result);
lvn_status lvni_trainer_logging_step(lvni_trainer_logging *report,
                                     const lvni_trainer_step_result *result, bool last_of_epoch);
/* Of training: a resumed run goes on counting where its last line ended. */
double lvni_trainer_logging_seconds(const lvni_trainer_logging *report);
/* Means of a validation that is not an epoch's. */
lvn_status lvni_trainer_logging_validation(lvni_trainer_logging *report,
                                           const lvni_ckpt_position *at);
/* The same, and a line for people: of a validation within an epoch. */
lvn_status lvni_trainer_logging_within_epoch(lvni_trainer_logging *report,
                                             const lvni_ckpt_position *at);
/* Means of the epoch and of validation, after its last step. */
lvn_status lvni_trainer_logging_epoch(lvni_trainer_logging *report, const lvni_ckpt_position *at,
                                      const lvni_trainer_scaler *scaler, bool validated);
/* The mean of a metric; NaN when there is none, or nothing of it had weight. */
double lvni_trainer_metric_mean(const lvni_nn_step *step, const char *name);
bool lvni_trainer_metric_exists(const lvni_nn_step *step, const char *name); /* validate.c */
/* Samples of a validation; 0: the run comes to none. */
int64_t lvni_trainer_validation_length(const lvni_trainer_options *options);
/* Sums for a checkpoint: [["loss", sum, weight], ...], exact. Reading: LVN_ERR_CORRUPT (without the
 * file's name) when it is anything else. */
lvn_status lvni_trainer_epoch_sums_write(const lvni_nn_step *sums, lvni_core_str *out);
lvn_status lvni_trainer_epoch_sums_read(const char *text, lvni_nn_step *sums);

/* save.c */
/* The state in a checkpoint at this path, written when this returns. */
lvn_status lvni_trainer_save_at(const lvni_trainer *trainer, const char *path);
/* With a sharded stage: the state of now of all ranks into rank 0's copy, unless it is there. A
 * collective before each lvni_trainer_save_start. */
lvn_status lvni_trainer_save_gather(lvni_trainer *trainer);
/* Copy the state, and begin to write it: checkpoints/last (best: as best, too) and the exported
 * models. Waits for the save before, and returns its error. */
lvn_status lvni_trainer_save_start(lvni_trainer *trainer, bool best);
/* The error of a save that is done, once; without waiting for one that is not. */
lvn_status lvni_trainer_save_poll(lvni_trainer *trainer);
/* Everything that was started is written, or its error is returned. */
lvn_status lvni_trainer_save_wait(lvni_trainer *trainer);
void lvni_trainer_saver_destroy(lvni_trainer_saver *saver); /* waits; NULL is fine */

/* evaluate.c */
/* Numbers that a lane's chunks leave on a device: those of two waves. */
enum { LVNI_EVALUATION_SLOTS = 2 * LVNI_METRIC_SLOTS };
/* Metrics of a dataset in evaluation mode: chunks of plan->eval_batch_size dealt to the lanes,
 * added in chunk order; over all ranks of `comm` (NULL: one), each of which has a loader of its
 * chunks, with the same result. LVN_ERR_CANCELLED on all ranks when one was sent a signal. */
lvn_status lvni_trainer_evaluate(const lvni_nn_model *model, lvni_data_loader *loader,
                                 lvni_trainer_lanes *lanes, lvni_dist_comm *comm,
                                 lvni_nn_step *result);
/* The same with the trainer's model, lanes, ranks and evaluation; max_time and the job's limit end
 * it as a signal does. The loader has chunks in turn where there is an evaluation. */
lvn_status lvni_trainer_evaluate_within(lvni_trainer *trainer, lvni_data_loader *loader,
                                        lvni_nn_step *result);
/* Let the model stand for its average, if there is one and use_ema is on, and for its own weights
 * again. */
void lvni_trainer_show_average(const lvni_trainer *trainer, bool average);
/* The rows of output(root, batch, user), which is (N, K): row(user, sample index, K values) in
 * order. Over the ranks of `comm` (NULL: one), each of which has a loader of its chunks in turn,
 * rank 0 gets the rows of all, a wave of chunks at a time; where loaders have contiguous runs of
 * chunks, all rows but in another order. LVN_ERR_CANCELLED as above. */
lvn_status lvni_trainer_predict(const lvni_nn_model *model, lvni_data_loader *loader,
                                lvni_trainer_lanes *lanes, lvni_dist_comm *comm,
                                lvni_trainer_predict_output output, lvni_trainer_predict_row row,
                                void *user);

/* checkpointing.c: the signal that stops the run (core/signals.h); several ranks agree on one. */
void lvni_trainer_stop_install(void); /* handlers, and nothing agreed yet */
int lvni_trainer_stop_signal(void);   /* the agreed one, else this process's own; 0: none */
/* the ranks agreed to stop for it: from now on that is the one; 0: nothing */
void lvni_trainer_stop_record(int signal_number);
/* max_time ended the training, and what follows it is not to end at once; no rank may still train.
 * A signal stays one. */
void lvni_trainer_stop_forget_time(void);

#endif
