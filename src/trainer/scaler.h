/* Precision of a run, and the dynamic loss scale of 16-mixed: f16 gradients below 2^-24 vanish and
 * above 65504 are infinite, so the loss is multiplied before the backward pass and the gradient
 * divided after the reduction (Micikevicius et al. 2018, section 3.2; constants as in PyTorch's
 * GradScaler). Used by the step engine; its state is part of checkpoints. */
#ifndef LEVIN_TRAINER_SCALER_H
#define LEVIN_TRAINER_SCALER_H

#include <levin/backend.h>

typedef enum lvni_trainer_precision {
    LVNI_PRECISION_32,
    LVNI_PRECISION_BF16_MIXED, /* products in bf16, weights and sums in f32 */
    LVNI_PRECISION_16_MIXED,   /* products in f16, with loss scaling */
    LVNI_PRECISION_BF16_TRUE   /* as bf16-mixed; the weights, too, are bf16 numbers after every step
                                  (kept in f32 memory) */
} lvni_trainer_precision;

/* "bf16-mixed" and so on; one of the four (the option's choices). */
lvni_trainer_precision lvni_trainer_precision_of(const char *name);
/* The type of products (lvni_tensor_ctx.low). */
lvn_dtype lvni_trainer_precision_low(lvni_trainer_precision precision);

typedef struct lvni_trainer_scaler {
    bool on; /* else scale is 1 and nothing is skipped */
    double scale;
    int64_t clean;    /* steps without overflow since the scale last moved */
    int64_t skipped;  /* steps of the run */
    int64_t in_epoch; /* of the running epoch */
    int in_a_row;     /* steps with an overflow since the last one without */
} lvni_trainer_scaler;

void lvni_trainer_scaler_init(lvni_trainer_scaler *scaler, lvni_trainer_precision precision);
/* After a step. overflow: an element of a summed gradient is not finite; its phase was skipped, the
 * scale is halved (not below 2^-14); skipped: so were all phases. Doubled after 2000 steps without.
 * LVN_ERR_NON_FINITE after 50 steps with an overflow in a row. */
lvn_status lvni_trainer_scaler_update(lvni_trainer_scaler *scaler, bool overflow, bool skipped);
/* The same for levin/backend_step.h, where the rule is: devices follow it, too. largest: samples of
 * a micro-batch. */
lvn_step_scaler lvni_trainer_scaler_rule(const lvni_trainer_scaler *scaler, int64_t largest);
/* Its state as text for a checkpoint; off: "skipped=N" of the steps before the precision changed,
 * or empty. */
void lvni_trainer_scaler_print(const lvni_trainer_scaler *scaler, char *text, size_t size);
/* NULL text: a checkpoint without scaler. Of another precision: the skipped steps alone are taken
 * over. LVN_ERR_CORRUPT when it is anything else than what was printed. */
lvn_status lvni_trainer_scaler_read(const char *text, lvni_trainer_scaler *scaler);

#endif
