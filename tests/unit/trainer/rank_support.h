/* Ranks of a trainer's test: each a thread of this process, with its own model and trainer. */
#ifndef LEVIN_TESTS_RANK_SUPPORT_H
#define LEVIN_TESTS_RANK_SUPPORT_H

#include "trainer_support.h"

#include <levin/device.h>

enum { MOST_RANKS = 6 };

/* One rank, when it has ended. */
typedef struct rank_run {
    lvn_status status;
    lvn_error error; /* of the step that failed */
    uint64_t hash;   /* bench_hash */
} rank_run;

/* `steps` steps of `world` ranks, up to MOST_RANKS, through the ends of epochs. As the trainer's
 * loop: a step that fails ends the others. */
void ranks_run(const memory *data, const setting *s, int world, int steps,
               rank_run run[MOST_RANKS]);
/* The same, rank i on device i of a kind. */
void ranks_run_on(const memory *data, const setting *s, int world, int steps, lvn_device_kind kind,
                  rank_run run[MOST_RANKS]);
/* What one rank makes of it, on a device; the test fails when a step does. */
uint64_t ranks_hash_of_one(const memory *data, const setting *s, int steps, lvn_device device);
/* All of `world` ranks on the CPU have the bits `want`; else the test fails with `what`. */
void ranks_agree(const char *what, const memory *data, const setting *s, int world, int steps,
                 uint64_t want);
void ranks_agree_on(const char *what, const memory *data, const setting *s, int world, int steps,
                    uint64_t want, lvn_device_kind kind);

#endif
