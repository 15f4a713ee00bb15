/* The CUDA backend (docs/gpu.md): one table of levin/backend.h in levin_backend_cuda.so.
 *
 *   device.cu    devices and memory
 *   stream.cu    streams, events, errors
 *   copies.cu    copies, captured steps
 *   host_call.cu  functions of the host in stream order
 *   table.cu     the table; joins the rows of the files below (files.cmake)
 *   *.cu         kernels: each file ends with its rows, `const kernel_rows rows_<file>`
 *
 * How a kernel's function reads:
 *
 *     template <typename T> __global__ void relu(const T *x, T *y, int64_t n) { ... }
 *
 *     static lvn_status run_relu(const lvn_kernel_args *args)
 *     {
 *         const int64_t n = lvn_numel(args->out[0]);
 *         WITH_FLOAT(lvn_tensor_dtype(args->in[0]), T,
 *                    return launch(args->stream, "relu", relu<T>, blocks_for(n, 256), 256, 0,
 *                                  in<T>(args, 0), out<T>(args, 0), n));
 *     }
 *
 * Rules beside those of levin/backend.h:
 *   - Deterministic: no floating-point atomics; what is added, and in which order, depends on the
 *     shapes alone, never on the device (its number of multiprocessors) or on timing.
 *   - Sums of many terms: f32 in registers per thread over a fixed stride, then the tree of
 *     block_sum; in f64 where ops.def wants it. Results agree with ref within tolerance.def.
 *   - A launch of nothing (0 blocks) is skipped by launch().
 *   - What a kernel finds wrong in its data (a label out of range) it reports with raise(), and
 *     touches no memory by it; the host learns of it when it waits. */
#ifndef LEVIN_KERNELS_CUDA_CUDA_CUH
#define LEVIN_KERNELS_CUDA_CUDA_CUH

#include "port.cuh"

#include <levin/backend.h>
#include <levin/status.h>

/* ---- launching ---- */

/* Before each submission. The device becomes the calling thread's. The CUDA stream of a stream. */
cudaStream_t lvnc_enter(const void *stream);
/* After a submission: what CUDA reports belongs to the stream. `what` is a static name: the op's or
 * the command's. LVN_OK, or the error of a submission that CUDA refused. */
lvn_status lvnc_submitted(const void *stream, const char *what, cudaError_t error);

/* CUDA has given the device up: nothing is submitted any more. */
bool lvnc_is_lost(const void *stream);

template <typename T> struct lvnc_as_is {
    typedef T type;
};

/* kernel(a...) on the stream, in its order. */
template <typename... P>
static lvn_status launch(const void *stream, const char *what, void (*kernel)(P...), dim3 grid,
                         dim3 block, size_t shared_bytes, typename lvnc_as_is<P>::type... a)
{
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || lvnc_is_lost(stream)) {
        return LVN_OK;
    }
    cudaStream_t s = lvnc_enter(stream);
#ifdef LEVIN_CUDA_ON_HOST
    (void)s;
    cuda_on_host_launch(what, grid, block, shared_bytes, [&] { kernel(a...); });
    return lvnc_submitted(stream, what, cuda_on_host_status());
#else
    void *pointers[] = {const_cast<void *>(static_cast<const void *>(&a))..., NULL};
    const void *const function = reinterpret_cast<const void *>(kernel);
    cudaError_t error = cudaSuccess;
    if (shared_bytes > 48 << 10) { /* more than a kernel gets unasked */
        error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)shared_bytes);
    }
    return lvnc_submitted(stream, what,
                          error != cudaSuccess
                              ? error
                              : cudaLaunchKernel(function, grid, block, pointers, shared_bytes, s));
#endif
}

/* Blocks of `each` elements for n; at most 2^31 - 1, so kernels whose n may be larger loop over
 * the grid (FOR_GRID). */
static inline unsigned blocks_for(int64_t n, int64_t each)
{
    const int64_t blocks = (n + each - 1) / each, most = 0x7fffffff;
    return (unsigned)(blocks < most ? blocks : most);
}

/* for (i: first element of the thread; to n; by all threads of the grid) */
#define FOR_GRID(i, n)                                                                             \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x,                               \
                 lvnc_all = (int64_t)gridDim.x * blockDim.x;                                       \
         i < (n); i += lvnc_all)

/* ---- arguments ---- */

template <typename T> static inline const T *in(const lvn_kernel_args *args, int i)
{
    return static_cast<const T *>(lvn_const_data(args->in[i])); /* NULL: not given */
}
template <typename T> static inline T *out(const lvn_kernel_args *args, int i)
{
    return static_cast<T *>(lvn_data(args->out[i])); /* NULL: not wanted */
}
template <typename T> static inline const T &attr_of(const lvn_kernel_args *args)
{
    return *static_cast<const T *>(args->attr);
}

