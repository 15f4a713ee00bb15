/* What layer norm, losses and attention hand to their inner loops (isa.h). */
#ifndef LEVIN_KERNELS_CPU_ROWS_IMPL_H
#define LEVIN_KERNELS_CPU_ROWS_IMPL_H

#include "kernels/kernels.h"

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

#endif
