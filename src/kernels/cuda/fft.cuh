/* A Fourier transform as the kernels of fft.cu and cufft.cu see it. */
#ifndef LEVIN_KERNELS_CUDA_FFT_CUH
#define LEVIN_KERNELS_CUDA_FFT_CUH

#include "division.cuh"
#include "library.cuh"

/* (batches, m, n) complex numbers, along n and m; along n alone m is 1. */
struct lvnc_fft {
    int64_t batches, m, n;
    bool inverse, centered;
    float scale;
};
static inline int64_t lvnc_fft_numbers(const lvnc_fft &f)
{
    return f.batches * f.m * f.n;
}

/* cufft.cu. What cuFFT may take as its work area, from the sizes alone; 0: it is not asked. */
size_t lvnc_cufft_bytes(const lvnc_fft &f);
/* False: it was not computed, the caller does. */
bool lvnc_cufft_transform(const lvn_kernel_args *args, const lvnc_fft &f, void *workspace,
                          lvn_status *status);

#endif
