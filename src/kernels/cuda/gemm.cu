/* Sizes and sums of the own product kernel (gemm.cuh), and products of matrices in memory. */
#include "gemm.cuh"

#include <stdio.h>

/* ---- switches ---- */

static bool is_set(const char *name, const char *value)
{
    const char *text = getenv(name);
    return text != NULL && strcmp(text, value) == 0;
}

bool lvnc_uses_libraries(void)
{
#ifdef LEVIN_CUDA_ON_HOST
    return false;
#else
    static const bool on = !is_set("LEVIN_CUDA_LIBRARIES", "off");
    return on;
#endif
}

static bool tf32;

bool lvnc_allows_tf32(void)
{
    return __atomic_load_n(&tf32, __ATOMIC_RELAXED);
}

void lvnc_allow_tf32(bool allowed)
{
    __atomic_store_n(&tf32, allowed, __ATOMIC_RELAXED);
}

lvn_status lvnc_library_failed(const lvn_kernel_args *args, const char *library, const char *why,
                               bool memory)
{
    LVN_FAIL(memory ? LVN_ERR_DEVICE_MEMORY : LVN_ERR_RESOURCE, LVNC_NAME ":%d: %s: %s: %s",
             lvnc_device_of(args->stream)->index, args->op->name, library, why);
}

lvn_status lvnc_chosen_failed(const lvn_kernel_args *args, const char *library)
{
    return lvnc_library_failed(args, library,
                               "the algorithm that the run's pins name for it does not run; "
                               "pins=null measures again",
                               false);
}

bool lvnc_debugs(void)
{
    static const bool on = is_set("LEVIN_CUDA_DEBUG", "1");
    return on;
}

/* ---- the own kernel's sizes, and its sums over parts ---- */

namespace gemm
{
sizes sizes_of(int batches, int m, int n, int k)
{
    sizes s;
    s.tf32 = lvnc_allows_tf32();
    s.batches = batches;
    s.m = m;
    s.n = n;
    s.k = k;
    s.tiles_m = (int)(((int64_t)m + TILE - 1) / TILE);
    s.tiles_n = (int)(((int64_t)n + TILE - 1) / TILE);
    const int64_t blocks = (int64_t)s.tiles_m * s.tiles_n * batches;
    int64_t parts = blocks == 0 ? 1 : MOST_BLOCKS / blocks;
    const int64_t most = k / LEAST_TERMS;
    parts = parts < most ? parts : most;
    parts = parts < 1 ? 1 : parts;
    const int64_t each = (k + parts - 1) / parts, whole = (each + DEPTH - 1) / DEPTH * DEPTH;
    s.each = (int)(whole < k ? whole : k);
    s.parts = k == 0 ? 1 : (int)(((int64_t)k + s.each - 1) / s.each);
    return s;
}

static __global__ void sum_parts(result y, sizes s, int64_t all)
{
    FOR_GRID (e, all) {
        float sum = 0.0f;
        for (int p = 0; p < s.parts; p++) {
            sum += y.partial[p * all + e];
        }
        const int64_t row = e / s.n;
        put(y, (int)(row / s.m), (int)(row % s.m), (int)(e % s.n), sum);
    }
}

lvn_status add_parts(const void *stream, const char *what, const sizes &s, const result &y)
{
    const int64_t all = (int64_t)s.batches * s.m * s.n;
    return launch(stream, what, sum_parts, blocks_for(all, 256), 256, 0, y, s, all);
}
} // namespace gemm

/* ---- products of matrices in memory ---- */

static bool fits(const lvnc_product *p)
{
    const int64_t most = 0x7fffffff - gemm::TILE;
    return p->batches <= most && p->m <= most && p->n <= most && p->k <= most;
}

static gemm::sizes sizes_of(const lvnc_product *p)
{
    return gemm::sizes_of((int)p->batches, (int)p->m, (int)p->n, (int)p->k);
}

static bool casts_b(const lvnc_product *p)
{
    return p->b_type != p->a_type;
}
static bool casts_bias(const lvnc_product *p)
{
    return p->has_bias && p->bias_type != p->y_type;
}

/* Pieces of scratch memory. */
struct pieces {
    void *b, *bias, *library;
    float *partial;
};

static pieces cut(const lvnc_product *p, lvnc_scratch *s)
{
    pieces at;
    at.b = lvnc_piece(s, casts_b(p) ? (size_t)(p->batches * p->k * p->n) * 2 : 0);
    at.bias = lvnc_piece(s, casts_bias(p) ? (size_t)p->n * 4 : 0);
    const size_t partial = fits(p) ? gemm::partial_bytes(sizes_of(p)) : 0;
    size_t shared = partial; /* by the kernel or by the library */
#ifndef LEVIN_CUDA_ON_HOST
    shared = partial > LVNC_CUBLAS_BYTES ? partial : (size_t)LVNC_CUBLAS_BYTES;
#endif
    at.library = lvnc_piece(s, p->batches * p->m * p->n == 0 ? 0 : shared);
    at.partial = partial == 0 ? NULL : static_cast<float *>(at.library);
    return at;
}

