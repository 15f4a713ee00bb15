/* The inner loops of the own kernels, compiled once per instruction set (isa_v2.c, isa_v3.c,
 * isa_v4.c from the templates tpl_*.h) and chosen once per process. All versions give the same
 * bits: 16 virtual accumulators whatever the width of the registers, no fused multiply-add, own exp
 * and log.
 *
 * Called by the drivers of this folder (elementwise.c, reduce.c, ...), which know shapes and teams;
 * a function here knows neither. Arrays need no alignment; outputs do not overlap inputs. n, rows,
 * cols count elements. */
#ifndef LEVIN_KERNELS_CPU_ISA_H
#define LEVIN_KERNELS_CPU_ISA_H

#include "core/rng.h"
#include "kernels/flat.h"
#include "kernels/kernels.h"

#include <levin/status.h>

/* ---- what layer norm, losses and attention hand to their inner loops ---- */

/* Rows of a layer norm; gamma and beta are given (ones, zeros), mean and rstd have a value per
 * row. */
typedef struct lvni_cpu_layer_rows {
    const void *x; /* x and y: of the element type */
    void *y;
    const float *gamma, *beta;
    float *mean, *rstd;
    double eps;
} lvni_cpu_layer_rows;

/* Their gradient. s1, s2 (n each): sums over the rows of dy and of dy (x - mean) rstd. */
typedef struct lvni_cpu_layer_grad {
    const void *dy, *x; /* dy, x and dx: of the element type */
    void *dx;
    const float *gamma, *mean, *rstd;
    float *s1, *s2;
} lvni_cpu_layer_grad;

/* Elements of a loss; positive: a factor each, of binary cross entropy only; weight: NULL for
 * ones. */
typedef struct lvni_cpu_point_rows {
    lvn_point_loss_kind kind;
    float beta;
    const float *x, *t, *weight, *positive;
} lvni_cpu_point_rows;

/* Queries computed at once; fixed, since sums over queries go block by block. */
enum { LVNI_QUERY_BLOCK = 32 };

/* One head of one sample; q to y, dy and dq, dk, dv are of the element type. Rows lie `..._step`
 * elements apart; those of y, dy and dq, dk, dv as those of their counterparts. */
typedef struct lvni_cpu_attention_head {
    const void *q, *k, *v;
    int64_t q_step, k_step, v_step, y_step;
    int64_t queries, keys, d, e; /* e: features of v and y */
    float scale;
    bool causal;
    /* y and log_sums: written by the forward pass, read by the gradient */
    void *y;
    float *log_sums;
    const void *dy;
    void *dq, *dk, *dv; /* dk, dv may be NULL */
    float *work;        /* lvni_cpu_attention_work floats, 64-byte aligned */
} lvni_cpu_attention_head;

/* Rows of packed tables are filled up to whole virtual vectors. */
static inline int64_t lvni_cpu_padded(int64_t n)
{
    return (n + 15) / 16 * 16;
}

static inline int64_t lvni_cpu_attention_work(int64_t queries, int64_t keys, int64_t d, int64_t e,
                                              bool gradient)
{
    const int64_t s = lvni_cpu_padded(keys), dp = lvni_cpu_padded(d), ep = lvni_cpu_padded(e),
                  block = LVNI_QUERY_BLOCK;
    return gradient ? (d + e + 2 * block) * s + keys * (2 * dp + ep) + queries * (dp + ep) +
                          block * (dp + 16)
                    : d * s + keys * ep + block * (s + ep + dp);
}

/* ---- the numbers of functions ---- */

/* One number per row of map.def. */
typedef enum lvni_cpu_unary_id {
#define LVNI_UNARY(name, expression) LVNI_UNARY_##name,
#define LVNI_UNARY_ATTR(name, attr_type, first, second, expression) LVNI_UNARY_##name,
#include "kernels/map.def"
    LVNI_UNARY_COUNT
} lvni_cpu_unary_id;

