/* Kernels over flat f32 buffers of parameters, gradients and optimizer state, called by optim/, nn/
 * and the gradient merge of the trainer: those of the backend in whose memory the buffers lie. On a
 * device they return before they ran; what fails there becomes the context's error
 * (tensor/device.h). Bits do not depend on the team. Buffers need no alignment and do not overlap.
 */
#ifndef LEVIN_KERNELS_FLAT_H
#define LEVIN_KERNELS_FLAT_H

#include <levin/backend.h>

/* Floats behind one partial sum of a norm. Results depend on it: it never changes. */
enum { LVNI_FLAT_BLOCK = LVN_FLAT_BLOCK };

static inline int64_t lvni_kernels_flat_blocks(int64_t n)
{
    return (n + LVNI_FLAT_BLOCK - 1) / LVNI_FLAT_BLOCK;
}

/* a += b: two gradient sets become one (a node of the tree). */
void lvni_kernels_flat_add(float *a, const float *b, int64_t n);
/* a += t * (b - a): where the two are equal, a stays as it is to the bit. step: NULL, or of the
 * block where a lies, which decides about t. */
void lvni_kernels_flat_lerp(float *a, const float *b, float t, int64_t n,
                            const lvn_step_average *step);
/* partial[i] = sum of g^2 over block i, in f64; lvni_kernels_flat_blocks(n) entries. A value that
 * is not finite makes its block's sum inf or NaN. Of a device's buffer: waits for the sums. Blocks
 * of a larger buffer may be asked for in pieces that start at multiples of LVNI_FLAT_BLOCK. */
void lvni_kernels_flat_block_sumsq(const float *g, int64_t n, double *partial);
/* The sum over blocks in the fixed tree: neighbours first, an odd last block moves up alone.
 * Overwrites partial. 0 for no blocks. */
double lvni_kernels_flat_sum_tree(double *partial, int64_t blocks);

/* Steps of optimizers; the formulas are in levin/backend.h. momentum_buffer NULL: plain descent. */
void lvni_kernels_flat_sgd(float *w, const float *g, float *momentum_buffer, int64_t n,
                           const lvn_flat_sgd *p);
void lvni_kernels_flat_trust(double *trust, double *of_w, double *of_g, int64_t n,
                             const lvn_flat_trust *p);
void lvni_kernels_flat_adamw(float *w, const float *g, float *m, float *v, int64_t n,
                             const lvn_flat_adamw *p);
void lvni_kernels_flat_rmsprop(float *w, const float *g, float *v, float *mean, float *momentum,
                               int64_t n, const lvn_flat_rmsprop *p);
void lvni_kernels_flat_lion(float *w, const float *g, float *m, int64_t n, const lvn_flat_lion *p);
void lvni_kernels_flat_lamb_moments(const float *w, const float *g, float *m, float *v, int64_t n,
                                    double *sums, const lvn_flat_lamb *p);
void lvni_kernels_flat_lamb(float *w, const float *m, const float *v, int64_t n,
                            const lvn_flat_lamb *p);
void lvni_kernels_flat_adafactor(float *w, const float *g, float *row_var, float *col_var,
                                 int64_t n, const lvn_flat_adafactor *p);
/* A micro-batch's contribution to a buffer of n values, and the buffer after a step. */
void lvni_kernels_flat_record(float *record, const float *value, int64_t n, float weight);
void lvni_kernels_flat_apply_record(float *buffer, const float *record, int64_t n,
                                    const lvn_flat_mean *p);
/* Rows that the micro-batches of a step pushed into a queue. */
void lvni_kernels_flat_append(float *queue, float *filled, float *next, const float *record,
                              const lvn_flat_append *p);

/* The step block of a device (levin/backend_step.h), without waiting: sums of squares into memory
 * of the device; a number of one element into a slot there; the decision; a step's end. */
void lvni_kernels_flat_sums_on_device(const float *g, int64_t n, double *sums);
void lvni_kernels_flat_number(double *slot, const lvn_tensor *value);
/* The one element of `value`, where a backward pass begins: number * *weight * *factor, each NULL
 * or in the memory where it lies. */
void lvni_kernels_flat_seed(lvn_tensor *value, double number, const double *weight,
                            const double *factor);
void lvni_kernels_flat_decide(lvn_step_block *block, double *sums, int64_t n, const double *losses,
                              const lvn_step_decision *decision);
void lvni_kernels_flat_finish(lvn_step_block *block);

/* work(user) once on every thread of the calling context's team, and wait for all. */
void lvni_kernels_flat_team(void (*work)(void *user), void *user);

/* Each of the n numbers becomes the nearest bf16 (ties to even), kept as f32. */
void lvni_kernels_flat_round_bf16(float *w, int64_t n);

#endif
