/* The two networks of rcGAN (Bendel, Ahmad & Schniter 2023, "A regularized conditional GAN for
 * posterior sampling in image recovery problems"): a generator that turns a measurement and noise
 * into one sample of what may have been measured, and a critic of samples beside measurements. */
#ifndef LEVIN_NN_RCGAN_H
#define LEVIN_NN_RCGAN_H

#include <levin/nn.h>

enum { LVNI_RCGAN_LEVELS = 6, LVNI_RCGAN_STAGES = 10, LVNI_RCGAN_NOISE = 2 };

typedef struct lvni_nn_rcgan_sizes {
    int in_chans, out_chans; /* of measurements; of samples */
    int im_size;             /* pixels, both ways */
    int gen_channels;        /* at the image's size, doubled at each level up to eightfold */
    int gen_levels;          /* how often the generator halves the image */
    int disc_channels;       /* behind the critic's first layer, doubled up to sixteenfold */
    int disc_stages;         /* how often the critic halves the image, rounding down */
    /* levels go up by the nearest pixel and a convolution, not by a transposed convolution */
    bool alt_upsample;
    bool unused; /* with the layers that the original builds and never runs */
} lvni_nn_rcgan_sizes;

/* Parts, for a tester and for messages: the side of the image in front of level or behind stage
 * i; parameters that the original has and never runs. */
int lvni_nn_rcgan_level_side(const lvni_nn_rcgan_sizes *sizes, int level); /* gen_levels: bottom */
int lvni_nn_rcgan_stage_side(const lvni_nn_rcgan_sizes *sizes, int stage);
int64_t lvni_nn_rcgan_unused(const lvni_nn_rcgan_sizes *sizes);

/* (N, H, W, in_chans + LVNI_RCGAN_NOISE), H = W = im_size -> (N, H, W, out_chans). Parts: down<i>
 * (unit, res, half), middle, up<i> (up, merge, res), head1, head2; units are conv, norm, act, and
 * res is skip, unit1, unit2. NULL on failure; `sizes` are read in the call. */
lvn_module *lvni_nn_rcgan_generator(lvn_builder *b, const char *name,
                                    const lvni_nn_rcgan_sizes *sizes);
/* (N, H, W, out_chans + in_chans) -> (N, 1): how real a sample looks beside its measurement. Parts:
 * input, stage<i>, output. */
lvn_module *lvni_nn_rcgan_critic(lvn_builder *b, const char *name,
                                 const lvni_nn_rcgan_sizes *sizes);

#endif
