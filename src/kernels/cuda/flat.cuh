/* Flat buffers (levin/backend.h): what the files flat*.cu share. A block of threads has
 * LVN_FLAT_BLOCK elements, a thread four neighbours at a time: thread (i / 4) mod FLAT_THREADS has
 * element i, wherever the buffers lie, so that sums have the same bits. */
#ifndef LEVIN_KERNELS_CUDA_FLAT_CUH
#define LEVIN_KERNELS_CUDA_FLAT_CUH

#include "cuda.cuh"

enum { FLAT_THREADS = 256 };

/* ---- element by element ----
 *
 * What a function does to each element is a struct S:
 *
 *     BUFFERS, WRITTEN     how many buffers it reads; bit b: it writes buffer b
 *     SUMMED               one() gives a number whose square goes into the block's sum
 *     settings             the argument of the kernel
 *     begin(settings)      computes its members; false: nothing is done
 *     one(x)               x[b] is the element of buffer b
 *
 * One thread of a block calls begin: it reads the step block and computes in f64. */

template <int N> struct flat_buffers {
    float *p[N];
};

/* `most` (up to 4) elements from `at` on; wide: 16 bytes at once. The sum of their squares. */
template <typename S, bool WIDE>
__device__ __forceinline__ double flat_four(const S &s, const flat_buffers<S::BUFFERS> &buffers,
                                            int64_t at, int most)
{
    pack<float, 4> x[S::BUFFERS];
    double sum = 0.0;
    for (int b = 0; b < S::BUFFERS; b++) {
        if (WIDE && most == 4) {
            x[b] = load<float, 4>(buffers.p[b] + at);
        } else {
            for (int k = 0; k < 4; k++) {
                x[b].v[k] = k < most ? buffers.p[b][at + k] : 0.0f;
            }
        }
    }
    for (int k = 0; k < 4; k++) {
        float one[S::BUFFERS];
        for (int b = 0; b < S::BUFFERS; b++) {
            one[b] = x[b].v[k];
        }
        const double u = (double)s.one(one);
        sum += S::SUMMED && k < most ? u * u : 0.0;
        for (int b = 0; b < S::BUFFERS; b++) {
            x[b].v[k] = one[b];
        }
    }
    for (int b = 0; b < S::BUFFERS; b++) {
        if ((S::WRITTEN >> b & 1) == 0) {
            continue;
        }
        if (WIDE && most == 4) {
            store<float, 4>(buffers.p[b] + at, x[b]);
        } else {
            for (int k = 0; k < 4; k++) {
                if (k < most) {
                    buffers.p[b][at + k] = x[b].v[k];
                }
            }
        }
    }
    return sum;
}

/* What S begins with, in all threads of the block. */
template <typename S>
__device__ __forceinline__ bool flat_begin(const typename S::settings &given, S *out)
{
    SHARED(S, shared, 1);
    SHARED(int, goes, 1);
    if (threadIdx.x == 0) {
        S s = S();
        goes[0] = s.begin(given) ? 1 : 0;
        shared[0] = s;
    }
    __syncthreads();
    *out = shared[0];
    return goes[0] != 0;
}

/* Elements of a block, of those that are left. */
__device__ __forceinline__ int flat_here(int64_t left)
{
    return left < LVN_FLAT_BLOCK ? (int)left : (int)LVN_FLAT_BLOCK;
}

template <typename S, bool WIDE>
static __global__ void flat_each(typename S::settings given, flat_buffers<S::BUFFERS> buffers,
                                 int64_t n, double *sums)
{
    S s;
    if (!flat_begin<S>(given, &s)) {
        return;
    }
    const int64_t first = (int64_t)blockIdx.x * LVN_FLAT_BLOCK;
    const int here = flat_here(n - first);
    double sum = 0.0;
    for (int i = 4 * (int)threadIdx.x; i < here; i += 4 * FLAT_THREADS) {
        sum += flat_four<S, WIDE>(s, buffers, first + i, here - i < 4 ? here - i : 4);
    }
    if (S::SUMMED) {
        sum = block_sum(sum);
        if (threadIdx.x == 0) {
            sums[blockIdx.x] = sum;
        }
    }
}

/* S over n elements of buffers; sums, where it has them: one of each LVN_FLAT_BLOCK elements. */
template <typename S>
static lvn_status flat_run(void *stream, const char *what, const typename S::settings &given,
                           const flat_buffers<S::BUFFERS> &buffers, int64_t n, double *sums = NULL)
{
    bool wide = true;
    for (int b = 0; b < S::BUFFERS; b++) {
        wide = wide && reinterpret_cast<uintptr_t>(buffers.p[b]) % 16 == 0;
    }
    return launch(stream, what, wide ? flat_each<S, true> : flat_each<S, false>,
                  blocks_for(n, LVN_FLAT_BLOCK), FLAT_THREADS, 0, given, buffers, n, sums);
}

/* A buffer that is only read. */
static inline float *flat_read(const float *p)
{
    return const_cast<float *>(p);
}

/* ---- sums of sums ---- */

