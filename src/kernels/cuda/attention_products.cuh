/* Attention by batched products of 16-bit matrices (gemm.cuh): those have the GPU's matrix units,
 * which own kernels do without. For sequences that are long enough; attention.cuh has the others.
 *
 *   attention_products.cu        plan, copies, forward
 *   attention_products_grad.cu   gradient
 *
 * Some heads at a time, as many as a fixed amount of scratch memory takes: their q, k, v are copied
 * to (heads, positions, features), then a block of queries (forward) or of keys (gradient) at a
 * time has its table of scores. A causal mask saves the blocks that it hides as a whole. */
#ifndef LEVIN_KERNELS_CUDA_ATTENTION_PRODUCTS_CUH
#define LEVIN_KERNELS_CUDA_ATTENTION_PRODUCTS_CUH

#include "attention.cuh"
#include "gemm.cuh"

/* From shapes and types alone. */
struct attention_plan {
    int heads; /* of all samples, at a time; 0: attention.cuh's way */
    int block; /* queries or keys at a time */
    size_t bytes;
};
attention_plan lvnc_plan_attention(const attention_heads &h, lvn_dtype type, bool gradient);

/* With a plan of heads > 0 and scratch memory of its bytes. */
lvn_status lvnc_attention_products(const lvn_kernel_args *args, attention_heads h);
lvn_status lvnc_attention_products_grad(const lvn_kernel_args *args, attention_heads h);

/* ---- scratch memory ---- */

/* Tables have rows of a multiple of 8 elements, so that every row starts at a whole pack. */
static inline int table_pitch(int columns)
{
    return (columns + 7) / 8 * 8;
}

struct attention_work {
    void *q, *k, *v, *y, *dy, *dk, *dv; /* (heads, positions, features), 16 bits */
    float *dq;
    float *scores, *growths; /* tables: q k^T, dy v^T */
    void *p, *slopes;        /* tables in 16 bits: probabilities, gradient of the scores */
    float *means;            /* of all heads */
    void *product;           /* of gemm.cuh */
};
attention_work lvnc_attention_work(const attention_heads &h, const attention_plan &plan,
                                   bool gradient, lvnc_scratch *s);

/* ---- steps ---- */

struct heads_matrix {
    const void *p;
    bool trans; /* the product has its transpose */
    lvnc_layout at;
};
static inline heads_matrix matrix_of(const void *p, int64_t pitch, int64_t rows)
{
    heads_matrix m;
    m.p = p;
    m.trans = false;
    m.at.pitch = pitch;
    m.at.batch = pitch * rows;
    return m;
}
/* Row `first` on of matrices of so many rows in all. */
template <typename T>
static inline heads_matrix rows_of(const void *p, int first, int rows, int width)
{
    return matrix_of(static_cast<const T *>(p) + (int64_t)first * width, width, rows);
}
static inline heads_matrix transposed(heads_matrix m)
{
    m.trans = true;
    return m;
}

/* y (m, n) = a (m, k) b (k, n), or y += a b, of n_heads heads; a and b have `type`. */
struct heads_product {
    int n_heads, m, n, k;
    lvn_dtype type, y_type;
    bool adds;
    heads_matrix a, b, y;
};
static inline heads_product product_of_heads(int n_heads, lvn_dtype type, lvn_dtype y_type, int m,
                                             int n, int k)
{
    heads_product p = heads_product();
    p.n_heads = n_heads;
    p.m = m;
    p.n = n;
    p.k = k;
    p.type = type;
    p.y_type = y_type;
    return p;
}
lvn_status lvnc_multiply_heads(const lvn_kernel_args *args, const heads_product &p, void *scratch);

/* Heads [first, first + n) of a view to or from (n, positions, width). */
template <typename T>
lvn_status lvnc_gather_heads(const lvn_kernel_args *args, const attention_heads &h,
                             const head_view &from, int first, int n, int positions, int width,
                             void *to);
template <typename From, typename T>
lvn_status lvnc_scatter_heads(const lvn_kernel_args *args, const attention_heads &h,
                              const void *from, const head_view &to, int first, int n,
                              int positions, int width);

#endif