typedef enum lvni_cpu_pair_id {
#define LVNI_PAIR(name, expression) LVNI_PAIR_##name,
#define LVNI_PAIR_ATTR(name, attr_type, first, second, expression) LVNI_PAIR_##name,
#include "kernels/map.def"
    LVNI_PAIR_COUNT
} lvni_cpu_pair_id;

typedef enum lvni_cpu_binary_id {
#define LVNI_BINARY(name, expression) LVNI_BINARY_##name,
#include "kernels/map.def"
    LVNI_BINARY_COUNT
} lvni_cpu_binary_id;

typedef enum lvni_cpu_compare_id {
#define LVNI_COMPARE(name, condition) LVNI_COMPARE_##name,
#include "kernels/map.def"
    LVNI_COMPARE_COUNT
} lvni_cpu_compare_id;

/* Which sides are arrays (V) and which a single value (S). */
typedef enum lvni_cpu_binary_mode {
    LVNI_VV,
    LVNI_VS,
    LVNI_SV,
    LVNI_MODE_COUNT
} lvni_cpu_binary_mode;

typedef void (*lvni_cpu_binary_fn)(const void *a, const void *b, void *y, int64_t n);

typedef struct lvni_cpu_pool_image {
    int64_t in_h, in_w, out_h, out_w, c;
    int kernel[2], stride[2], padding[2];
} lvni_cpu_pool_image;

/* The windows over a pixel: where their channels begin in dy, and which of their places the pixel
 * is. A place is a byte. */
typedef struct lvni_cpu_pool_over {
    int n;
    bool tile; /* windows tile the image: one alone, and nothing is added */
    int64_t at[256];
    int tap[256];
} lvni_cpu_pool_over;

/* A sparse matrix along one axis: row o is the sum over k < start[o + 1] - start[o] of
 * weight[start[o] + k] times row first[o] + k. */
typedef struct lvni_cpu_taps {
    int64_t n, *first, *start;
    float *weight;
} lvni_cpu_taps;

/* n windows of `kernel` pixels of c channels, `stride` pixels apart from -padding on; each lies
 * `step` floats behind the one before. */
typedef struct lvni_cpu_windows {
    const float *x;
    int64_t n, step, kernel, stride, padding, c;
} lvni_cpu_windows;

/* n windows of `taps` pixels of 16 channels that lie side by side; window i is at x + i * stride.
 */
enum { LVNI_DEPTHWISE_TAPS = 7 };
typedef struct lvni_cpu_depthwise_row {
    const float *x, *dy; /* dy (n, 16) */
    int64_t n, stride;
    int taps;   /* 3, 5 or 7 */
    float *sum; /* (taps, 16), is added to */
} lvni_cpu_depthwise_row;

/* Sums of one block of rows, per column: shift + s1 / rows is the block's mean. */
typedef struct lvni_cpu_norm_sums {
    const float *shift, *s1, *s2; /* (blocks, cols) each */
    int64_t rows, cols;           /* of the whole */
} lvni_cpu_norm_sums;

/* What stands between the gradient of a batch norm's result and its sums: nothing; relu, by the
 * sign of the result; relu, by computing the result again (no residual was added), which costs no
 * memory traffic. */
typedef enum lvni_cpu_norm_gate {
    LVNI_GATE_OPEN,
    LVNI_GATE_OUTPUT,
    LVNI_GATE_AGAIN
} lvni_cpu_norm_gate;

/* Per channel. b, d: of norm_grad_apply only, else NULL. */
typedef struct lvni_cpu_norm_vectors {
    const float *mean, *scale, *shift, *b, *d;
} lvni_cpu_norm_vectors;

/* Rows of a batch norm's gradient. */
typedef struct lvni_cpu_norm_grad {
    const void *dy, *x;
    const void *y; /* of LVNI_GATE_OUTPUT, else NULL */
    void *g;       /* or NULL */
    lvni_cpu_norm_gate gate;
} lvni_cpu_norm_grad;