/* Of n sums one block of so many threads adds: a power of two. */
static inline unsigned flat_adders(int64_t n)
{
    unsigned threads = 32;
    while (threads < 1024 && threads * 8 < n) {
        threads *= 2;
    }
    return threads;
}

/* Lanes `apart` from each other exchange: the lower one gets both lanes' x, added, the upper one
 * both lanes' y. */
__device__ __forceinline__ double flat_exchange(double x, double y, int apart)
{
    const bool upper = (threadIdx.x & (unsigned)apart) != 0;
    return (upper ? y : x) + __shfl_xor_sync(0xffffffffu, upper ? x : y, apart);
}

/* The sum of n numbers as `decide` adds them: neighbours first, then sums of two, and so on, an odd
 * last one alone. All threads of a block of flat_adders(n) call it and get it; it stays in sums[0].
 *
 * By tiles of 8 numbers per thread. A thread reads four pairs, each with its neighbours in memory
 * beside it; lanes exchange what they have until each has the sum of 8 numbers that follow each
 * other. Numbers that are not there are -0, which changes no bit of what it is added to. */
__device__ static inline double flat_sum_pairs(double *sums, int64_t n)
{
    SHARED(double, part, 1024);
    const int threads = (int)blockDim.x, own = (int)threadIdx.x;
    const int64_t tile = 8 * (int64_t)threads;
    while (n > 1) {
        const int64_t tiles = (n + tile - 1) / tile;
        for (int64_t t = 0; t < tiles; t++) {
            const double *from = sums + t * tile;
            const int here = (int)(n - t * tile < tile ? n - t * tile : tile),
                      eights = (here + 7) / 8;
            double pair[4];
            for (int k = 0; k < 4; k++) {
                const int i = 2 * (k * threads + own);
                pair[k] = (i < here ? from[i] : -0.0) + (i + 1 < here ? from[i + 1] : -0.0);
            }
            const double low = flat_exchange(pair[0], pair[1], 1),
                         high = flat_exchange(pair[2], pair[3], 1);
            part[(own & 3) * (threads / 4) + own / 4] = flat_exchange(low, high, 2);
            __syncthreads();
            for (int apart = 1; apart < eights; apart *= 2) {
                const int i = own * 2 * apart;
                if (i + apart < eights) {
                    part[i] += part[i + apart];
                }
                __syncthreads();
            }
            if (own == 0) {
                sums[t] = part[0]; /* before all that is still to be read */
            }
            __syncthreads();
        }
        n = tiles;
    }
    return n == 1 ? sums[0] : 0.0;
}

/* ---- the functions, by file ---- */

/* flat_step.cu */
lvn_status lvnc_flat_add(void *stream, float *a, const float *b, int64_t n);
lvn_status lvnc_flat_lerp(void *stream, float *a, const float *b, float t, int64_t n,
                          const lvn_step_average *step);
lvn_status lvnc_flat_block_sumsq(void *stream, const float *g, int64_t n, double *partial);
lvn_status lvnc_flat_round_bf16(void *stream, float *w, int64_t n);
lvn_status lvnc_flat_record(void *stream, float *record, const float *value, int64_t n,
                            float weight);
lvn_status lvnc_flat_apply_record(void *stream, float *buffer, const float *record, int64_t n,
                                  const lvn_flat_mean *p);
lvn_status lvnc_flat_append(void *stream, float *queue, float *filled, float *next,
                            const float *record, const lvn_flat_append *p);
lvn_status lvnc_flat_number(void *stream, double *slot, const void *value, lvn_dtype dtype);
lvn_status lvnc_flat_seed(void *stream, void *value, lvn_dtype dtype, double number,
                          const double *weight, const double *factor);
lvn_status lvnc_flat_decide(void *stream, lvn_step_block *block, double *sums, int64_t n,
                            const double *losses, const lvn_step_decision *decision);
lvn_status lvnc_flat_finish(void *stream, lvn_step_block *block);

/* flat_optim.cu */
lvn_status lvnc_flat_sgd(void *stream, float *w, const float *g, float *momentum, int64_t n,
                         const lvn_flat_sgd *p);
lvn_status lvnc_flat_trust(void *stream, double *trust, double *of_w, double *of_g, int64_t n,
                           const lvn_flat_trust *p);
lvn_status lvnc_flat_adamw(void *stream, float *w, const float *g, float *m, float *v, int64_t n,
                           const lvn_flat_adamw *p);
lvn_status lvnc_flat_rmsprop(void *stream, float *w, const float *g, float *v, float *mean,
                             float *momentum, int64_t n, const lvn_flat_rmsprop *p);
lvn_status lvnc_flat_lion(void *stream, float *w, const float *g, float *m, int64_t n,
                          const lvn_flat_lion *p);
lvn_status lvnc_flat_lamb_moments(void *stream, const float *w, const float *g, float *m, float *v,
                                  int64_t n, double *sums, const lvn_flat_lamb *p);
lvn_status lvnc_flat_lamb(void *stream, float *w, const float *m, const float *v, int64_t n,
                          const lvn_flat_lamb *p);
lvn_status lvnc_flat_adafactor(void *stream, float *w, const float *g, float *row_var,
                               float *col_var, int64_t n, const lvn_flat_adafactor *p);

#endif
