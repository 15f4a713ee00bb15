/* Products of matrices: levin's own kernel, which also multiplies the windows of images (conv.cu),
 * and the call that tries cuBLASLt first (matmul.cu).
 *
 * The own kernel computes y (m, n) = a (m, k) b (n, k)^T in blocks of TILE x TILE results with f32
 * sums. A and B are operands: structs whose at(z, row, k) reads an element of the z-th matrix. Few
 * blocks with many terms are split along k: how often, and so the order of all additions, follows
 * from the sizes alone. */
#ifndef LEVIN_KERNELS_CUDA_GEMM_CUH
#define LEVIN_KERNELS_CUDA_GEMM_CUH

#include "library.cuh"

/* ---- any of the three float types, chosen while running ---- */

__device__ static inline float lvnc_load(const void *p, lvn_dtype type, int64_t i)
{
    switch (type) {
    case LVN_BF16: return to_float(static_cast<const bf16 *>(p)[i]);
    case LVN_F16: return to_float(static_cast<const f16 *>(p)[i]);
    default: return static_cast<const float *>(p)[i];
    }
}
__device__ static inline void lvnc_store(void *p, lvn_dtype type, int64_t i, float x)
{
    switch (type) {
    case LVN_BF16: static_cast<bf16 *>(p)[i] = from_float<bf16>(x); break;
    case LVN_F16: static_cast<f16 *>(p)[i] = from_float<f16>(x); break;
    default: static_cast<float *>(p)[i] = x;
    }
}

/* ---- the kernel ---- */

namespace gemm
{
enum {
    TILE = 64,   /* rows and columns of a block's results */
    DEPTH = 16,  /* terms that are in shared memory at once */
    CHUNK = 256, /* terms that are added up before they join the sum: shorter chains, less error */
    THREADS = 256,     /* each has 4 x 4 results */
    MOST_BLOCKS = 256, /* with fewer k is split */
    LEAST_TERMS = 512  /* of a part of k */
};

struct sizes {
    int batches, m, n, k;
    int tiles_m, tiles_n, parts, each; /* each: terms of a part */
    bool tf32;                         /* factors are rounded to TF32, as tensor cores do */
};
/* At most 2^31 - 1 rows, columns, terms and matrices. */
sizes sizes_of(int batches, int m, int n, int k);
static inline size_t partial_bytes(const sizes &s)
{
    return s.parts == 1 ? 0 : (size_t)s.parts * s.batches * s.m * s.n * sizeof(float);
}

/* Where results go: element (row, column) of matrix z is z * batch + row * pitch + column. */
struct result {
    void *y;
    lvn_dtype type;
    lvn_dtype bias_type;
    int64_t batch, pitch;
    const void *bias; /* of a column, at z * bias_batch + column; NULL: none */
    int64_t bias_batch;
    bool adds;      /* to what is there */
    float *partial; /* (parts, batches, m, n): sums of a part; NULL: there is one part */
};

/* The sums of parts, in their order, and the bias. */
lvn_status add_parts(const void *stream, const char *what, const sizes &s, const result &y);

__device__ static inline void put(const result &y, int z, int row, int column, float x)
{
    if (y.bias != NULL) {
        x += lvnc_load(y.bias, y.bias_type, z * y.bias_batch + column);
    }
    const int64_t at = z * y.batch + row * y.pitch + column;
    if (y.adds) {
        x += lvnc_load(y.y, y.type, at);
    }
    lvnc_store(y.y, y.type, at, x);
}

/* 10 bits of fraction, ties away from zero, as the cvt.rna.tf32 of PTX: factors of 16 bits stay. */
__device__ static inline float to_tf32(float x)
{
    return x - x == 0.0f ? __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u) : x;
}

/* TILE x DEPTH elements of an operand into shared memory, zeros outside: (row, k) is tile[k][row].
 * Neighbouring threads read along k or along the rows, as the operand lies in memory. */
