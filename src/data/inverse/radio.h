/* The parts of the dataset of radio images that its tests look at. */
#ifndef LEVIN_DATA_INVERSE_RADIO_H
#define LEVIN_DATA_INVERSE_RADIO_H

#include "inverse_impl.h"

/* Truth, measurement and either the point spread function or the sampling of the Fourier plane
 * (3 channels), (N, N) each, in their own units. */
typedef struct lvni_inverse_radio_sample {
    lvni_data_complex *x, *y, *uv;
} lvni_inverse_radio_sample;

/* One to four Gaussians and up to 20 points; the brightest pixel is 1. */
void lvni_inverse_radio_sky(const lvni_inverse_random *random, int n, double *out);
/* 1 for the frequencies that an array of antennas at random places sees while the Earth turns, and
 * for their opposites; (n, n), frequency 0 first. */
void lvni_inverse_radio_sampling(const lvni_inverse_random *random, int n, double *out);
/* The sky as the sampling shows it, scaled so that a point of 1 has the peak 1, with white noise of
 * this deviation per pixel before what is not sampled is removed. psf: the image of a point in the
 * middle. `noise` holds n * n standard normal numbers. */
void lvni_inverse_radio_observe(const lvni_data_fourier *f, int n, const double *sampling,
                                double sigma, const lvni_data_complex *sky,
                                const lvni_data_complex *noise, lvni_data_complex *dirty,
                                lvni_data_complex *psf, lvni_data_complex *scratch);

#endif
