/* PyTorch as another process that takes training steps when told to (resnet_step.py, gpt2_step.py). */
#ifndef LEVIN_BENCH_TORCH_H
#define LEVIN_BENCH_TORCH_H

#include <levin/status.h>

#include <stdio.h>
#include <sys/types.h>

typedef struct bench_torch {
    pid_t pid; /* 0: not running */
    FILE *to, *from;
    char about[512]; /* versions, or why it is absent */
} bench_torch;

/* script: of this folder; variant: its third word. tuned: with the settings that make an installed PyTorch quicker on processors its libraries do not know. false with the
 * reason in `about` when there is no PyTorch. */
bool bench_torch_start(bench_torch *t, const char *script, const char *net, const char *file, const char *variant,
                       const char *precision, int threads, bool tuned);
/* n steps: seconds per step, seconds of all cores per step, n losses. False when the process gave no answer. */
bool bench_torch_steps(bench_torch *t, int n, double *seconds, double *core_s, double *losses);
void bench_torch_stop(bench_torch *t);

#endif
