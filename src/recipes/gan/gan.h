/* The recipe gan (rcGAN): samples of what may have been measured. What its files share; gan.c has
 * the row of the registry. */
#ifndef LEVIN_RECIPES_GAN_GAN_H
#define LEVIN_RECIPES_GAN_GAN_H

#include "core/config.h"
#include "data/inverse.h"
#include "nn/rcgan.h"
#include "run/recipe.h"

enum { LVNI_GAN_SAMPLES = 128 }; /* of a measurement, at most */

/* Fields of a batch, as data/inverse.h has them. */
enum {
    LVNI_GAN_Y,    /* (N, H, W, in_chans): measurements */
    LVNI_GAN_X,    /* (N, H, W, out_chans): the truth */
    LVNI_GAN_MEAN, /* (N, 1): with the next one what undoes the normalisation of the truth */
    LVNI_GAN_STD,
    LVNI_GAN_MASK, /* (N, W): of MRI, the columns that were measured */
    LVNI_GAN_MAPS  /* (N, H, W, in_chans): of MRI, the coils' sensitivities */
};

/* Arguments of the module's build(). */
typedef struct lvni_gan_settings {
    lvni_data_inverse_experience experience;
    lvni_nn_rcgan_sizes sizes;
    int n_train, n_valid; /* samples of a measurement: in a step of the generator, in validation */
    double gp_weight, drift_weight;
    lvn_stair adv[LVN_MAX_STAIRS]; /* weight of the adversarial term, from an epoch on */
    int n_adv;
    bool adv_mean; /* of the samples of a micro-batch; else their sum */
    double std_mult_init, std_mult_step;
    double psnr_target, psnr_tol;     /* dB: gain of the mean of n_valid samples over one */
    struct lvni_gan_preview *preview; /* of a training; NULL: none */
    bool
        *warned; /* of a training: measurements left out of a PSNR were reported; NULL: never are */
} lvni_gan_settings;

/* ---- gan_keys.c ---- */

extern const lvni_core_option_table lvni_gan_options;
/* Of a training: these, and those of every training. */
extern const lvni_core_option_table *const lvni_gan_train_keys[];
/* Of the row `data`: a name that is nearly one of builtin data. */
lvn_status lvni_gan_check_data(const lvni_core_option *row, const lvni_core_value *value,
                               const char *origin);
/* The row's: what files of the original mean here. */
lvn_status lvni_gan_prepare(lvni_core_config *config);
/* After check. Resolved values are written back. */
lvn_status lvni_gan_read_settings(lvni_core_config *config, lvni_gan_settings *out);
void lvni_gan_data_options(const lvni_core_config *config, lvni_data_inverse_split split,
                           lvni_data_inverse_options *out);

/* ---- gan_original.c ---- */

extern const lvni_core_option_table lvni_gan_original_options; /* its names of keys */
/* Keys that only its files have: one of them makes a file without `recipe` one of these. The first
 * ones; NULL: no more. */
const char *lvni_gan_sign(int i);
/* Is it a configuration of the original? For the error of another recipe. */
bool lvni_gan_is_original(const char *path);
/* Keys of the original's names for the run directory and betas. */
lvn_status lvni_gan_take_names(lvni_core_config *config);
/* What a file of the original means here; its missing keys are mistakes. */
lvn_status lvni_gan_take_file(lvni_core_config *config);
/* The same where the run is resumed, whose saved configuration has the rest. */
lvn_status lvni_gan_take_resumed(lvni_core_config *config);
/* Keys of the configuration that do nothing, or not what they do in its file, a line each. */
void lvni_gan_print_notes(const lvni_core_config *config, lvni_core_str *out);
/* Of these, that about the sections of an older file. */
void lvni_gan_print_sections(const lvni_core_config *config, lvni_core_str *out);
/* Is one of the files that were given one of the original? */
bool lvni_gan_has_original(const lvni_core_config *config);
/* Does the key stand in a file of the original? */
bool lvni_gan_is_of_original(const lvni_core_config *config, const char *key);

/* ---- gan.c ---- */

extern const lvni_run_recipe lvni_gan_recipe;

/* What a job keeps open. */
typedef struct lvni_gan_job {
    lvni_gan_settings settings;
    lvn_dataset *train, *val, *used; /* `used`: of a trained model */
    lvni_core_str note;
    bool warned;
} lvni_gan_job;

/* Before the data are opened: folders that are missing. One that a file of the original names is
 * unset at a fresh start, with a warning; of all else, and of what was saved, LVN_ERR_USAGE. */
lvn_status lvni_gan_resolve_folders(lvni_core_config *config);
/* The configuration that the run in `out` has saved, for the caller to destroy; NULL: none. */
lvn_status lvni_gan_load_saved(const lvni_core_config *config, lvni_core_config **out);

/* ---- gan_step.c ---- */

/* Buffers of the module: what the last validation found. The difference is 0 where it is not
 * known, and the model then is not acceptable. */
#define LVNI_GAN_IS_GOOD "is_good"
#define LVNI_GAN_PSNR_DIFF "psnr_diff"
/* Training, validation and the rule of the standard deviation's weight; arguments:
 * lvni_gan_settings. Phases: critic, generator. */
extern const lvn_module_class lvni_gan_class;
/* Of the run so far, as its model counts them. */
int64_t lvni_gan_validations(const lvn_module *module);
/* beta_0 of so many samples: with it, and std_mult 1, the loss is least where samples have the mean
 * and the deviation of a Gaussian posterior (Bendel, Ahmad & Schniter 2023, proposition 1). */
double lvni_gan_std_weight(int samples);
/* One sample for each measurement of the batch (N, H, W, out_chans), normalised as the truth is;
 * `name`: of its noise. */
lvn_tensor *lvni_gan_sample(const lvn_module *root, const lvn_batch *batch, const char *name);

#endif
