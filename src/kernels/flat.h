/* Kernels over flat f32 buffers of parameters, gradients and optimizer state, called by optim/ and
 * the gradient merge of the trainer. Bits do not depend on the team. Buffers need no alignment and
 * do not overlap. */
#ifndef LEVIN_KERNELS_FLAT_H
#define LEVIN_KERNELS_FLAT_H

#include <stdbool.h>
#include <stdint.h>

/* Floats behind one partial sum of a norm. Results depend on it: it never changes. */
enum { LVNI_FLAT_BLOCK = 4096 };

static inline int64_t lvni_kernels_flat_blocks(int64_t n)
{
    return (n + LVNI_FLAT_BLOCK - 1) / LVNI_FLAT_BLOCK;
}

/* a += b: two gradient sets become one (a node of the tree). */
void lvni_kernels_flat_add(float *a, const float *b, int64_t n);
/* a += t * (b - a): where the two are equal, a stays as it is to the bit. */
void lvni_kernels_flat_lerp(float *a, const float *b, float t, int64_t n);
/* partial[i] = sum of g^2 over block i, in f64; lvni_kernels_flat_blocks(n) entries. A value that
 * is not finite makes its block's sum inf or NaN. Blocks of a larger buffer may be asked for in
 * pieces that start at multiples of LVNI_FLAT_BLOCK. */
void lvni_kernels_flat_block_sumsq(const float *g, int64_t n, double *partial);
/* The sum over blocks in the fixed tree: neighbours first, an odd last block moves up alone.
 * Overwrites partial. 0 for no blocks. */
double lvni_kernels_flat_sum_tree(double *partial, int64_t blocks);

/* What every optimizer does to a gradient first: g = clamp(g * grad_scale, -clip_value,
 * clip_value). */
typedef struct lvni_kernels_flat_sgd_params {
    double lr, momentum, dampening, weight_decay;
    double grad_scale; /* 1 / (loss scale * micro-batches) times the clipping factor */
    double clip_value; /* 0: no clamp */
    double trust;      /* factor on gradient and decay (LARS); 0: none */
    bool nesterov;
    bool first_step; /* the momentum buffer holds nothing yet: it becomes the gradient */
} lvni_kernels_flat_sgd_params;

/* g = trust * (g + weight_decay * w); buf = momentum * buf + (1 - dampening) * g; w -= lr *
 * (nesterov ? g + momentum * buf : buf). momentum_buffer NULL: plain descent. */
void lvni_kernels_flat_sgd(float *w, const float *g, float *momentum_buffer, int64_t n,
                           const lvni_kernels_flat_sgd_params *p);

typedef struct lvni_kernels_flat_adamw_params {
    double lr, beta1, beta2, eps, weight_decay;
    double correction1, correction2; /* 1 - beta^t, t from 1 (lvni_core_pow) */
    double grad_scale, clip_value;   /* as above */
    /* true: AdamW (w shrinks by lr * weight_decay); false: Adam (decay joins g) */
    bool decoupled;
} lvni_kernels_flat_adamw_params;

/* Loshchilov & Hutter 2019, "Decoupled weight decay regularization", algorithm 2 (Adam: Kingma & Ba
 * 2015): w -= lr weight_decay w; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; w -=
 * (lr / correction1) m / (sqrt(v) / sqrt(correction2) + eps). */
void lvni_kernels_flat_adamw(float *w, const float *g, float *m, float *v, int64_t n,
                             const lvni_kernels_flat_adamw_params *p);

/* work(user) once on every thread of the calling context's team, and wait for all. */
void lvni_kernels_flat_team(void (*work)(void *user), void *user);

/* Each of the n numbers becomes the nearest bf16 (ties to even), kept as f32. */
void lvni_kernels_flat_round_bf16(float *w, int64_t n);

#endif
