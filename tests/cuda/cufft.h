/* Stand-in for NVIDIA's cufft.h, as far as src/kernels/cuda/cufft.cu uses it, on the host
 * (cuda_on_host.h); cufft_on_host.cpp is its library. */
#ifndef LEVIN_TESTS_CUFFT_H
#define LEVIN_TESTS_CUFFT_H

#include "cuda_on_host.h"

enum cufftResult {
    CUFFT_SUCCESS = 0,
    CUFFT_INVALID_PLAN = 1,
    CUFFT_ALLOC_FAILED = 2,
    CUFFT_INVALID_VALUE = 4,
    CUFFT_INTERNAL_ERROR = 5,
    CUFFT_EXEC_FAILED = 6,
    CUFFT_SETUP_FAILED = 7,
    CUFFT_INVALID_SIZE = 8,
    CUFFT_NO_WORKSPACE = 13,
    CUFFT_NOT_IMPLEMENTED = 14,
    CUFFT_NOT_SUPPORTED = 16
};
enum cufftType { CUFFT_C2C = 0x29 };
enum { CUFFT_FORWARD = -1, CUFFT_INVERSE = 1 };
typedef int cufftHandle;
typedef float2 cufftComplex;

extern "C" {
cufftResult cufftGetVersion(int *version);
cufftResult cufftCreate(cufftHandle *plan);
cufftResult cufftDestroy(cufftHandle plan);
cufftResult cufftSetAutoAllocation(cufftHandle plan, int allocates);
cufftResult cufftMakePlanMany64(cufftHandle plan, int rank, long long *n, long long *inembed,
                                long long istride, long long idist, long long *onembed,
                                long long ostride, long long odist, cufftType type, long long batch,
                                size_t *bytes);
cufftResult cufftSetStream(cufftHandle plan, cudaStream_t stream);
cufftResult cufftSetWorkArea(cufftHandle plan, void *area);
cufftResult cufftExecC2C(cufftHandle plan, cufftComplex *x, cufftComplex *y, int direction);
}

#endif
