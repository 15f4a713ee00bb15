/* The feedback rule of adversarial training of a sampler: after each validation the weight of the
 * reward for the spread of samples (std_mult) moves with what averaging P samples gains over one
 * sample (Bendel et al. 2023, "A Regularized Conditional GAN for Posterior Sampling in Image
 * Recovery Problems"). Pure: no files, no trainer. */
#ifndef LEVIN_RECIPES_GAN_GAN_CONTROL_H
#define LEVIN_RECIPES_GAN_GAN_CONTROL_H

#include <stdbool.h>

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

#endif
