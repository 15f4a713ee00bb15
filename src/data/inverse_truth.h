/* What is known about the mass behind a sample of a dataset of mass maps, without a network: the
 * inversion by Kaiser and Squires, and for builtin:mass the posterior. Called by evaluations, as
 * baseline and as bound. All results are (N, N), row-major, in the units of the mass. */
#ifndef LEVIN_DATA_INVERSE_TRUTH_H
#define LEVIN_DATA_INVERSE_TRUTH_H

#include <levin/data.h>

/* Deviation in pixels of the Gaussian that smooths the baseline. */
#define LVNI_INVERSE_SMOOTHING (1.0 / 0.29)

/* The shear of the sample, what a mask hides set to 0, inverted, and smoothed by a Gaussian of this
 * deviation in pixels, wrapping around the edges (0: not at all). LVN_ERR_INVALID: not a dataset of
 * mass maps. */
lvn_status lvni_data_inverse_kaiser_squires(const lvn_dataset *mass, const lvn_sample_key *key,
                                            double smoothing, double *out);
/* (N, N): 1 where the shear is measured, else 0; NULL: it is everywhere, or another dataset. */
const double *lvni_data_inverse_mask(const lvn_dataset *dataset);
/* Mean of the posterior, the estimate with the least squared error: Wiener's filter; with a mask or
 * cosmo_dir by conjugate gradients to a relative residual of 1e-8. LVN_ERR_UNSUPPORTED: maps of a
 * folder, whose distribution is not known. */
lvn_status lvni_data_inverse_posterior_mean(const lvn_dataset *mass, const lvn_sample_key *key,
                                            double *out);
/* Variance of the posterior, the same in every pixel of every sample, and the expected squared
 * error of its mean. LVN_ERR_UNSUPPORTED, too, with a mask or cosmo_dir, where it differs from
 * pixel to pixel: a sample from the posterior is lvni_data_inverse_posterior_sample. */
lvn_status lvni_data_inverse_posterior_variance(const lvn_dataset *mass, double *out);
/* Draw `number` (0, 1, ...) from the posterior of a sample: exact: a new map and noise are
 * drawn, and the mean for the difference of the measurements is added to the map. */
lvn_status lvni_data_inverse_posterior_sample(const lvn_dataset *mass, const lvn_sample_key *key,
                                              uint32_t number, double *out);

#endif