/* statement with T = float, bf16 or f16; other types are an error of levin's. */
#define WITH_FLOAT(dtype, T, statement)                                                            \
    switch (dtype) {                                                                               \
    case LVN_F32: {                                                                                \
        typedef float T;                                                                           \
        statement;                                                                                 \
    } break;                                                                                       \
    case LVN_BF16: {                                                                               \
        typedef bf16 T;                                                                            \
        statement;                                                                                 \
    } break;                                                                                       \
    case LVN_F16: {                                                                                \
        typedef f16 T;                                                                             \
        statement;                                                                                 \
    } break;                                                                                       \
    default: break;                                                                                \
    }                                                                                              \
    LVN_FAIL(LVN_ERR_INTERNAL, "%s: a kernel was called with %s", args->op->name,                  \
             lvn_dtype_name(dtype))

/* Sizes of the leading and trailing axes around one or more axes. */
static inline int64_t sizes_before(const lvn_tensor *t, int axis)
{
    int64_t n = 1;
    for (int i = 0; i < axis; i++) {
        n *= lvn_size(t, i);
    }
    return n;
}
static inline int64_t sizes_after(const lvn_tensor *t, int axis)
{
    int64_t n = 1;
    for (int i = axis + 1; i < lvn_ndim(t); i++) {
        n *= lvn_size(t, i);
    }
    return n;
}

/* ---- what kernels find wrong ---- */

enum lvnc_fault_code {
    LVNC_FINE,
    LVNC_FAULT_LABEL, /* value: the label, limit: classes */
    LVNC_FAULT_INDEX, /* value: the index, limit: size of the axis */
    LVNC_FAULT_LOST,  /* the device is */
};

struct lvnc_fault {
    int code;   /* lvnc_fault_code; the first one stays */
    int op;     /* lvn_op.number */
    int device; /* where it was raised first */
    int64_t value, limit, place;
};

/* Arguments of a kernel that may raise(). */
struct lvnc_alarm {
    int *raised; /* memory of the device; `decide` and `finish` do nothing where it is set */
    lvnc_fault *details; /* memory of the host that the device writes */
    int op, device;
};
lvnc_alarm lvnc_alarm_of(const lvn_kernel_args *args);
/* Of a stream: whether anything was raised, for kernels of flat buffers. */
const int *lvnc_raised(const void *stream);

__device__ static inline void raise(const lvnc_alarm &to, lvnc_fault_code code, int64_t value,
                                    int64_t limit, int64_t place)
{
    if (atomicCAS(to.raised, 0, 1) == 0) {
        to.details->op = to.op;
        to.details->device = to.device;
        to.details->value = value;
        to.details->limit = limit;
        to.details->place = place;
        __threadfence_system();
        *(volatile int *)&to.details->code = code;
    }
}

/* ---- sums of a warp and of a block, in a fixed tree ---- */

template <typename T> __device__ __forceinline__ T warp_sum(T x) /* in all lanes */
{
    for (int apart = 16; apart > 0; apart /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, apart);
    }
    return x;
}
template <typename T> __device__ __forceinline__ T warp_max(T x) /* of numbers; in all lanes */
{
    for (int apart = 16; apart > 0; apart /= 2) {
        const T other = __shfl_xor_sync(0xffffffffu, x, apart);
        x = other > x ? other : x;
    }
    return x;
}

/* Over all threads of a block (a multiple of 32, at most 1024, one-dimensional); in all threads.
 * Every thread calls it. */
template <typename T> __device__ __forceinline__ T block_sum(T x)
{
    SHARED(T, part, 33);
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5,
              warps = (int)blockDim.x >> 5;
    x = warp_sum(x);
    if (lane == 0) {
        part[warp] = x;
    }
    __syncthreads();
    if (warp == 0) {
        T sum = lane < warps ? (T)part[lane] : T(0);
        sum = warp_sum(sum);
        if (lane == 0) {
            part[32] = sum;
        }
    }
    __syncthreads();
    x = part[32];
    __syncthreads(); /* the next call writes `part` */
    return x;
}

/* ---- libraries and rows ---- */

/* Of the table: the rows at the end of a file. */
struct kernel_rows {
    const lvn_backend_kernel *row;
    int n;
};
#define ROWS(array)                                                                                \
    {                                                                                              \
        array, (int)(sizeof(array) / sizeof *(array))                                              \
    }
enum { F32 = 1u << LVN_F32, FLOATS = 1u << LVN_F32 | 1u << LVN_BF16 | 1u << LVN_F16 };

#endif
