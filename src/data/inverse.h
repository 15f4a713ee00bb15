/* Datasets of inverse problems y = A x + n for conditional generative models: maps of the mass that
 * bends light (weak lensing), magnetic resonance images with several coils, and radio
 * interferometry. Read from a folder, or made up (builtin:mass, builtin:mri, builtin:radio);
 * docs/gan-data.md describes both. Called by the recipes.
 *
 * Fields, f32, channels last: "y" (N, N, in_chans) the measurement, "x" (N, N, out_chans) the
 * truth, "mean" (1) and "std" (1): x * std + mean is the truth in its own units. mri has two more:
 * "mask" (N), 1 for the columns of k-space that were measured, and "maps" (N, N, in_chans), the
 * sensitivity of the coils; there and in y and x the first half of the channels are real parts, the
 * second half imaginary parts.
 *
 * A sample is a function of the options and of its index, and in training (split train, and the
 * key is of training) the noise is one of the key's seed and epoch, too. */
#ifndef LEVIN_DATA_INVERSE_H
#define LEVIN_DATA_INVERSE_H

#include <levin/data.h>

typedef enum lvni_data_inverse_experience {
    LVNI_INVERSE_MASS,
    LVNI_INVERSE_MRI,
    LVNI_INVERSE_RADIO
} lvni_data_inverse_experience;

typedef enum lvni_data_inverse_split {
    LVNI_INVERSE_TRAIN,
    LVNI_INVERSE_VAL,
    LVNI_INVERSE_TEST
} lvni_data_inverse_split;

/* How radio images of 2 channels to 1 are normalised: each by its own statistics, by those of the
 * training set, not at all. */
typedef enum lvni_data_inverse_norm {
    LVNI_INVERSE_NORM_MICRO,
    LVNI_INVERSE_NORM_MACRO,
    LVNI_INVERSE_NORM_NONE
} lvni_data_inverse_norm;

typedef struct lvni_data_inverse_options {
    lvni_data_inverse_experience experience;
    const char *path; /* a folder, or builtin:mass, builtin:mri, builtin:radio */
    bool one_file;    /* mass, mri: path may be a file, which is then all of the split */
    lvni_data_inverse_split split;
    int im_size; /* N: images are N x N */
    /* mass: 2 to 2 (shear to mass, normalised by the shear's statistics, or by constants), or by
     * constants 4 to 1 and 4 to 2 (with the inversion by Kaiser and Squires). mri: twice the coils,
     * both. radio: 3 to 2 (complex) or 2 to 1. */
    int in_chans, out_chans;
    uint64_t seed; /* of what is random but training noise */
    int64_t count; /* builtin: samples of the split; 0: 256 of train, 32 of val and test */
    /* mass: deviation of the noise per component of the shear; 0: builtin 0.0676, of a folder that
     * of a galaxy survey with pixels of this size (lvni_data_inverse_mass_sigma), and with 4 to 1
     * channels over sqrt(2), as of both components together. builtin:mri: per
     * component of k-space; 0: 0.005. builtin:radio: of a pixel of the dirty image; 0: 0.01. */
    double sigma;
    const char *cosmo_dir; /* mass: a folder with cosmos_mask.npy, cosmos_std1.npy, cosmos_std2.npy,
                              in place of sigma; NULL: none */
    bool random_mask;      /* builtin:mass: holes, where y is 0 */
    bool by_constants;     /* mass, 2 to 2; with 4 channels it is so always */
    double kappa_mean, kappa_std; /* mass, by constants; builtin: kappa_std 0 is that of the maps */
    int acceleration;             /* mri: N / acceleration columns are measured; 0: 8 */
    int calib_width;              /* mri: side of the middle of k-space that maps are estimated
                                     from; 0: 16 */
    const char *maps_path;        /* mri: a folder of coil maps; NULL: they are estimated */
    /* mri, not of test: of a folder the volumes that rcGAN takes: without the first one, more coils
     * than channels / 2, and in val three tenths of them */
    bool as_rcgan;
    lvni_data_inverse_norm norm; /* radio */
} lvni_data_inverse_options;

/* What is wrong with the options themselves, whatever files there are. */
enum { LVNI_INVERSE_MISTAKES = 8 };
typedef struct lvni_data_inverse_mistakes {
    int n;
    struct {
        const char *key; /* of a configuration, that names it best */
        char text[256];
    } of[LVNI_INVERSE_MISTAKES];
} lvni_data_inverse_mistakes;

void lvni_data_inverse_check(const lvni_data_inverse_options *options,
                             lvni_data_inverse_mistakes *out);

/* A new dataset (lvn_dataset_destroy). LVN_ERR_USAGE for the first mistake of the options and for
 * arrays of another size, LVN_ERR_NOT_FOUND for folders and files that are missing. */
lvn_status lvni_data_inverse_open(const lvni_data_inverse_options *options, lvn_dataset **out);

/* mri: does a folder for maps_path have any? Those of rcGAN, a .pkl file for a slice, are none. */
bool lvni_data_inverse_has_maps(const char *folder);

/* Of a survey of 5 x 5 degrees with 30 galaxies per square arc minute, cut into N x N pixels: 0.37
 * / sqrt(galaxies of a pixel). */
double lvni_data_inverse_mass_sigma(int im_size);

#endif