template <typename Operand, typename Tile>
__device__ __forceinline__ void fetch(const Operand &from, Tile &tile, int z, int row0, int rows,
                                      int k0, int k1, bool tf32)
{
    const int t = (int)threadIdx.x;
    for (int i = 0; i < TILE * DEPTH / THREADS; i++) {
        const int k = from.along_k() ? t % DEPTH : t / TILE + i * (THREADS / TILE),
                  row = from.along_k() ? t / DEPTH + i * (THREADS / DEPTH) : t % TILE;
        float x = 0.0f;
        if (row0 + row < rows && k0 + k < k1) {
            x = from.at(z, row0 + row, k0 + k);
        }
        tile[k][row] = tf32 ? to_tf32(x) : x;
    }
}

/* Thread (i0, j0) has every 16th row and column: neighbours read neighbouring columns. */
template <typename Tile>
__device__ __forceinline__ void multiply(Tile &a, Tile &b, int i0, int j0, float sum[4][4])
{
    for (int k = 0; k < DEPTH; k++) {
        float x[4], w[4];
        for (int i = 0; i < 4; i++) {
            x[i] = a[k][i0 + 16 * i];
            w[i] = b[k][j0 + 16 * i];
        }
        for (int i = 0; i < 4; i++) {
            for (int j = 0; j < 4; j++) {
                sum[i][j] += x[i] * w[j];
            }
        }
    }
}

/* Blocks: of matrix, part of k, rows, columns; the last one fastest. */
template <typename A, typename B>
static __global__ void __launch_bounds__(THREADS) product(A a, B b, result y, sizes s)
{
    SHARED(float, tile_a, DEPTH, TILE + 1);
    SHARED(float, tile_b, DEPTH, TILE + 1);
    int64_t block = blockIdx.x;
    const int column0 = (int)(block % s.tiles_n) * TILE;
    block /= s.tiles_n;
    const int row0 = (int)(block % s.tiles_m) * TILE;
    block /= s.tiles_m;
    const int part = (int)(block % s.parts), z = (int)(block / s.parts);
    const int first = part * s.each, end = s.k - first < s.each ? s.k : first + s.each;
    const int i0 = (int)threadIdx.x / 16, j0 = (int)threadIdx.x % 16;
    const bool idle = row0 + i0 >= s.m || column0 + j0 >= s.n; /* all its results are outside */
    float sum[4][4] = {}, total[4][4] = {};
    for (int k0 = first; k0 < end; k0 += DEPTH) {
        fetch(a, tile_a, z, row0, s.m, k0, end, s.tf32);
        fetch(b, tile_b, z, column0, s.n, k0, end, s.tf32);
        __syncthreads();
        if (!idle) {
            multiply(tile_a, tile_b, i0, j0, sum);
        }
        __syncthreads();
        if ((k0 - first) % CHUNK == CHUNK - DEPTH || k0 + DEPTH >= end) {
            for (int i = 0; i < 16; i++) {
                total[i / 4][i % 4] += sum[i / 4][i % 4];
                sum[i / 4][i % 4] = 0.0f;
            }
        }
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            const int row = row0 + i0 + 16 * i, column = column0 + j0 + 16 * j;
            if (row >= s.m || column >= s.n) {
                continue;
            }
            if (y.partial != NULL) {
                const int64_t matrix = (int64_t)part * s.batches + z;
                y.partial[(matrix * s.m + row) * s.n + column] = total[i][j];
            } else {
                put(y, z, row, column, total[i][j]);
            }
        }
    }
}

template <typename A, typename B>
lvn_status run(const void *stream, const char *what, const A &a, const B &b, const result &y,
               const sizes &s)
{
    const int64_t blocks = (int64_t)s.tiles_m * s.tiles_n * s.parts * s.batches;
    if (blocks > 0x7fffffff) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s: %d products of (%d, %d) results are too many", what,
                 s.batches, s.m, s.n);
    }
    LVN_TRY(launch(stream, what, product<A, B>, dim3((unsigned)blocks), THREADS, 0, a, b, y, s));
    return s.parts == 1 ? LVN_OK : add_parts(stream, what, s, y);
}

