/* The two-dimensional Fourier transform of complex images in double precision, of any size.
 * Packaged libraries do not fit: kissfft's is built for float, and FFTW uses what instructions it
 * finds, so that bits would differ between machines. Called by the datasets of inverse problems.
 *
 * Only + - * and tables from core/math: the same bits on every machine. Sizes with small prime
 * factors are fast; a prime factor p costs p operations per element. */
#ifndef LEVIN_DATA_FOURIER_H
#define LEVIN_DATA_FOURIER_H

#include <levin/status.h>

typedef struct lvni_data_complex {
    double re, im;
} lvni_data_complex;

/* Tables for one size; read-only after create, so threads share it. */
typedef struct lvni_data_fourier lvni_data_fourier;

/* 1 to 16384 rows and columns. Owner: the caller (lvni_data_fourier_destroy, NULL is fine). */
lvn_status lvni_data_fourier_create(int rows, int cols, lvni_data_fourier **out);
void lvni_data_fourier_destroy(lvni_data_fourier *f);
/* Complex numbers of scratch memory that a transform needs. */
size_t lvni_data_fourier_scratch(const lvni_data_fourier *f);

/* In place, row-major. Forward: sum of x exp(-2 pi i (...)), not scaled; inverse: its inverse, with
 * the factor 1 / (rows * cols). Frequency 0 comes first. */
void lvni_data_fourier_forward(const lvni_data_fourier *f, lvni_data_complex *x,
                               lvni_data_complex *scratch);
void lvni_data_fourier_inverse(const lvni_data_fourier *f, lvni_data_complex *x,
                               lvni_data_complex *scratch);
/* As scanners store it: orthonormal, position 0 and frequency 0 at (rows / 2, cols / 2). */
void lvni_data_fourier_centred(const lvni_data_fourier *f, bool inverse, lvni_data_complex *x,
                               lvni_data_complex *scratch);

static inline lvni_data_complex lvni_data_complex_mul(lvni_data_complex a, lvni_data_complex b)
{
    return (lvni_data_complex){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

#endif
