/* Training a module of your own: a job is a module class, datasets, and default options; lvn_main
 * reads the command line. A host program that keeps its screen, its signals and the order of things
 * to itself creates trainers (below), which fit or make single steps. */
#ifndef LEVIN_TRAINER_H
#define LEVIN_TRAINER_H

#include <levin/data.h>
#include <levin/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lvn_job {
    const lvn_module_class *module;
    /* taken: lvn_main, lvn_job_train and trainers destroy both datasets. NULL: opening it failed
     * (the thread's error has the reason) */
    lvn_dataset *train;
    /* NULL: no validation (lvn_main: unless the thread has an error, as LVN_IMAGE_FOLDER leaves
     * it) */
    lvn_dataset *val;
    /* "max_epochs=20 batch_size=256 optim=adamw": defaults; the command line wins */
    const char *options;
    const void *arguments; /* of the module's build(): lvn_builder_arguments */
    /* What a step takes beside samples of `train`; the datasets are taken as `train` is. */
    const lvn_stream *streams;
    int n_streams;   /* up to LVN_MAX_STREAMS */
    lvn_order order; /* of `train`, whose dataset may have no length: then steps_per_epoch (or
                        max_steps) is the epoch */
    void *reserved[1];
} lvn_job;

/* Train with key=value arguments (`levin help train` lists them); the run directory holds
 * checkpoints, logs and config.yaml. One at a time in a process, from one thread. While it trains
 * SIGINT, SIGTERM and SIGUSR1 are taken (they save and stop) and SIGPIPE is ignored; afterwards
 * they are as before. LVN_ERR_CANCELLED: stopped by a signal; LVN_ERR_USAGE: arguments or job;
 * LVN_ERR_NON_FINITE: loss or weights; and the errors of data, files and memory. */
LVN_API lvn_status lvn_job_train(const lvn_job *job, int n_arguments, const char *const *args);
/* The same with the arguments of main(), messages on standard error, and the exit code to return
 * from main(). Call it early: unless GOMP_SPINCOUNT or OMP_WAIT_POLICY is set, it starts the
 * program once more with its first arguments (2 ms), since OpenMP reads its settings when it is
 * loaded. */
LVN_API int lvn_main(int argc, char **argv, const lvn_job *job);

/* ---- trainers in a host program ----
 *
 *     lvn_trainer *trainer;
 *     lvn_status s = lvn_trainer_create(&job, &trainer, .log = show_line);
 *     while (s == LVN_OK && !lvn_trainer_finished(trainer)) {
 *         s = lvn_trainer_step(trainer, &report);
 *     }
 *     lvn_trainer_destroy(trainer);
 *
 * A trainer has the keys of `levin train`, and gives the bits that it gives, whatever else the
 * process does: there may be several, called in turn or from several threads. It computes in
 * threads of its own (with devices=N in N ranks, as strategy=dp), takes no signals, starts no
 * processes, prints nothing, and writes no files except those it is asked for: in the directory of
 * out=, whose rules are those of `levin train`, and with lvn_trainer_save. Exceptions:
 * accelerator=sim, for which the process gets a SIGSEGV handler; a backend's or a library's own
 * output. The first trainer checks OpenMP's settings, which are of the process; set
 * GOMP_SPINCOUNT=2000 (or OMP_WAIT_POLICY=passive) in its environment where several train at once.
 *
 * Trainers on one device share its memory, and its failures.
 *
 * One call at a time for each trainer, from any thread; LVN_ERR_USAGE for others meanwhile, and for
 * calls from callbacks (except lvn_trainer_stop and what only reads). After a fit, a step or a
 * validation that failed a trainer can be looked at and destroyed; all else is LVN_ERR_USAGE. */

typedef struct lvn_trainer lvn_trainer;

typedef enum lvn_log_level {
    LVN_LOG_DETAIL, /* with verbose=true */
    LVN_LOG_INFO,   /* without quiet=true */
    LVN_LOG_WARNING,
    LVN_LOG_ERROR
} lvn_log_level;

typedef struct lvn_metric {
    const char *name; /* as the module logs it, "loss" */
    double value;     /* the mean over samples */
} lvn_metric;

/* Made by levin; fields may be added. Valid until the trainer's next call; in a callback until that
 * returns. */
typedef struct lvn_trainer_report {
    int64_t step;          /* optimizer steps done */
    int64_t epoch;         /* of the last of them, from 1 */
    int64_t step_in_epoch; /* of the last of them, from 1 */
    int64_t samples;       /* that the step was trained on, on all ranks; else 0 */
    double lr;             /* of the step; else 0 */
    double loss;           /* the metric "loss"; NaN: there is none */
    int n_metrics;
    const lvn_metric *metric; /* of the step, the epoch, or the validation */
    bool last_of_epoch, last; /* of the run */
} lvn_trainer_report;