/* ---- operands ---- */

/* Matrices anywhere in memory. */
template <typename T> struct strided {
    const T *p;
    int64_t batch, row, step; /* elements from one to the next */
    __device__ bool along_k() const
    {
        return step == 1;
    }
    __device__ float at(int z, int r, int k) const
    {
        return to_float(p[z * batch + r * row + k * step]);
    }
};
template <typename T>
static inline strided<T> make_strided(const void *p, int64_t batch, int64_t row, int64_t step)
{
    strided<T> s;
    s.p = static_cast<const T *>(p);
    s.batch = batch;
    s.row = row;
    s.step = step;
    return s;
}
} // namespace gemm

/* ---- row-major products: own kernel or cuBLASLt ---- */

/* Elements from a row of a matrix to the next, and from a matrix to the next. All zeros: rows and
 * matrices follow each other without gaps. */
struct lvnc_layout {
    int64_t pitch, batch;
};

/* y (m, n) = a (m, k) b (k, n) + bias (n), `batches` times; a lies as (k, m) where trans_a, b as
 * (n, k) where trans_b. Types: a, y and bias any; b that of a, or f32 without gaps: it is rounded
 * to a's then, as precision asks of weights in f32. */
struct lvnc_product {
    int64_t batches, m, n, k;
    bool trans_a, trans_b, has_bias;
    bool adds; /* y += a b; y is f32, without a bias */
    lvn_dtype a_type, b_type, bias_type, y_type;
    lvnc_layout a_at, b_at, y_at;
};
/* The layout, with its gaps spelt out, of the matrix that lies as (rows, columns). */
static inline lvnc_layout lvnc_layout_of(const lvnc_layout &l, int64_t rows, int64_t columns)
{
    lvnc_layout full = l;
    if (l.pitch == 0) {
        full.pitch = columns;
        full.batch = rows * columns;
    }
    return full;
}
/* Scratch memory of any product whose b has a's type and whose bias, if any, y's. */
size_t lvnc_product_most_bytes(void);
size_t lvnc_product_bytes(const lvnc_product *p);
lvn_status lvnc_product_run(const lvn_kernel_args *args, const lvnc_product *p, const void *a,
                            const void *b, const void *bias, void *y, lvnc_scratch scratch);

/* product_odd.cu. Of 0 bytes: not such a product. */
size_t lvnc_odd_product_bytes(const lvnc_product *p);
lvn_status lvnc_odd_product_run(const lvn_kernel_args *args, const lvnc_product *p, const void *a,
                                const void *b, const void *bias, void *y, lvnc_scratch scratch);

/* cublas.cu. False: the library refuses the problem, the caller computes; else *status. a and b
 * have one type, bias that of y. */
enum { LVNC_CUBLAS_BYTES = 32 << 20 };
bool lvnc_cublas_product(const lvn_kernel_args *args, const lvnc_product *p, const void *a,
                         const void *b, const void *bias, void *y, void *workspace,
                         lvn_status *status);

/* ---- parts of both ops ---- */

/* to[i] = from[i] in another type, for two arrays of n[i] elements (0: none): between f32 and one
 * of 16 bits. */
struct lvnc_casts {
    const void *from[2];
    void *to[2];
    lvn_dtype from_type, to_type;
    int64_t n[2];
};
lvn_status lvnc_cast(const void *stream, const char *what, const lvnc_casts &c);

/* y[column] = sum over rows of x (rows, columns), for gradients of biases. */
size_t lvnc_column_sums_bytes(int64_t rows, int64_t columns);
lvn_status lvnc_column_sums(const void *stream, const char *what, const void *x, lvn_dtype x_type,
                            int64_t rows, int64_t columns, void *y, lvn_dtype y_type,
                            lvnc_scratch scratch);

/* y (rows, columns) += bias (columns) */
lvn_status lvnc_add_bias(const void *stream, const char *what, void *y, lvn_dtype type,
                         int64_t rows, int64_t columns, const void *bias, lvn_dtype bias_type);

#endif
