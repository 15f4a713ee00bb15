/* Pinned choices of a run. EXPERIMENTAL.
 *
 * For a backend, or a module, that has several ways to compute something, picks one by measuring,
 * and whose results depend on it ("algorithm 5 is the quickest for this convolution here"). What is
 * recorded here belongs to the run: checkpoints, exported models and config.yaml (`pins=`) carry
 * it, all ranks have the same, and a resumed run finds it, on whatever layout:
 *
 *     const char *choice = lvn_pin_get("mine.conv1");
 *     if (choice == NULL && lvn_pin_record("mine.conv1", measured, &choice) != LVN_OK) ...
 *
 * A key is `backend.name`; keys and values hold up to 127 letters, digits and . _ - + : / alone. */
#ifndef LEVIN_PINS_H
#define LEVIN_PINS_H

#include <levin/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The value that the run of the calling thread (a lane, a rank) has for `key`; NULL: none yet, or
 * no run. Valid until the run ends. Takes a lock and a search: look up once. */
LVN_API const char *lvn_pin_get(const char *key);
/* Records the choice for the run. The first value of a key stays, over all lanes and ranks:
 * *counts, which is valid as long as that of lvn_pin_get, is the one to compute with. May wait for
 * another rank that records the same key. Outside a run nothing is kept, and *counts is `value`.
 * LVN_ERR_INVALID for other texts than above; LVN_ERR_TIMEOUT, LVN_ERR_PEER for the other ranks. */
LVN_API lvn_status lvn_pin_record(const char *key, const char *value, const char **counts);

/* ---- candidates of a device's library (autotune=true) ----
 *
 * For the backend of a device whose library has several algorithms for a problem, of which the
 * first is used unless another one is known to be quicker. Before the first step of a run with
 * autotune=true, rank 0 computes a micro-batch of each size; `measures` is true then, and there
 * alone. For each problem that it meets the backend runs the candidates on the operands that it
 * has, and records the quickest, of equally quick ones the first. All ranks compute with these,
 * and so does a resumed run; a problem that was not met then, such as one of evaluation, with
 * candidate 0.
 *
 *     const lvn_autotune now = lvn_autotune_now();
 *     if (plan->run != now.run && now.measures) {
 *         plan->choice = measure(plan);
 *         status = lvn_autotune_record("gemm", problem, &plan->choice);
 *     } else if (plan->run != now.run) {
 *         plan->choice = lvn_autotune_choice("gemm", problem);
 *     }
 *     plan->run = now.run;
 *
 * Candidates are numbered in an order that is the same on devices with the same fingerprint
 * (levin/backend.h). Choices of a device with another one do not count: `run` is 0 then. */
typedef struct lvn_autotune {
    uint64_t run;  /* whose choices the calling thread has; 0: none, every choice is 0 */
    bool measures; /* never while a step is captured by this thread */
} lvn_autotune;
LVN_API lvn_autotune lvn_autotune_now(void);
/* Of one of the backend's libraries (letters and digits, up to 31) the candidate for a problem, a
 * 64-bit hash of all that it depends on: types, shapes, layout, alignment. Takes a lock and a
 * search: look up once in a run. */
LVN_API int lvn_autotune_choice(const char *library, uint64_t problem);
/* While `measures`, once for each problem, also where *choice is 0; *choice: the one to compute
 * with, which is another one where the user has given it. */
LVN_API lvn_status lvn_autotune_record(const char *library, uint64_t problem, int *choice);

#ifdef __cplusplus
}
#endif
#endif
