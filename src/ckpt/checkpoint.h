/* A checkpoint: all that a run needs to go on, in one safetensors file. Called by trainer, export,
 * predict and eval.
 *
 * Names of tensors:  model/<name>         parameters and buffers
 *                    optim/<slot>/<name>  the optimizer's state of parameter <name>; slot:
 *                                         "exp_avg", "momentum", ...
 *                    trainer/<name>       all else that the loop carries (averages, metric sums)
 * Metadata: the keys below, then what the caller adds under keys that do not begin with "levin.".
 */
#ifndef LEVIN_CKPT_CHECKPOINT_H
#define LEVIN_CKPT_CHECKPOINT_H

#include "ckpt/safetensors.h"

#define LVNI_CKPT_MODEL "model/"
#define LVNI_CKPT_OPTIM "optim/"
#define LVNI_CKPT_TRAINER "trainer/"
#define LVNI_CKPT_AVERAGE LVNI_CKPT_TRAINER "ema/" /* as model/, of a run with averaged weights */

#define LVNI_CKPT_FORMAT "levin.format" /* "checkpoint 1" */
#define LVNI_CKPT_STEP "levin.step"
#define LVNI_CKPT_EPOCHS_DONE "levin.epochs_done"
#define LVNI_CKPT_EPOCH "levin.epoch" /* its name in files of the first version */
#define LVNI_CKPT_STEP_IN_EPOCH "levin.step_in_epoch"
#define LVNI_CKPT_SAMPLES_SEEN "levin.samples_seen"
#define LVNI_CKPT_BEST_SCORE "levin.best_score"
#define LVNI_CKPT_BEST_STEP "levin.best_step"
#define LVNI_CKPT_FINISHED "levin.finished"
#define LVNI_CKPT_CONFIG "levin.config"
#define LVNI_CKPT_SCALER "levin.scaler"
#define LVNI_CKPT_SCHEDULE "levin.schedule"
#define LVNI_CKPT_AVERAGED "averaged" /* of a mean of several files: how many */
#define LVNI_CKPT_RUN_ID "run_id"     /* extra: of the run that wrote it (run/run_dir.h) */

typedef struct lvni_ckpt_position {
    int64_t step;          /* optimizer steps done */
    int64_t epoch;         /* epochs done: the next step is one of epoch + 1 */
    int64_t step_in_epoch; /* steps done of the epoch after these */
    int64_t samples_seen;
    double best_score; /* NaN: none yet */
    int64_t best_step; /* -1: none yet */
    /* the run came to its end; resuming it does nothing unless the end was moved */
    bool finished;
} lvni_ckpt_position;

/* What to save; everything borrowed for the call. */
typedef struct lvni_ckpt_content {
    lvni_ckpt_position at;
    const char *config;   /* JSON of the resolved config, without layout; NULL: "{}" */
    const char *scaler;   /* state of the loss scaler as text, NULL: none */
    const char *schedule; /* state of the schedule as text, NULL: none */
    const lvni_ckpt_st_meta *extra;
    int64_t n_extra;
    const lvni_ckpt_st_tensor *tensors;
    int64_t n_tensors;
} lvni_ckpt_content;

/* Atomic and synced. Status as lvni_ckpt_st_save(). */
lvn_status lvni_ckpt_save(const char *path, const lvni_ckpt_content *content);

typedef struct lvni_ckpt {
    char *path;
    lvni_ckpt_position at;
    const char *config, *scaler, *schedule; /* as above; scaler and schedule may be NULL */
    /* the tensors; other metadata with lvni_ckpt_st_meta_get() */
    lvni_ckpt_st_file *file;
} lvni_ckpt;

/* Checksums verified. As lvni_ckpt_st_open(), and LVN_ERR_MISMATCH when the file is sound but not
 * a checkpoint. */
lvn_status lvni_ckpt_load(const char *path, lvni_ckpt **out);
/* The same without the tensors (position, config, names and shapes): fast on a large file. */
lvn_status lvni_ckpt_peek(const char *path, lvni_ckpt **out);
void lvni_ckpt_free(lvni_ckpt *ckpt); /* NULL is fine */

/* The newest checkpoint in dir (files *.safetensors) that is whole: highest step, then last, then
 * others, then best. Damaged or unreadable ones are reported to `warn` (may be NULL), one
 * sentence each, and passed over. LVN_ERR_NOT_FOUND: dir has none; LVN_ERR_CORRUPT: it has some and
 * none is valid. */
lvn_status lvni_ckpt_newest_valid(const char *dir, void (*warn)(void *user, const char *text),
                                  void *user, lvni_ckpt **out);

/* What a user means by a path: of a run directory its last checkpoint
 * (checkpoints/last.safetensors), else the path itself. *file is freed by the caller
 * (lvni_core_free). LVN_ERR_NOT_FOUND: a folder without a checkpoint. */
lvn_status lvni_ckpt_file_of(const char *path, char **file);

/* All that a path means: of a run directory its checkpoints, by name, else the path itself. Freed
 * by the caller. LVN_ERR_NOT_FOUND: a folder without checkpoints. */
lvn_status lvni_ckpt_files_of(const char *path, char ***files, int64_t *n);
void lvni_ckpt_files_free(char **files, int64_t n);

/* Writes the mean of the weights of n files of one kind to `out`: of checkpoints, of parameters,
 * buffers and their running averages; else of all tensors. In f64, in an order that does not depend
 * on that of the files, then rounded to the type of the tensor. Other metadata is that of the first
 * file. LVN_ERR_MISMATCH: other names, shapes or types. */
lvn_status lvni_ckpt_average(const char *const *paths, int n, const char *out, int64_t *n_tensors);

/* Make `to` the same file as `from` (best from last): a hard link, or a synced copy where links are
 * not available. Replaces `to` in one step; on failure the old `to` stays. */
lvn_status lvni_ckpt_link(const char *from, const char *to);

/* ---- `levin ckpt hash FILE`: do two runs have the same bits? ----
 *
 * weights: XXH3-128 over the tensors called model/... (parameters and buffers), in the byte order
 *          of their names: name without "model/", dtype, shape, bytes. In a file without any
 *          model/... (an exported model) every tensor is a weight.
 * state:   the same over all tensors of the file with their full names, followed by the metadata
 *          levin.step, levin.epochs_done, levin.samples_seen, levin.scaler, levin.schedule where
 *          present. Never the config, the layout, the run's name or a time.
 *
 * The numbers are of the tensors as they are in the file, damaged ones included. */

typedef struct lvni_ckpt_hashes {
    char weights[33], state[33]; /* 32 hex digits */
    int64_t n_damaged;
    char **damaged; /* names of tensors whose checksum does not match; "__metadata__" stands for the
                       header. Owned */
} lvni_ckpt_hashes;

/* LVN_OK also when checksums do not match (look at n_damaged: the command prints them and leaves
 * with 1); LVN_ERR_CORRUPT when the form of the file is broken, otherwise as lvni_ckpt_st_open().
 * Free with lvni_ckpt_hashes_free(). */
lvn_status lvni_ckpt_hash_file(const char *path, lvni_ckpt_hashes *out);
void lvni_ckpt_hashes_free(lvni_ckpt_hashes *hashes);

#endif
