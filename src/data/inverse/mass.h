/* The dataset of mass maps, for what is known about them (inverse_truth.c). */
#ifndef LEVIN_DATA_INVERSE_MASS_H
#define LEVIN_DATA_INVERSE_MASS_H

#include "inverse_impl.h"

typedef struct lvni_inverse_mass {
    lvni_inverse_base b;
    size_t n;                  /* pixels */
    lvni_data_complex *kernel; /* n, by frequency: shear = kernel * mass */
    double *prior;    /* n, variance of a frequency of the builtin maps; NULL: a folder's */
    double *mask;     /* n, 1 or 0; NULL: nothing is hidden */
    double *noise[2]; /* n, deviation of each component; NULL: sigma everywhere */
    double sigma;
    char *folder; /* of the maps; NULL: builtin */
} lvni_inverse_mass;

/* NULL: another dataset. */
const lvni_inverse_mass *lvni_inverse_mass_of(const lvn_dataset *dataset);
/* Complex numbers of memory that a sample takes: kappa, gamma and one more image, n each, and then
 * the scratch memory of the transform. */
lvni_data_complex *lvni_inverse_mass_work(const lvni_inverse_mass *m);
/* The mass of a sample and its noisy shear, in their own units. */
lvn_status lvni_inverse_mass_measure(const lvni_inverse_mass *m, const lvn_sample_key *key,
                                     lvni_data_complex *kappa, lvni_data_complex *gamma,
                                     lvni_data_complex *scratch);
/* A map of the prior, and its noisy shear. */
void lvni_inverse_mass_draw(const lvni_inverse_mass *m, const lvni_inverse_random *truth,
                            const lvni_inverse_random *noise, lvni_data_complex *kappa,
                            lvni_data_complex *gamma, lvni_data_complex *scratch);
/* In place: mass to shear (no noise), and shear to mass as Kaiser and Squires invert it. */
void lvni_inverse_mass_shear(const lvni_inverse_mass *m, lvni_data_complex *x,
                             lvni_data_complex *scratch);
void lvni_inverse_mass_invert(const lvni_inverse_mass *m, lvni_data_complex *x,
                              lvni_data_complex *scratch);
/* (N, N), by frequency; rows_first: the first frequency runs along the rows, as where samples are
 * normalised by themselves, else along the columns, as where constants do that. */
void lvni_inverse_mass_kernel(int n, bool rows_first, lvni_data_complex *out);

#endif
