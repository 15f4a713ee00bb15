/* A training step of levin against PyTorch's on the same machine: equal weights, equal batch, in
 * turns. The frame of bench_resnet_step, bench_gpt2_step and bench_gan_step.
 *
 * PyTorch runs in four variants (two ways, as installed and with the settings that help it); the
 * quickest is the one to beat. Printed are the losses of the first steps, seconds per step and
 * their ratio as median [least, largest] of the turns, the same in seconds of all cores (which mean
 * something on a busy machine too), and where levin's time goes. Without PyTorch levin runs
 * alone. */
#ifndef LEVIN_BENCH_DUEL_H
#define LEVIN_BENCH_DUEL_H

#include "bench_torch.h"

#include "nn/model.h"
#include "optim/optim.h"

#include <levin/data.h>

typedef struct bench_duel bench_duel;
struct bench_duel {
    const char *net, *precision;
    const char *about;  /* of the batch, for the headline */
    const char *script; /* PyTorch's side, in this folder */
    const char *arg;    /* the script's first argument */
    const bench_variant *variants;
    int side; /* of an image; 0 where there are none */
    int64_t batch;
    lvni_optim_options optim;
    double line;           /* times as fast as PyTorch, at least */
    double memory_line;    /* peak memory as a part of PyTorch's, at most; 0: any */
    const char *losses[2]; /* metrics whose sum is the loss; none: "loss" */
    /* of equal steps. In bf16 the two sides round at different places: only far losses are a
     * fault. */
    double loss_tolerance;
    /* The model (the caller destroys it) and the batch as a dataset, which `close` closes. */
    lvn_status (*open)(const bench_duel *d, lvni_nn_model **model, lvn_dataset **data);
    void (*close)(lvn_dataset *data);
};

/* usage: PROGRAM [NET [PRECISION [TURNS [WGRAD_THREADS]]]]; wgrad_threads is the number of cores,
 * unless a run that began with fewer is to be timed. Writes out/bench/NAME.json. Exit code 1:
 * losses differ or a line is missed, which is not judged when other programs used more than 5 % of
 * the cores meanwhile. */
int bench_duel_main(int argc, char **argv, const char *name, const bench_duel *duels, int n);

#endif
