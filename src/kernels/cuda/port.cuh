/* What kernels are written with, on a GPU and on the host. nvcc compiles the .cu files of this
 * folder for GPUs; the tests compile the same files as host C++ (LEVIN_CUDA_ON_HOST, tests/cuda),
 * where a grid runs block by block with its threads as coroutines. Kernels keep to what both have:
 * __syncthreads, __syncwarp, warp shuffles, SHARED memory, atomics; no tensor cores, cp.async or
 * TMA.
 *
 *   SHARED(float, tile, 32, 33);     __shared__ float tile[32][33]; one or two sizes
 *   SHARED_BYTES(float, row);        the launch's dynamic shared memory, as floats
 *   UNROLL                           before a loop of a fixed number of turns over registers
 *
 * On the host both record who accessed what between two barriers, and report races. */
#ifndef LEVIN_KERNELS_CUDA_PORT_CUH
#define LEVIN_KERNELS_CUDA_PORT_CUH

#ifdef LEVIN_CUDA_ON_HOST
#include "cuda_on_host.h"

#define UNROLL
#else
#include <cuda_runtime.h>

#define UNROLL _Pragma("unroll")
#define LVNC_SHARED_1(type, name, n) __shared__ type name[n]
#define LVNC_SHARED_2(type, name, n, m) __shared__ type name[n][m]
#define LVNC_SHARED_N(_1, _2, which, ...) which
#define SHARED(type, name, ...)                                                                    \
    LVNC_SHARED_N(__VA_ARGS__, LVNC_SHARED_2, LVNC_SHARED_1, )(type, name, __VA_ARGS__)
#define SHARED_BYTES(type, name)                                                                   \
    extern __shared__ __align__(16) unsigned char lvnc_shared_bytes[];                             \
    type *const name = reinterpret_cast<type *>(lvnc_shared_bytes)
#endif

#include <stdint.h>

/* ---- 16-bit floats: bits in memory, f32 in registers, rounded to nearest even ---- */

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

#ifdef LEVIN_CUDA_ON_HOST
static inline float lvnc_f16_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31, low = h & 1023;
    if (exponent == 0) {
        const float small = (float)low * 0x1p-24f;
        return sign != 0 ? -small : small;
    }
    const uint32_t bits =
        sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | low << 13;
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint16_t lvnc_float_to_f16(float x)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u, most = bits & 0x7fffffffu;
    if (most > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (most >= 0x477ff000u) { /* rounds to 65536 */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (most < 0x38800000u) { /* below 2^-14: a multiple of 2^-24 */
        float a;
        __builtin_memcpy(&a, &most, sizeof a);
        return (uint16_t)(sign | (uint32_t)__builtin_rintf(a * 0x1p24f));
    }
    const uint32_t rounded = most + 0xfffu + (most >> 13 & 1);
    return (uint16_t)(sign | ((rounded >> 13) - (112u << 10)));
}
static inline uint16_t lvnc_float_to_bf16(float x)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
__device__ __forceinline__ float lvnc_f16_to_float(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}
__device__ __forceinline__ uint16_t lvnc_float_to_f16(float x)
{
    return __half_as_ushort(__float2half_rn(x));
}
__device__ __forceinline__ uint16_t lvnc_float_to_bf16(float x)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
#endif

__device__ __forceinline__ float to_float(float x)
{
    return x;
}
__device__ __forceinline__ float to_float(bf16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}
__device__ __forceinline__ float to_float(f16 x)
{
    return lvnc_f16_to_float(x.bits);
}

/* from_float<T>(x): x as a T. */
template <typename T> struct lvnc_rounded;
template <> struct lvnc_rounded<float> {
    __device__ static __forceinline__ float of(float x)
    {
        return x;
    }
};
template <> struct lvnc_rounded<bf16> {
    __device__ static __forceinline__ bf16 of(float x)
    {
        bf16 y;
        y.bits = lvnc_float_to_bf16(x);
        return y;
    }
};
template <> struct lvnc_rounded<f16> {
    __device__ static __forceinline__ f16 of(float x)
    {
        f16 y;
        y.bits = lvnc_float_to_f16(x);
        return y;
    }
};
template <typename T> __device__ __forceinline__ T from_float(float x)
{
    return lvnc_rounded<T>::of(x);
}

/* N elements that travel in one access: 16 bytes where N is 16 / sizeof(T). */
template <typename T, int N> struct alignas(sizeof(T) * N) pack {
    T v[N];
};
template <typename T, int N> __device__ __forceinline__ pack<T, N> load(const T *p)
{
    return *reinterpret_cast<const pack<T, N> *>(p);
}
template <typename T, int N> __device__ __forceinline__ void store(T *p, const pack<T, N> &x)
{
    *reinterpret_cast<pack<T, N> *>(p) = x;
}

#endif
