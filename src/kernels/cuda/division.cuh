/* Division by a number that the host knows, as a product and a shift (Granlund & Montgomery 1994,
 * "Division by invariant integers using multiplication", figure 4.1). */
#ifndef LEVIN_KERNELS_CUDA_DIVISION_CUH
#define LEVIN_KERNELS_CUDA_DIVISION_CUH

#include "port.cuh"

struct divisor {
    int64_t by;
    uint32_t factor; /* for numbers below 2^31; larger ones are divided */
    int shift;
};

static inline divisor make_divisor(int64_t by)
{
    divisor d = {by, 0, 0};
    while (((int64_t)1 << d.shift) < by && d.shift < 31) {
        d.shift++;
    }
    if (by > 0 && by <= 0x7fffffff) {
        d.factor = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << d.shift) - (uint64_t)by)) /
                                  (uint64_t)by +
                              1);
    }
    return d;
}

__device__ __forceinline__ uint32_t divide(uint32_t n, const divisor &d)
{
    return (__umulhi(n, d.factor) + n) >> d.shift;
}
__device__ __forceinline__ int64_t divide(int64_t n, const divisor &d)
{
    return n / d.by;
}
/* *rest = n mod d */
__device__ __forceinline__ uint32_t divide(uint32_t n, const divisor &d, uint32_t *rest)
{
    const uint32_t q = divide(n, d);
    *rest = n - q * (uint32_t)d.by;
    return q;
}

#endif
