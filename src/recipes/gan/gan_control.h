/* The feedback rule of adversarial training of a sampler: after each validation the weight of the
 * reward for the spread of samples (std_mult) moves with what averaging P samples gains over one
 * sample (Bendel et al. 2023, "A Regularized Conditional GAN for Posterior Sampling in Image
 * Recovery Problems"). And which epoch is the best. Pure: no files, no trainer. */
#ifndef LEVIN_RECIPES_GAN_GAN_CONTROL_H
#define LEVIN_RECIPES_GAN_GAN_CONTROL_H

#include "core/str.h"

/* ---- std_mult ---- */

enum { LVNI_GAN_SAME_EPOCHS = 3 }; /* as many in a row mean that samples ignore the noise */

typedef struct lvni_gan_rule {
    double target;    /* dB that the mean of P samples gains; lvni_gan_gain(P) in theory */
    double step;      /* std_mult moves by step * d */
    double tolerance; /* dB: a model with |d| up to it is acceptable */
} lvni_gan_rule;

typedef struct lvni_gan_control {
    double std_mult;
    double d;       /* psnr_1 + target - psnr_p of the last validation; > 0: too little spread */
    bool is_good;   /* |d| <= tolerance */
    int same_count; /* validations in a row whose d was the target within 1e-3 */
} lvni_gan_control;

/* 10 log10(2 P / (P + 1)) dB: by how much the mean of P samples of the posterior is nearer to the
 * truth than one of them. */
double lvni_gan_gain(int samples);
/* A validation's means over all items, in dB. std_mult is never clamped and may become negative. A
 * d that is not finite leaves it as it is, and the model is not acceptable. */
void lvni_gan_control_update(lvni_gan_control *control, const lvni_gan_rule *rule, double psnr_1,
                             double psnr_p);
/* Does averaging gain nothing, now for LVNI_GAN_SAME_EPOCHS validations? Samples then do not depend
 * on the noise. */
bool lvni_gan_control_ignores_noise(const lvni_gan_control *control);

/* ---- the best epoch ---- */

typedef struct lvni_gan_epoch {
    int64_t epoch;
    double score; /* a mean over the set, less is better: CFID or RMSE; NaN: not known */
    double d;     /* of its validation; NaN: not known */
    bool is_good;
} lvni_gan_epoch;

typedef struct lvni_gan_choice {
    int best;    /* row of the least score among acceptable ones, the first of equals; -1: none */
    int closest; /* row of the least |d|, acceptable or not; -1: no d is finite */
} lvni_gan_choice;

lvni_gan_choice lvni_gan_choose(const lvni_gan_epoch *epochs, int n);
/* A table of the epochs, the best one marked, and a last line with the choice, or with the closest
 * epoch if none is acceptable. `score` names the column. */
void lvni_gan_choice_print(const lvni_gan_epoch *epochs, int n, const char *score,
                           lvni_core_str *out);
/* Members of a JSON object: "epochs": [{"epoch": 1, "<score>": 0.1, "psnr_diff": 0.2, "acceptable":
 * true}], "best": 1, "closest": 1; null: not known. */
void lvni_gan_choice_json(const lvni_gan_epoch *epochs, int n, const char *score,
                          lvni_core_str *out);

#endif
