/* CUDA C++ on the host, as far as levin's own kernels use it (src/kernels/cuda/port.cuh). A grid
 * runs block by block on the calling thread; the threads of a block are coroutines that run until
 * they wait for others (__syncthreads, __syncwarp, shuffles). Beside the numbers it finds
 *
 *   - races in SHARED memory: an element that one thread writes and another one reads or writes
 *     with no barrier between them (__syncwarp orders threads of one warp);
 *   - a barrier that some threads of a block, or a shuffle that some lanes of a warp, do not reach;
 *     __syncwarp of a part of a warp is refused;
 *   - an index outside of SHARED memory.
 *
 * Each is printed with the kernel's name, and the process aborts. The order in which threads,
 * warps and blocks run changes from launch to launch (forward, backward, mixed; warp after warp, or
 * in turns), so that a race in global memory shows as other bits. */
#ifndef LEVIN_TESTS_CUDA_ON_HOST_H
#define LEVIN_TESTS_CUDA_ON_HOST_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <mutex>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__ const
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

/* ---- grid ---- */

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static inline float2 make_float2(float x, float y)
{
    return float2{x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return float4{x, y, z, w};
}

struct cuda_on_host_place { /* of the coroutine that runs */
    uint3 thread, block;
    dim3 block_dim, grid_dim;
    int number;     /* in the block */
    uint32_t epoch; /* counts blocks that have run */
    /* how many barriers of the block, and __syncwarp of the thread, it is behind, plus 1 */
    uint32_t barrier, warp;
};
extern __thread cuda_on_host_place cuda_on_host_now;

#define threadIdx (cuda_on_host_now.thread)
#define blockIdx (cuda_on_host_now.block)
#define blockDim (cuda_on_host_now.block_dim)
#define gridDim (cuda_on_host_now.grid_dim)
enum { warpSize = 32 };

/* Held while a command runs: threads that submit to one device take turns. */
std::mutex &cuda_on_host_order(void);
void cuda_on_host_launch(const char *what, dim3 grid, dim3 block, size_t shared_bytes,
                         const std::function<void()> &kernel);

/* ---- waiting for each other ---- */

void cuda_on_host_barrier(void);
void cuda_on_host_warp_barrier(unsigned mask);
/* Each lane of the mask gives 8 bytes and gets those of lane `from`. */
uint64_t cuda_on_host_shuffle(unsigned mask, uint64_t mine, int from);
unsigned cuda_on_host_ballot(unsigned mask, bool mine);

#define __syncthreads() cuda_on_host_barrier()
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    cuda_on_host_warp_barrier(mask);
}
static inline void __threadfence(void)
{
}
static inline void __threadfence_block(void)
{
}
static inline void __threadfence_system(void)
{
}

static inline int cuda_on_host_lane(void)
{
    return cuda_on_host_now.number & 31;
}
template <typename T> static inline T cuda_on_host_exchange(unsigned mask, T x, int from)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffle moves 8 bytes at most");
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    bits = cuda_on_host_shuffle(mask, bits, from);
    memcpy(&x, &bits, sizeof x);
    return x;
}
template <typename T> static inline T __shfl_sync(unsigned mask, T x, int from, int width = 32)
{
    const int lane = cuda_on_host_lane();
    return cuda_on_host_exchange(mask, x, (lane & ~(width - 1)) | (from & (width - 1)));
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T x, int other, int width = 32)
{
    const int lane = cuda_on_host_lane(), from = lane ^ other;
    return cuda_on_host_exchange(mask, x,
                                 (from & ~(width - 1)) > (lane & ~(width - 1)) ? lane : from);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32)
{
    const int lane = cuda_on_host_lane(), from = lane + (int)by;
    return cuda_on_host_exchange(mask, x,
                                 (from & ~(width - 1)) != (lane & ~(width - 1)) ? lane : from);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32)
{
    const int lane = cuda_on_host_lane(), from = lane - (int)by;
    return cuda_on_host_exchange(mask, x, from < (lane & ~(width - 1)) ? lane : from);
}
static inline unsigned __ballot_sync(unsigned mask, bool x)
{
    return cuda_on_host_ballot(mask, x);
}
static inline bool __any_sync(unsigned mask, bool x)
{
    return cuda_on_host_ballot(mask, x) != 0;
}
static inline bool __all_sync(unsigned mask, bool x)
{
    return cuda_on_host_ballot(mask, x) == mask;
}

/* ---- atomics: one coroutine runs at a time; other threads of the process may launch, too ---- */