/* Loops that are compiled for tables of f32 and of bf16 (void: of the type). bf16 is computed as
 * its f32 copy would be and rounded once, where it is stored. */
typedef enum lvni_cpu_elem { LVNI_ELEM_F32, LVNI_ELEM_BF16, LVNI_ELEMS } lvni_cpu_elem;

static inline lvni_cpu_elem lvni_cpu_elem_of(lvn_dtype dtype)
{
    return dtype == LVN_BF16 ? LVNI_ELEM_BF16 : LVNI_ELEM_F32;
}

/* Element i of a table of elements of `size` bytes, which may be NULL. */
static inline const void *lvni_cpu_elem_at(const void *table, int64_t i, size_t size)
{
    return table == NULL ? NULL : (const char *)table + (size_t)i * size;
}

static inline void *lvni_cpu_elem_to(void *table, int64_t i, size_t size)
{
    return table == NULL ? NULL : (char *)table + (size_t)i * size;
}

typedef struct lvni_cpu_norm_loops {
    /* x - first row: s1 = sums, s2 = sums of squares; the first row goes to shift. rows <=
     * LVNI_ROW_BLOCK. */
    void (*sums)(const void *x, int64_t rows, int64_t cols, float *shift, float *s1, float *s2);
    /* y = (x - mean) * scale + shift (+ residual, unless NULL), negative values to 0 with relu */
    void (*apply)(const void *x, const void *residual, bool relu, const lvni_cpu_norm_vectors *v,
                  void *y, int64_t rows, int64_t cols);
    /* g = what of dy passed the gate: s1 = sums of g, s2 = sums of g * (x - mean); n->g, if given,
     * keeps g. */
    void (*grad_sums)(const lvni_cpu_norm_grad *n, const lvni_cpu_norm_vectors *v, int64_t rows,
                      int64_t cols, float *s1, float *s2);
    /* dx = (g - b - (x - mean) * d) * scale */
    void (*grad_apply)(const lvni_cpu_norm_grad *n, const lvni_cpu_norm_vectors *v, void *dx,
                       int64_t rows, int64_t cols);
} lvni_cpu_norm_loops;