size_t lvnc_product_bytes(const lvnc_product *p)
{
    const size_t odd = lvnc_odd_product_bytes(p);
    if (odd > 0) {
        return odd;
    }
    lvnc_scratch none = {NULL, 0};
    (void)cut(p, &none);
    return none.used;
}

/* The own kernel splits k only as far as MOST_BLOCKS blocks allow. */
size_t lvnc_product_most_bytes(void)
{
    const size_t partial = sizeof(float) * gemm::MOST_BLOCKS * gemm::TILE * gemm::TILE;
#ifdef LEVIN_CUDA_ON_HOST
    return partial;
#else
    return partial > LVNC_CUBLAS_BYTES ? partial : (size_t)LVNC_CUBLAS_BYTES;
#endif
}

static lvn_status run_own(const lvn_kernel_args *args, const lvnc_product *p, const void *a,
                          const void *b, const void *bias, void *y, float *partial)
{
    const char *what = args->op->name;
    if (!fits(p)) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: %lld products of (%lld, %lld) results of %lld terms: at most 2^31 of each",
                 what, (long long)p->batches, (long long)p->m, (long long)p->n, (long long)p->k);
    }
    const bool ta = p->trans_a, tb = p->trans_b;
    const lvnc_layout of_a = lvnc_layout_of(p->a_at, ta ? p->k : p->m, ta ? p->m : p->k),
                      of_b = lvnc_layout_of(p->b_at, tb ? p->n : p->k, tb ? p->k : p->n),
                      of_y = lvnc_layout_of(p->y_at, p->m, p->n);
    gemm::result to = {};
    to.y = y;
    to.type = p->y_type;
    to.batch = of_y.batch;
    to.pitch = of_y.pitch;
    to.bias = bias;
    to.bias_type = p->bias_type;
    to.adds = p->adds;
    to.partial = partial;
    WITH_FLOAT(p->a_type, T,
               return gemm::run(
                   args->stream, what,
                   gemm::make_strided<T>(a, of_a.batch, ta ? 1 : of_a.pitch, ta ? of_a.pitch : 1),
                   gemm::make_strided<T>(b, of_b.batch, tb ? of_b.pitch : 1, tb ? 1 : of_b.pitch),
                   to, sizes_of(p)));
}

lvn_status lvnc_product_run(const lvn_kernel_args *args, const lvnc_product *p, const void *a,
                            const void *b, const void *bias, void *y, lvnc_scratch scratch)
{
    if (p->batches * p->m * p->n == 0) {
        return LVN_OK;
    }
    if (lvnc_odd_product_bytes(p) > 0) {
        return lvnc_odd_product_run(args, p, a, b, bias, y, scratch);
    }
    const pieces at = cut(p, &scratch);
    const bool library = lvnc_uses_libraries() && p->k > 0;
    const bool wide_bias = casts_bias(p) && library;
    if (casts_b(p) || wide_bias) {
        lvnc_casts c = {}; /* whatever has another type than a is f32 */
        c.from_type = LVN_F32;
        c.to_type = p->a_type;
        c.from[0] = b;
        c.to[0] = at.b;
        c.n[0] = casts_b(p) ? p->batches * p->k * p->n : 0;
        c.from[1] = bias;
        c.to[1] = at.bias;
        c.n[1] = wide_bias ? p->n : 0;
        LVN_TRY(lvnc_cast(args->stream, args->op->name, c));
    }
    const void *low_b = casts_b(p) ? at.b : b;
    lvn_status s = LVN_OK;
    if (library &&
        lvnc_cublas_product(args, p, a, low_b, wide_bias ? at.bias : bias, y, at.library, &s)) {
        return s;
    }
    return run_own(args, p, a, low_b, bias, y, at.partial);
}

/* ---- casts ---- */

enum { CAST_AT_ONCE = 4, CAST_TURNS = 4, CAST_BLOCK = 256 * CAST_AT_ONCE * CAST_TURNS };

