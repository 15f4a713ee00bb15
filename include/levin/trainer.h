/* Training a module of your own: a job is a module class, datasets, and default options; lvn_main
 * reads the command line. */
#ifndef LEVIN_TRAINER_H
#define LEVIN_TRAINER_H

#include <levin/data.h>
#include <levin/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lvn_job {
    const lvn_module_class *module;
    /* taken: lvn_main and lvn_job_train destroy both datasets. NULL: opening it failed (the
     * thread's error has the reason) */
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

#ifdef __cplusplus
}
#endif
#endif
