/* What a checkpoint holds, as a list of tensors. For this folder: written by save.c, read back by
 * state.c. */
#ifndef LEVIN_TRAINER_STATE_IMPL_H
#define LEVIN_TRAINER_STATE_IMPL_H

#include "trainer/trainer.h"

#define LVNI_STATE_MISSED                                                                          \
    "missed_updates" /* metadata: "name 3" per line, of the parameters that had no gradient in     \
                        some updates */
#define LVNI_STATE_PLATEAU                                                                         \
    "plateau" /* metadata: "factor=BITS best=BITS bad=2 cooling=0 by=min val/loss" */
#define LVNI_STATE_EARLY "early_stopping" /* metadata: early.h */
#define LVNI_STATE_VALIDATED                                                                       \
    "validated_step" /* metadata, of a run that validates within epochs: of its newest one */
#define LVNI_STATE_CLOCK                                                                           \
    "clock" /* metadata, of a run with max_time or with validations by the clock:                  \
               "trained_ns=N unvalidated_ns=N" */
#define LVNI_STATE_BEST_BY "best_by"       /* metadata: "min val/loss", with checkpoint.monitor */
#define LVNI_STATE_KEPT "kept_files"       /* metadata, with checkpoint.save_top_k: kept.h */
#define LVNI_STATE_UNREADABLE "unreadable" /* metadata, where there are any: left_out.c */
#define LVNI_STATE_VAL_UNREADABLE "val_unreadable"
#define LVNI_STATE_EPOCH_METRICS "epoch_metrics" /* metadata: sums of the epoch so far */

/* with what stands before a parameter's name ("optimizer/exp_avg_sq/") */
enum { LVNI_STATE_NAME = LVNI_NN_NAME + 40, LVNI_STATE_BEST_BY_TEXT = 112 };

/* The flat arrays that make a run's state: its own, which may lie on a device, or copies of them in
 * host memory. */
typedef struct lvni_trainer_state_arrays {
    float *values;                 /* n_values: weights and buffers */
    float *slot[LVNI_OPTIM_SLOTS]; /* of its slot_length each; NULL where the optimizer has none */
    lvni_optim_range held;         /* of the flat buffers: what slots have */
    float *average;                /* n_values; NULL: no average */
} lvni_trainer_state_arrays;

/* Of a tensor's bytes, those that `data` has. */
typedef struct lvni_trainer_state_held {
    size_t from, bytes;
} lvni_trainer_state_held;

typedef struct lvni_trainer_state_entries {
    lvni_ckpt_st_tensor *tensor;
    lvni_trainer_state_held *held;
    char (*name)[LVNI_STATE_NAME];
    int64_t n;
} lvni_trainer_state_entries;

lvni_trainer_state_arrays lvni_trainer_state_of(const lvni_trainer *trainer);
/* Names and shapes of the trainer's model, data of the arrays. */
lvn_status lvni_trainer_state_list(const lvni_trainer *trainer,
                                   const lvni_trainer_state_arrays *arrays,
                                   lvni_trainer_state_entries *out);
void lvni_trainer_state_entries_free(lvni_trainer_state_entries *entries);
/* clock.c: the run's time, and that since its newest validation; 0: not known. */
typedef struct lvni_trainer_clock {
    uint64_t trained_ns, unvalidated_ns;
} lvni_trainer_clock;
/* "" where the run does not look at it. */
void lvni_trainer_clock_print(const lvni_trainer *trainer, char *text, size_t size);
lvn_status lvni_trainer_clock_read(const lvni_ckpt *ckpt, lvni_trainer_clock *out);
/* monitors.c; "" where the schedule is another one, or early stopping off. Reading: of another
 * monitor or mode they begin, and a line in the log has it. */
void lvni_trainer_state_plateau_print(const lvni_trainer *trainer, char *text, size_t size);
lvn_status lvni_trainer_state_plateau_read(const lvni_trainer *trainer, const lvni_ckpt *ckpt,
                                           lvni_optim_plateau *out);
void lvni_trainer_state_early_print(const lvni_trainer *trainer, char *text, size_t size);
lvn_status lvni_trainer_state_early_read(const lvni_trainer *trainer, const lvni_ckpt *ckpt,
                                         lvni_trainer_early *out);
/* "updates=12", of several phases "updates=12,11". */
/* Nothing where no parameter has missed an update. */
void lvni_trainer_state_missed_print(const lvni_trainer *trainer, lvni_core_str *out);
void lvni_trainer_state_updates_print(const lvni_trainer *trainer, char *text, size_t size);

#endif
