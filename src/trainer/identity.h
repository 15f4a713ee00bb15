/* What the bits of a run follow from, as its checkpoints record it, so that a run is not silently
 * continued as another one. Called by state.c when a checkpoint is written and when one is
 * restored. */
#ifndef LEVIN_TRAINER_IDENTITY_H
#define LEVIN_TRAINER_IDENTITY_H

#include "trainer/trainer.h"

#define LVNI_IDENTITY_RUN                                                                          \
    "run" /* "effective_batch=32 micro_batches=6 n_samples=341 ...", and the pinned choices */
#define LVNI_IDENTITY_MACHINE                                                                      \
    "machine" /* "levin 0.1.0, AVX2, oneDNN 2.6.3, AMD EPYC 7763"; of ranks that differ, all of    \
                 them: "... and ..." */
#define LVNI_IDENTITY_PINS                                                                         \
    "pins" /* what backends recorded, "cuda.conv1=5 cuda.conv2=1"; of exported models, too */
/* a hash of sizes and begins of the files of the data, where it is files */
#define LVNI_IDENTITY_FILES "data_files"
#define LVNI_IDENTITY_LAYOUT "layout" /* "ranks=4": for reports; results do not depend on it */

/* One number for the samples' names (where there are none: their places in the whole list) in their
 * order. */
uint64_t lvni_trainer_identity_of_data(const lvn_dataset *dataset);
/* What this machine's bits come from, of the calling thread's device. */
void lvni_trainer_identity_machine(lvni_core_str *out);
/* The values of the two entries of a checkpoint's metadata. */
void lvni_trainer_identity_print(const lvni_trainer *trainer, lvni_core_str *run,
                                 lvni_core_str *machine);
/* The value of LVNI_IDENTITY_FILES; "" without files. */
void lvni_trainer_identity_print_files(const lvni_trainer *trainer, char out[24]);
/* The value of LVNI_IDENTITY_LAYOUT. */
void lvni_trainer_identity_print_layout(const lvni_trainer *trainer, char out[32]);
/* Reports when another number of ranks continues the run than wrote the checkpoint, and that this
 * changes nothing, where nothing else has changed. */
lvn_status lvni_trainer_identity_report_layout(const lvni_trainer *trainer, const lvni_ckpt *ckpt);
/* Is the checkpoint of this run? LVN_ERR_USAGE within an epoch, where half of its order is done;
 * between two epochs a warning for each difference. Another machine or version is a warning, or
 * LVN_ERR_USAGE with same_hardware; other files under the same names are a warning, or
 * LVN_ERR_USAGE with same_files.
 * Checkpoints without the entries are taken as they are. */
lvn_status lvni_trainer_identity_check(const lvni_trainer *trainer, const lvni_ckpt *ckpt);
/* The key has another value than in the saved run, which that has reported. */
bool lvni_trainer_identity_differs(const lvni_trainer *trainer, const lvni_ckpt *ckpt,
                                   const char *key);
/* Behind that: the choices of the saved run's backends that this run does not have. */
lvn_status lvni_trainer_identity_take_pins(const lvni_trainer *trainer, const lvni_ckpt *ckpt);

#endif
