/* The parts of the dataset of magnetic resonance images: volumes of a folder (mri_volumes.c), fewer
 * coils (mri_compress.c), which ones rcGAN takes (mri_draw.c), phantoms (mri_phantom.c), samples of
 * both (mri.c). Images of coils are planes, (coils, N, N). */
#ifndef LEVIN_DATA_INVERSE_MRI_H
#define LEVIN_DATA_INVERSE_MRI_H

#include "inverse_impl.h"

/* ---- phantoms ---- */

/* Ten ellipses of Shepp and Logan's, changed at random, (n, n). */
void lvni_inverse_mri_phantom(const lvni_inverse_random *random, int n, double *out);
/* Sensitivities of coils on a circle around the image, (coils, n, n), whose squares add up to 1. */
void lvni_inverse_mri_coils(int coils, int n, lvni_data_complex *out);
/* 1 for columns that are measured, n / acceleration of them: those in the middle, and others that
 * get rarer to the sides. For 384 and 8 those of rcGAN. */
void lvni_inverse_mri_columns(int n, int acceleration, double *out);

/* ---- volumes of a folder ---- */

enum { LVNI_INVERSE_MAX_VOLUME_COILS = 64 };

/* The images of `from` coils, (from, plane), become `to` combinations, those with the most signal
 * first; the largest weight of each is real and positive. */
lvn_status lvni_inverse_mri_compress(const lvni_data_complex *x, int from, int to, size_t plane,
                                     lvni_data_complex *out);

/* Which of n volumes rcGAN validates on, by its draw of them in byte order. */
lvn_status lvni_inverse_mri_draw(int64_t n, bool *drawn);

typedef struct lvni_inverse_volume {
    char *path, *maps;                /* maps: NULL, they are estimated */
    int slices, coils, rows, cols;    /* slices 0: left out */
    bool in_draw;                     /* as_rcgan: one of those that it draws from */
    const lvni_data_fourier *fourier; /* (rows, cols) */
    bool hdf5;
} lvni_inverse_volume;

typedef struct lvni_inverse_volumes {
    int64_t n;
    lvni_inverse_volume *volume;
    int n_fouriers;
    lvni_data_fourier **fourier; /* of the sizes that occur */
} lvni_inverse_volumes;

/* Looks at all files of the folder of a split. LVN_ERR_USAGE, with the file's path, for volumes
 * with fewer coils or smaller images than the options ask for. */
lvn_status lvni_inverse_volumes_open(const lvni_data_inverse_options *o, lvni_inverse_volumes *out);
void lvni_inverse_volumes_free(lvni_inverse_volumes *v);
/* "<file> slice <s>" for each sample, the caller's. */
lvn_status lvni_inverse_volumes_names(const lvni_inverse_volumes *v, char ***names, int64_t *n);
/* Where a sample lies. */
const lvni_inverse_volume *lvni_inverse_volumes_at(const lvni_inverse_volumes *v, int64_t sample,
                                                   int *slice);
/* The middle n x n pixels of a slice: of its coils, or when there are more, of `coils` combinations
 * of them that keep most of the signal. */
lvn_status lvni_inverse_volume_read(const lvni_inverse_volume *v, int slice, int coils, int n,
                                    lvni_data_complex *out);
/* Maps of a slice from its file. */
lvn_status lvni_inverse_volume_maps(const lvni_inverse_volume *v, int slice, int coils, int n,
                                    lvni_data_complex *out);

#endif