/* true: lvn_trainer_fit shall stop, as with lvn_trainer_stop. */
typedef bool (*lvn_trainer_callback)(void *user, const lvn_trainer_report *report);

typedef struct lvn_trainer_options {
    size_t struct_size;
    /* key=value, over those of job.options; of main's arguments: argc - 1, argv + 1 */
    int n_args;
    const char *const *args;
    /* A line of the log: one at a time, on any thread. The trainer waits meanwhile. */
    void (*log)(void *user, lvn_log_level level, const char *text);
    /* While lvn_trainer_fit runs, on the thread that called it, between two steps: after each step
     * (on a device the next one may be computing by then), after a validation, at the end of an
     * epoch with the means of it, and when the checkpoint of a step is written (`report` has step
     * alone). */
    lvn_trainer_callback on_step, on_validation, on_epoch, on_checkpoint;
    void *user; /* of the callbacks */
    /* This process is one of several ranks, and finds the others by its environment, as a rank of
     * levin launch, torchrun, srun or mpirun does: all ranks make the same calls. One trainer at a
     * time. Else variables of launchers are not looked at. */
    bool launched;
    void *reserved[4];
} lvn_trainer_options;

/* A new trainer before its first step (resume=true: where that run ended). The job is copied, its
 * `arguments` live as long as the trainer. Errors as of lvn_job_train; datasets are destroyed then,
 * too. */
LVN_API lvn_status lvn_trainer_create_with(const lvn_job *job, lvn_trainer **out,
                                           const lvn_trainer_options *options);
#define lvn_trainer_create(job, out, ...)                                                          \
    lvn_trainer_create_with(                                                                       \
        (job), (out),                                                                              \
        &(lvn_trainer_options){.struct_size = sizeof(lvn_trainer_options), __VA_ARGS__})
/* NULL is fine. Not from a callback. */
LVN_API void lvn_trainer_destroy(lvn_trainer *trainer);

/* From where it is to the end: steps, validation after each epoch, checkpoints in out=. LVN_OK also
 * after a stop; lvn_trainer_finished has the difference, and another call goes on. */
LVN_API lvn_status lvn_trainer_fit(lvn_trainer *trainer);
/* From any thread, callback or signal handler: lvn_trainer_fit ends after the step that it is in,
 * or a step or two later, on which its ranks agree (out=: with a checkpoint); when none runs, the
 * next one ends at once. Of several processes all stop, and do not go on. */
LVN_API void lvn_trainer_stop(lvn_trainer *trainer);

/* One optimizer step. No validation and no checkpoint follow, whatever the keys are. *report may be
 * left out (NULL). LVN_ERR_USAGE: the run is at its end. A loop of steps has the bits of fit;
 * LVN_ERR_USAGE with scheduler=plateau on a metric of the validation. */
LVN_API lvn_status lvn_trainer_step(lvn_trainer *trainer, const lvn_trainer_report **report);
/* The metrics of job.val on the weights of now (with ema.decay: their average, as fit does). */
LVN_API lvn_status lvn_trainer_validate(lvn_trainer *trainer, const lvn_trainer_report **report);
/* A checkpoint, as those in out=: what goes on from it goes on with the same bits. */
LVN_API lvn_status lvn_trainer_save(lvn_trainer *trainer, const char *path);
/* Go on from a checkpoint of the same model and optimizer (and, inside of an epoch, of the same
 * data and batches): LVN_ERR_USAGE else, and the trainer is as before. */
LVN_API lvn_status lvn_trainer_load(lvn_trainer *trainer, const char *path);

/* max_epochs or max_steps are done. */
LVN_API bool lvn_trainer_finished(const lvn_trainer *trainer);
LVN_API int64_t lvn_trainer_steps(const lvn_trainer *trainer); /* optimizer steps done */
/* The model's root. lvn_forward runs it on the calling thread, which must compute on the trainer's
 * device (lvn_device_use); borrowed, and not while a call of the trainer runs. */
LVN_API const lvn_module *lvn_trainer_module(const lvn_trainer *trainer);
/* The name of parameter or buffer i, parameters first; NULL: there are no more. */
LVN_API const char *lvn_trainer_tensor_name(const lvn_trainer *trainer, int i);
/* A parameter or buffer by its name ("conv1.weight"), to be read while no call of the trainer runs;
 * borrowed, on the trainer's device. NULL with LVN_ERR_NOT_FOUND. */
LVN_API lvn_tensor *lvn_trainer_tensor(const lvn_trainer *trainer, const char *name);
/* Its value becomes that of `value`: f32 of the same shape, on the host or a device. */
LVN_API lvn_status lvn_trainer_write(lvn_trainer *trainer, const char *name,
                                     const lvn_tensor *value);

#ifdef __cplusplus
}
#endif
#endif
