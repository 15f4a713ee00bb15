/* Walks over the elements of a result in their order, with where each lies in x: axes that stay
 * neighbours are joined, sizes are divided by with multiplications. Copies along such a walk. */
#ifndef LEVIN_KERNELS_CUDA_WALK_CUH
#define LEVIN_KERNELS_CUDA_WALK_CUH

#include "cuda.cuh"
#include "division.cuh"

namespace
{

/* statement with I = uint32_t where n and what is below it fit, else int64_t. */
#define WITH_INDEX(n, I, statement)                                                                \
    if ((n) <= 0x7fffffff) {                                                                       \
        typedef uint32_t I;                                                                        \
        statement;                                                                                 \
    } else {                                                                                       \
        typedef int64_t I;                                                                         \
        statement;                                                                                 \
    }

/* ---- axes ---- */

/* Axes of a result, the last one fastest; from: steps in x, in elements (0: broadcast). */
struct axes {
    int n;
    int64_t size[LVN_MAX_NDIM], from[LVN_MAX_NDIM];
};

static inline void axes_drop(axes *a, int k)
{
    a->n--;
    for (int i = k; i < a->n; i++) {
        a->size[i] = a->size[i + 1];
        a->from[i] = a->from[i + 1];
    }
}

/* Without axes of size 1, and with neighbours joined that are one run in x, too. */
static inline void axes_join(axes *a)
{
    for (int i = a->n - 1; i >= 0; i--) {
        if (a->size[i] == 1) {
            axes_drop(a, i);
        }
    }
    for (int i = a->n - 2; i >= 0; i--) {
        if (a->from[i] == a->from[i + 1] * a->size[i + 1]) {
            a->from[i] = a->from[i + 1];
            a->size[i] *= a->size[i + 1];
            axes_drop(a, i + 1);
        }
    }
}

/* The most bytes, a power of two up to 16, in which rows of so many bytes can be copied. */
static inline int unit_of(int64_t bytes)
{
    int unit = 16;
    while (bytes % unit != 0) {
        unit /= 2;
    }
    return unit;
}

/* Elements of `bytes` bytes become units of several where rows, steps and the first element's
 * offset allow it. Returns the bytes of a unit. */
static inline int axes_widen(axes *a, int bytes, int64_t offset)
{
    if (a->n == 0 || a->from[a->n - 1] != 1) {
        return bytes;
    }
    int unit = unit_of(a->size[a->n - 1] * bytes);
    for (int i = 0; i < a->n - 1; i++) {
        const int most = unit_of(a->from[i] * bytes);
        unit = most < unit ? most : unit;
    }
    const int most = unit_of(offset * bytes);
    unit = most < unit ? most : unit;
    a->size[a->n - 1] = a->size[a->n - 1] * bytes / unit;
    for (int i = 0; i < a->n - 1; i++) {
        a->from[i] = a->from[i] * bytes / unit;
    }
    return unit;
}

/* ---- on the device ---- */

struct walk {
    int n; /* at least 1 */
    divisor size[LVN_MAX_NDIM];
    int64_t from[LVN_MAX_NDIM];
};

static inline walk walk_of(const axes &a)
{
    walk w = {};
    w.n = a.n > 0 ? a.n : 1;
    for (int i = 0; i < w.n; i++) {
        w.size[i] = make_divisor(a.n > 0 ? a.size[i] : 1);
        w.from[i] = a.n > 0 ? a.from[i] : 0;
    }
    return w;
}

/* Where element i of the result lies in x. */
template <typename I> __device__ __forceinline__ int64_t source_of(const walk &w, I i)
{
    int64_t at = 0;
    for (int k = w.n - 1; k > 0; k--) {
        const I rest = divide(i, w.size[k]);
        at += (int64_t)(i - rest * (I)w.size[k].by) * w.from[k];
        i = rest;
    }
    return at + (int64_t)i * w.from[0];
}

template <typename U, typename I>
static __global__ void copy_walk(const U *x, U *y, int64_t n, walk w)
{
    FOR_GRID (i, n) {
        y[i] = x[source_of(w, (I)i)];
    }
}

/* ---- copies ---- */

enum { WALK_BLOCK = 256 };

/* statement with U: a type of so many bytes. */
#define WITH_UNIT(bytes, U, statement)                                                             \
    switch (bytes) {                                                                               \
    case 16: {                                                                                     \
        typedef pack<uint64_t, 2> U;                                                               \
        statement;                                                                                 \
    }                                                                                              \
    case 8: {                                                                                      \
        typedef uint64_t U;                                                                        \
        statement;                                                                                 \
    }                                                                                              \
    case 4: {                                                                                      \
        typedef uint32_t U;                                                                        \
        statement;                                                                                 \
    }                                                                                              \
    case 2: {                                                                                      \
        typedef uint16_t U;                                                                        \
        statement;                                                                                 \
    }                                                                                              \
    default: {                                                                                     \
        typedef uint8_t U;                                                                         \
        statement;                                                                                 \
    }                                                                                              \
    }

template <typename U>
static lvn_status launch_copy_of(const lvn_kernel_args *args, const void *x, int64_t offset,
                                 void *y, int64_t n, const walk &w)
{
    WITH_INDEX(n, I,
               return launch(args->stream, args->op->name, copy_walk<U, I>,
                             blocks_for(n, WALK_BLOCK), WALK_BLOCK, 0,
                             static_cast<const U *>(x) + offset, static_cast<U *>(y), n, w));
}

/* y = x along the axes of y, n elements of `bytes` bytes, from element `offset` of x on. */
static inline lvn_status launch_copy(const lvn_kernel_args *args, axes a, int bytes, const void *x,
                                     int64_t offset, void *y, int64_t n)
{
    if (n == 0) {
        return LVN_OK;
    }
    axes_join(&a);
    const int unit = axes_widen(&a, bytes, offset);
    const walk w = walk_of(a);
    WITH_UNIT(unit, U,
              return launch_copy_of<U>(args, x, offset * bytes / unit, y, n * bytes / unit, w));
}

} // namespace

#endif