/* The first `blocks` blocks are array 0's. A thread has its loads on the way together. */
template <typename From, typename To>
static __global__ void cast_two(lvnc_casts c, int64_t blocks, bool whole)
{
    const int which = blockIdx.x < blocks ? 0 : 1;
    const int64_t block = which == 0 ? blockIdx.x : blockIdx.x - blocks, n = c.n[which],
                  first = block * CAST_BLOCK + (int)threadIdx.x * CAST_AT_ONCE;
    const From *from = static_cast<const From *>(c.from[which]);
    To *to = static_cast<To *>(c.to[which]);
    if (whole && (block + 1) * CAST_BLOCK <= n) {
        pack<From, CAST_AT_ONCE> x[CAST_TURNS];
        UNROLL
        for (int t = 0; t < CAST_TURNS; t++) {
            x[t] = load<From, CAST_AT_ONCE>(from + first + t * 256 * CAST_AT_ONCE);
        }
        UNROLL
        for (int t = 0; t < CAST_TURNS; t++) {
            pack<To, CAST_AT_ONCE> y;
            UNROLL
            for (int i = 0; i < CAST_AT_ONCE; i++) {
                y.v[i] = from_float<To>(to_float(x[t].v[i]));
            }
            store<To, CAST_AT_ONCE>(to + first + t * 256 * CAST_AT_ONCE, y);
        }
        return;
    }
    for (int t = 0; t < CAST_TURNS; t++) {
        for (int i = 0; i < CAST_AT_ONCE; i++) {
            const int64_t at = first + t * 256 * CAST_AT_ONCE + i;
            if (at < n) {
                to[at] = from_float<To>(to_float(from[at]));
            }
        }
    }
}

template <typename From, typename To>
static lvn_status start_cast(const void *stream, const char *what, const lvnc_casts &c)
{
    int align = 16;
    for (int i = 0; i < 2; i++) {
        const int from = lvnc_alignment(c.from[i]), to = lvnc_alignment(c.to[i]);
        align = c.n[i] == 0 ? align : from < align ? from : to < align ? to : align;
    }
    const int64_t first = (c.n[0] + CAST_BLOCK - 1) / CAST_BLOCK,
                  second = (c.n[1] + CAST_BLOCK - 1) / CAST_BLOCK;
    return launch(stream, what, cast_two<From, To>, (unsigned)(first + second), 256, 0, c, first,
                  align == 16);
}

lvn_status lvnc_cast(const void *stream, const char *what, const lvnc_casts &c)
{
    if (c.from_type == LVN_F32) {
        return c.to_type == LVN_BF16 ? start_cast<float, bf16>(stream, what, c)
                                     : start_cast<float, f16>(stream, what, c);
    }
    return c.from_type == LVN_BF16 ? start_cast<bf16, float>(stream, what, c)
                                   : start_cast<f16, float>(stream, what, c);
}

/* ---- sums of columns ---- */

enum { LANES = 32, ROWS_AT_ONCE = 8 };

/* Parts of the rows, each summed by one block per LANES threads. */
static int64_t parts_of(int64_t rows, int64_t columns)
{
    const int64_t tiles = (columns + LANES - 1) / LANES, most = tiles < 4096 ? 4096 / tiles : 1,
                  wanted = (rows + 255) / 256, parts = wanted < most ? wanted : most;
    return parts < 1 ? 1 : parts < 512 ? parts : 512;
}

size_t lvnc_column_sums_bytes(int64_t rows, int64_t columns)
{
    const int64_t parts = columns == 0 ? 1 : parts_of(rows, columns);
    return parts == 1 ? 0 : (size_t)(parts * columns) * sizeof(float);
}

/* Thread (row, lane) adds every ROWS_AT_ONCE-th row of N columns; then the block's rows in order.
 */
template <typename T, int N>
static __global__ void sum_columns(const T *x, int64_t rows, int64_t columns, int64_t tiles,
                                   int64_t each, void *y, lvn_dtype type)
{
    SHARED(float, part, ROWS_AT_ONCE, LANES *N);
    const int lane = (int)threadIdx.x % LANES, row = (int)threadIdx.x / LANES;
    const int64_t tile = blockIdx.x % tiles, p = blockIdx.x / tiles,
                  column = (tile * LANES + lane) * N,
                  end = (p + 1) * each < rows ? (p + 1) * each : rows;
    float sum[N] = {};
    if (column < columns) {
        for (int64_t r = p * each + row; r < end; r += ROWS_AT_ONCE) {
            const pack<T, N> v = load<T, N>(x + r * columns + column);
            for (int i = 0; i < N; i++) {
                sum[i] += to_float(v.v[i]);
            }
        }
    }
    for (int i = 0; i < N; i++) {
        part[row][lane * N + i] = sum[i];
    }
    __syncthreads();
    for (int c = (int)threadIdx.x; c < LANES * N; c += LANES * ROWS_AT_ONCE) {
        const int64_t at = tile * LANES * N + c;
        float total = 0.0f;
        for (int r = 0; r < ROWS_AT_ONCE; r++) {
            total += part[r][c];
        }
        if (at < columns) {
            lvnc_store(y, type, p * columns + at, total);
        }
    }
}

