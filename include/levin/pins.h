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

#ifdef __cplusplus
}
#endif
#endif
