/* PyTorch as another process that takes training steps on request (resnet_step.py, gpt2_step.py,
 * ddp_step.py). */
#ifndef LEVIN_BENCH_TORCH_H
#define LEVIN_BENCH_TORCH_H

#include "bench_child.h"

typedef struct bench_torch {
    bench_child child;
    char about[512]; /* versions, or why it is absent */
} bench_torch;

/* The ways in which PyTorch runs a script; the quickest is the one to beat. */
enum { BENCH_VARIANTS = 4, BENCH_EQUAL_STEPS = 5, BENCH_TURN_STEPS = 2 };
typedef struct bench_variant {
    const char *name, *arg; /* in reports; for the script */
    bool tuned;
} bench_variant;
extern const bench_variant bench_layouts[BENCH_VARIANTS]; /* of images */

typedef struct bench_torch_job {
    const char *script, *net, *file, *precision;
    const bench_variant *variants;
    int threads;
} bench_torch_job;

/* script: of this folder; variant: its third argument. tuned: with the settings that make an
 * installed PyTorch quicker on processors its libraries do not know. false with the reason in
 * `about` when there is no PyTorch. */
bool bench_torch_start(bench_torch *t, const char *script, const char *net, const char *file,
                       const char *variant, const char *precision, int threads, bool tuned);
/* n steps: seconds per step, seconds of all cores per step, n losses. False when the process gave
 * no answer. */
bool bench_torch_steps(bench_torch *t, int n, double *seconds, double *core_s, double *losses);
/* BENCH_EQUAL_STEPS steps of all variants from the file's weights, and BENCH_TURN_STEPS that are
 * timed; the quickest stays. Prints how they did. Its name, and its losses of the equal steps;
 * NULL: there is no PyTorch. */
const char *bench_torch_choose(bench_torch *t, const bench_torch_job *job, double *losses);
/* Prints losses of the BENCH_EQUAL_STEPS equal steps. */
void bench_print_losses(const char *name, const double *losses);
/* None of the equal steps' losses is further than `tolerance` from the other side's. */
bool bench_close_losses(const double *a, const double *b, double tolerance);
void bench_torch_stop(bench_torch *t);

#endif