static __global__ void add_columns(const float *part, int parts, int64_t columns, void *y,
                                   lvn_dtype type)
{
    FOR_GRID (c, columns) {
        float sum = 0.0f;
        for (int p = 0; p < parts; p++) {
            sum += part[p * columns + c];
        }
        lvnc_store(y, type, c, sum);
    }
}

template <typename T, int N>
static lvn_status start_columns(const void *stream, const char *what, const void *x, int64_t rows,
                                int64_t columns, int64_t parts, void *y, lvn_dtype type)
{
    const int64_t tiles = (columns + LANES * N - 1) / (LANES * N),
                  each = (rows + parts - 1) / parts;
    return launch(stream, what, sum_columns<T, N>, (unsigned)(tiles * parts), LANES * ROWS_AT_ONCE,
                  0, static_cast<const T *>(x), rows, columns, tiles, each, y, type);
}

template <typename T>
static lvn_status choose_columns(const void *stream, const char *what, const void *x, int64_t rows,
                                 int64_t columns, int64_t parts, void *y, lvn_dtype type)
{
    enum { N = 16 / sizeof(T) };
    return columns % N == 0 && lvnc_alignment(x) == 16
               ? start_columns<T, N>(stream, what, x, rows, columns, parts, y, type)
               : start_columns<T, 1>(stream, what, x, rows, columns, parts, y, type);
}

static lvn_status first_sums(const void *stream, const char *what, const void *x, lvn_dtype x_type,
                             int64_t rows, int64_t columns, int64_t parts, void *y, lvn_dtype type)
{
    switch (x_type) {
    case LVN_BF16: return choose_columns<bf16>(stream, what, x, rows, columns, parts, y, type);
    case LVN_F16: return choose_columns<f16>(stream, what, x, rows, columns, parts, y, type);
    default: return choose_columns<float>(stream, what, x, rows, columns, parts, y, type);
    }
}

lvn_status lvnc_column_sums(const void *stream, const char *what, const void *x, lvn_dtype x_type,
                            int64_t rows, int64_t columns, void *y, lvn_dtype y_type,
                            lvnc_scratch scratch)
{
    if (columns == 0) {
        return LVN_OK;
    }
    const int64_t parts = parts_of(rows, columns);
    if (parts == 1) {
        return first_sums(stream, what, x, x_type, rows, columns, 1, y, y_type);
    }
    float *part = static_cast<float *>(lvnc_piece(&scratch, lvnc_column_sums_bytes(rows, columns)));
    LVN_TRY(first_sums(stream, what, x, x_type, rows, columns, parts, part, LVN_F32));
    return launch(stream, what, add_columns, blocks_for(columns, 256), 256, 0, part, (int)parts,
                  columns, y, y_type);
}

/* ---- bias ---- */

template <typename T, int N>
static __global__ void add_bias(T *y, int64_t packs, int64_t columns, const void *bias,
                                lvn_dtype bias_type)
{
    FOR_GRID (e, packs) {
        const int64_t first = e * N;
        const int64_t column = first < INT64_C(0x100000000) && columns < INT64_C(0x100000000)
                                   ? (int64_t)((uint32_t)first % (uint32_t)columns)
                                   : first % columns;
        pack<T, N> *at = reinterpret_cast<pack<T, N> *>(y) + e;
        pack<T, N> v = *at;
        for (int i = 0; i < N; i++) {
            v.v[i] = from_float<T>(to_float(v.v[i]) + lvnc_load(bias, bias_type, column + i));
        }
        *at = v;
    }
}

template <typename T>
static lvn_status choose_bias(const void *stream, const char *what, void *y, int64_t rows,
                              int64_t columns, const void *bias, lvn_dtype bias_type)
{
    enum { N = 16 / sizeof(T) };
    T *to = static_cast<T *>(y);
    const int64_t n = rows * columns;
    return columns % N == 0 && lvnc_alignment(y) == 16
               ? launch(stream, what, add_bias<T, N>, blocks_for(n / N, 256), 256, 0, to, n / N,
                        columns, bias, bias_type)
               : launch(stream, what, add_bias<T, 1>, blocks_for(n, 256), 256, 0, to, n, columns,
                        bias, bias_type);
}

lvn_status lvnc_add_bias(const void *stream, const char *what, void *y, lvn_dtype type,
                         int64_t rows, int64_t columns, const void *bias, lvn_dtype bias_type)
{
    switch (type) {
    case LVN_BF16: return choose_bias<bf16>(stream, what, y, rows, columns, bias, bias_type);
    case LVN_F16: return choose_bias<f16>(stream, what, y, rows, columns, bias, bias_type);
    default: return choose_bias<float>(stream, what, y, rows, columns, bias, bias_type);
    }
}