template <typename T> static inline T atomicAdd(T *p, T x)
{
    static_assert(!std::is_floating_point<T>::value,
                  "an order of floating-point atomics is not defined: no reproducible sums");
    return __atomic_fetch_add(p, x, __ATOMIC_SEQ_CST);
}
template <typename T> static inline T atomicCAS(T *p, T expected, T x)
{
    __atomic_compare_exchange_n(p, &expected, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
template <typename T> static inline T atomicExch(T *p, T x)
{
    return __atomic_exchange_n(p, x, __ATOMIC_SEQ_CST);
}
template <typename T> static inline T atomicMax(T *p, T x)
{
    T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
    while (old < x &&
           !__atomic_compare_exchange_n(p, &old, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return old;
}
template <typename T> static inline T atomicMin(T *p, T x)
{
    T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
    while (x < old &&
           !__atomic_compare_exchange_n(p, &old, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return old;
}

/* ---- numbers ---- */

static inline float __uint_as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline int __float_as_int(float x)
{
    return (int)__float_as_uint(x);
}
static inline float __int_as_float(int bits)
{
    return __uint_as_float((uint32_t)bits);
}
/* glibc 2.42 has functions of these names. */
static inline float host_rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
static inline double host_rsqrt(double x)
{
    return 1.0 / sqrt(x);
}
#define rsqrtf(x) host_rsqrtf(x)
#define rsqrt(x) host_rsqrt(x)
static inline float normcdff(float x)
{
    return (float)(0.5 * erfc((double)x * -0.70710678118654752440));
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}
template <typename T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}

/* ---- shared memory ---- */

/* Who accessed an element last: barrier counts and threads, in the shadow of a block's memory. */
struct cuda_on_host_shadow {
    uint32_t epoch;                   /* of the launch's block; what is older counts for nothing */
    uint32_t written, read;           /* as cuda_on_host_place.barrier then */
    uint32_t written_warp, read_warp; /* as .warp of the writer, a reader */
    int16_t writer, reader;           /* thread; -1: none; reader -2: several */
};
/* what: "read, but was written"; who: thread, -2: several */
[[noreturn]] void cuda_on_host_race(const char *what, const char *name, int64_t index, int who);
/* Whether nothing orders access `then` by thread `who` before the running thread's access now. */
static inline bool cuda_on_host_races(uint32_t then, uint32_t warp_then, int who)
{
    const cuda_on_host_place &now = cuda_on_host_now;
    return then == now.barrier && who != now.number &&
           (who < 0 || who / 32 != now.number / 32 || warp_then == now.warp);
}
static inline void cuda_on_host_check_epoch(cuda_on_host_shadow *s)
{
    if (s->epoch != cuda_on_host_now.epoch) {
        *s = cuda_on_host_shadow{cuda_on_host_now.epoch, 0, 0, 0, 0, -1, -1};
    }
}
static inline void cuda_on_host_check_read(cuda_on_host_shadow *s, const char *name, int64_t index)
{
    const cuda_on_host_place &now = cuda_on_host_now;
    cuda_on_host_check_epoch(s);
    if (cuda_on_host_races(s->written, s->written_warp, s->writer)) {
        cuda_on_host_race("read, but was written", name, index, s->writer);
    }
    const bool others = s->read == now.barrier && s->reader != now.number && s->reader != -1;
    const bool far = others && (s->reader < 0 || s->reader / 32 != now.number / 32);
    s->reader = (int16_t)(far ? -2 : now.number);
    s->read = now.barrier;
    s->read_warp = now.warp;
}
static inline void cuda_on_host_check_write(cuda_on_host_shadow *s, const char *name, int64_t index)
{
    const cuda_on_host_place &now = cuda_on_host_now;
    cuda_on_host_check_epoch(s);
    if (cuda_on_host_races(s->written, s->written_warp, s->writer)) {
        cuda_on_host_race("written, but was written", name, index, s->writer);
    }
    if (cuda_on_host_races(s->read, s->read_warp, s->reader)) {
        cuda_on_host_race("written, but was read", name, index, s->reader);
    }
    s->writer = (int16_t)now.number;
    s->written = now.barrier;
    s->written_warp = now.warp;
}
[[noreturn]] void cuda_on_host_outside(const char *name, int64_t index, int64_t size);

/* What SHARED(type, name, n)[i] gives. */
template <typename T> struct cuda_on_host_element {
    T *p;
    cuda_on_host_shadow *s;
    const char *name;
    int64_t index;
    operator T() const
    {
        cuda_on_host_check_read(s, name, index);
        return *p;
    }
    T get() const
    {
        return *this;
    }
    cuda_on_host_element &operator=(T x)
    {
        cuda_on_host_check_write(s, name, index);
        *p = x;
        return *this;
    }
    cuda_on_host_element(const cuda_on_host_element &) = default;
    cuda_on_host_element(T *p_, cuda_on_host_shadow *s_, const char *name_, int64_t index_)
        : p(p_), s(s_), name(name_), index(index_)
    {
    }
    cuda_on_host_element &operator=(const cuda_on_host_element &other)
    {
        return *this = (T)other;
    }
    cuda_on_host_element &operator+=(T x)
    {
        return *this = (T)(*this) + x;
    }
    cuda_on_host_element &operator-=(T x)
    {
        return *this = (T)(*this) - x;
    }
    cuda_on_host_element &operator*=(T x)
    {
        return *this = (T)(*this) * x;
    }
};

template <typename T> struct cuda_on_host_array {
    T *p;
    cuda_on_host_shadow *s;
    const char *name;
    int64_t n, first; /* first: index of element 0 in the whole array, for messages */
    cuda_on_host_element<T> operator[](int64_t i) const
    {
        if (i < 0 || i >= n) {
            cuda_on_host_outside(name, first + i, n);
        }
        return cuda_on_host_element<T>(p + i, s + i, name, first + i);
    }
    cuda_on_host_array operator+(int64_t by) const
    {
        return cuda_on_host_array{p + by, s + by, name, n - by, first + by};
    }
};
template <typename T> struct cuda_on_host_rows {
    cuda_on_host_array<T> all;
    int64_t width;
    cuda_on_host_array<T> operator[](int64_t i) const
    {
        if (i < 0 || i * width >= all.n) {
            cuda_on_host_outside(all.name, i, all.n / width);
        }
        return cuda_on_host_array<T>{all.p + i * width, all.s + i * width, all.name, width,
                                     all.first + i * width};
    }
};

/* Memory of the block that runs, the same for all its threads: one place per SHARED of the code.
 * *at is that place's number. */
void *cuda_on_host_shared(const void *place, size_t bytes, size_t elements,
                          cuda_on_host_shadow **shadow);
void *cuda_on_host_dynamic(size_t *bytes, cuda_on_host_shadow **shadow);

template <typename T>
static inline cuda_on_host_array<T> cuda_on_host_make(const void *place, const char *name,
                                                      int64_t n)
{
    cuda_on_host_shadow *shadow;
    T *p = static_cast<T *>(cuda_on_host_shared(place, (size_t)n * sizeof(T), (size_t)n, &shadow));
    return cuda_on_host_array<T>{p, shadow, name, n, 0};
}
template <typename T> static inline cuda_on_host_array<T> cuda_on_host_bytes(const char *name)
{
    cuda_on_host_shadow *shadow;
    size_t bytes;
    T *p = static_cast<T *>(cuda_on_host_dynamic(&bytes, &shadow));
    return cuda_on_host_array<T>{p, shadow, name, (int64_t)(bytes / sizeof(T)), 0};
}

#define LVNC_SHARED_1(type, name, n)                                                               \
    static const char name##_place = 0;                                                            \
    const cuda_on_host_array<type> name = cuda_on_host_make<type>(&name##_place, #name, n)
#define LVNC_SHARED_2(type, name, n, m)                                                            \
    static const char name##_place = 0;                                                            \
    const cuda_on_host_rows<type> name = {                                                         \
        cuda_on_host_make<type>(&name##_place, #name, (int64_t)(n) * (m)), m}
#define LVNC_SHARED_N(_1, _2, which, ...) which
#define SHARED(type, name, ...)                                                                    \
    LVNC_SHARED_N(__VA_ARGS__, LVNC_SHARED_2, LVNC_SHARED_1, )(type, name, __VA_ARGS__)
#define SHARED_BYTES(type, name)                                                                   \
    const cuda_on_host_array<type> name = cuda_on_host_bytes<type>(#name)

/* ---- the runtime: a device whose commands have run when they were submitted ----
 * CUDA_ON_HOST_DEVICES (1) devices of CUDA_ON_HOST_MEMORY (1 GiB) bytes. CUDA_ON_HOST_FAIL=name:
 * what a driver can do wrong: "no_driver", "old_driver", "no_device"; "old_device": one of
 * compute capability 7.0; "lost": every command after
 * the CUDA_ON_HOST_FAIL_AFTER'th (0), of device CUDA_ON_HOST_FAIL_DEVICE (all), reports a lost
 * device. */

#define CUDART_VERSION 13000
typedef enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotReady = 600,
    cudaErrorLaunchFailure = 719,
    cudaErrorUnknown = 999
} cudaError_t;
typedef enum cudaMemcpyKind { cudaMemcpyDefault = 4 } cudaMemcpyKind;
typedef struct cuda_on_host_stream *cudaStream_t;
typedef struct cuda_on_host_event *cudaEvent_t;
typedef struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount;
} cudaDeviceProp;
typedef enum cudaDeviceAttr {
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76
} cudaDeviceAttr;
enum {
    cudaStreamNonBlocking = 1,
    cudaEventDisableTiming = 2,
    cudaEventBlockingSync = 1,
    cudaHostAllocPortable = 1,
    cudaHostAllocMapped = 2
};

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int device);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s);
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s);
/* What launch() returns on the host: cudaSuccess, or the failure that is asked for. */
cudaError_t cuda_on_host_status(void);

#endif