typedef struct lvni_cpu_vec {
    const char *name; /* "v4" */
    void (*unary[LVNI_UNARY_COUNT])(const float *x, float *y, int64_t n, float p0, float p1);
    void (*pair[LVNI_PAIR_COUNT])(const float *a, const float *b, float *y, int64_t n, float p0,
                                  float p1);
    lvni_cpu_binary_fn binary[LVNI_ELEMS][LVNI_BINARY_COUNT][LVNI_MODE_COUNT];
    lvni_cpu_binary_fn compare[LVNI_COMPARE_COUNT][LVNI_MODE_COUNT]; /* y: bool */

    void (*from_bf16)(const uint16_t *x, float *y, int64_t n);
    void (*to_bf16)(const float *x, uint16_t *y, int64_t n);
    void (*from_f16)(const uint16_t *x, float *y, int64_t n);
    void (*to_f16)(const float *x, uint16_t *y, int64_t n);

    /* y = x, where x < 0 slope x, with a slope for each of n columns; its gradient over some rows:
     * dx = dy where x > 0, else slope dy, and sums[c] += the dy x of the others, four rows at a
     * time. */
    void (*prelu)(const float *x, const float *slope, float *y, int64_t n);
    void (*prelu_grad)(const float *dy, const float *x, const float *slope, float *dx, int64_t rows,
                       int64_t cols, int64_t stride, float *sums);

    /* y[r] = sum of row r (n <= LVNI_CPU_SUM_BLOCK columns). */
    void (*row_sums)(const float *x, int64_t rows, int64_t n, float *y);
    /* y[c] = sum over rows <= LVNI_ROW_BLOCK of x[r * stride + c]. */
    void (*col_sums)(const float *x, int64_t rows, int64_t cols, int64_t stride, float *y);
    /* y[c] = (sum over blocks of partial[b * cols + c]) / divisor, added in f64 in the order of the
     * blocks. */
    void (*combine)(const float *partial, int64_t blocks, int64_t cols, double divisor, float *y);
    /* The first maximum of each row / column (a NaN counts as the largest); either output may be
     * NULL. */
    void (*row_max)(const float *x, int64_t rows, int64_t n, float *value, int64_t *index);
    void (*col_max)(const float *x, int64_t rows, int64_t cols, float *value, int64_t *index);

    void (*softmax)(const float *x, float *y, int64_t rows, int64_t k);
    void (*softmax_grad)(const float *dy, const float *y, float *dx, int64_t rows, int64_t k);
    void (*log_softmax)(const float *x, float *y, int64_t rows, int64_t k);
    void (*log_softmax_grad)(const float *dy, const float *y, float *dx, int64_t rows, int64_t k);

    lvni_cpu_norm_loops norm[LVNI_ELEMS];
    /* Columns [c0, c1): mean and sum of squared distances from it. */
    void (*norm_combine)(const lvni_cpu_norm_sums *sums, int64_t c0, int64_t c1, double *mean,
                         double *m2);

    void (*layer_norm[LVNI_ELEMS])(const lvni_cpu_layer_rows *t, int64_t rows, int64_t n);
    void (*layer_norm_grad[LVNI_ELEMS])(const lvni_cpu_layer_grad *t, int64_t rows, int64_t n);
    /* dx = dy scale + shift - (x - mean) d */
    void (*group_grad_apply[LVNI_ELEMS])(const void *dy, const void *x,
                                         const lvni_cpu_norm_vectors *v, void *dx, int64_t rows,
                                         int64_t cols);
    /* kept[2 r], kept[2 r + 1]: the maximum of row r and the log of its sum of e^(x - maximum). */
    void (*row_log_sums)(const float *x, int64_t rows, int64_t k, float *kept);
    /* Sum over a row of w (log_sum - (x - top)); w NULL: ones. */
    double (*row_smooth)(const float *x, const float *w, int64_t k, float top, float log_sum);
    /* dx = a e^(x - kept[0] - kept[1]) - c w */
    void (*row_slopes)(const float *x, const float *w, int64_t k, const float kept[2], float a,
                       float c, float *dx);
    /* At most LVNI_CPU_SUM_BLOCK elements: the sum of the losses; factor times their slopes. */
    float (*point_loss)(const lvni_cpu_point_rows *p, int64_t n);
    void (*point_loss_grad)(const lvni_cpu_point_rows *p, float factor, float *dx, int64_t n);
    void (*attention[LVNI_ELEMS])(const lvni_cpu_attention_head *h);
    void (*attention_grad[LVNI_ELEMS])(const lvni_cpu_attention_head *h);

    /* Row oh of the result; place may be NULL. */
    void (*pool_row[LVNI_ELEMS])(const lvni_cpu_pool_image *g, const void *x, int64_t oh, void *y,
                                 uint8_t *place);
    /* A pixel of the gradient of an image gets dy of those windows over it whose place it is, in
     * their order. */
    void (*pool_pixel_grad[LVNI_ELEMS])(const lvni_cpu_pool_over *over, int64_t c, const void *dy,
                                        const uint8_t *place, void *dx);

    /* y[e] = sum over k < taps of w[k] * x[k * step + e], in that order */
    void (*mix[LVNI_ELEMS])(const void *x, int64_t step, const float *w, int64_t taps, float *y,
                            int64_t n);
    /* The matrix t applied to a row of pixels of c channels. */
    void (*mix_row[LVNI_ELEMS])(const lvni_cpu_taps *t, const float *x, int64_t c, void *y);

    /* Maps of keypoints, in f64 where they are mixed: y[e] = sum over k < taps of w[k] x[k step +
     * e]; its transpose y[k step + e] += w[k] x[e]; the maximum of x and `most`. */
    void (*mix_f64)(const double *x, int64_t step, const double *w, int64_t taps, double *y,
                    int64_t n);
    void (*spread_f64)(const double *x, const double *w, int64_t taps, double *y, int64_t step,
                       int64_t n);
    double (*max_f64)(const double *x, int64_t n, double most);
    /* e = exp(factor (u - top)); column += e, and the sum of e; g[j] = e[j] (slope (j - from) +
     * level) */
    void (*exp_f64)(const double *u, double top, double factor, float *e, int64_t n);
    double (*add_exp_row)(const float *e, double *column, int64_t n);
    void (*tilt_row)(const float *e, float slope, float from, float level, double *g, int64_t n);

    /* Add windows to the pixels of a row they lie over, in an order that depends on their shape
     * alone. */
    void (*add_windows)(const lvni_cpu_windows *w, int64_t pixels, float *y);
    void (*depthwise_row)(const lvni_cpu_depthwise_row *row);

    /* Elements [first, first + n) of the tensor at x, first a multiple of 4: x * scale where
     * uniform >= p, else 0. */
    void (*dropout)(const float *x, float *y, int64_t first, int64_t n, const lvni_core_rng *rng,
                    float p, float scale);

    /* Uniform numbers of elements [first, first + n) of the stream, first a multiple of 4. */
    void (*uniform)(float *y, int64_t first, int64_t n, const lvni_core_rng *rng);
    /* likewise; mean 0 */
    void (*normal)(float *y, int64_t first, int64_t n, double deviation, const lvni_core_rng *rng);

    void (*block_sumsq)(const float *g, int64_t n, double *sum); /* one block */
    void (*sgd)(float *w, const float *g, float *momentum, int64_t n, const lvn_flat_sgd *p);
    void (*adamw)(float *w, const float *g, float *m, float *v, int64_t n, const lvn_flat_adamw *p);
    void (*rmsprop)(float *w, const float *g, float *v, float *mean, float *momentum, int64_t n,
                    const lvn_flat_rmsprop *p);
    void (*lion)(float *w, const float *g, float *m, int64_t n, const lvn_flat_lion *p);
    /* one block; *sum of u^2 */
    void (*lamb_moments)(const float *w, const float *g, float *m, float *v, int64_t n, double *sum,
                         const lvn_flat_lamb *p);
    void (*lamb)(float *w, const float *m, const float *v, int64_t n, const lvn_flat_lamb *p);
    /* Adafactor. sum += x^2; v = row / mean * col, the entries of n matrices; from v in u: u =
     * scale g / sqrt(max(v, least)); w = keep w - rate u */
    void (*add_squares)(const float *x, double *sum, int64_t n);
    void (*adafactor_estimate)(const float *row, const float *col, const double *mean, float *v,
                               int64_t n);
    void (*adafactor_direction)(const float *g, float *u, int64_t n, float scale, float least);
    void (*adafactor_step)(float *w, const float *u, int64_t n, float keep, float rate);
    void (*accumulate)(float *a, const float *b, int64_t n); /* a += b */
    void (*accumulate_bf16)(uint16_t *a, const uint16_t *b, int64_t n);
    void (*lerp)(float *a, const float *b, float t, int64_t n); /* a += t (b - a) */
} lvni_cpu_vec;

extern const lvni_cpu_vec lvni_vec_v2, lvni_vec_v3, lvni_cpu_vec_v4;

/* The table for this machine: the best it has, or what LEVIN_CPU_ISA=v2|v3|v4 asks for if that is
 * lower. Read once. */
const lvni_cpu_vec *lvni_cpu_isa(void);
/* LVN_ERR_USAGE when LEVIN_CPU_ISA names nothing known or more than the machine has. Called at
 * start. */
lvn_status lvni_cpu_isa_check(void);

#endif
