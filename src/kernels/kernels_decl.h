/* Declares the three functions behind each line of ops.def: shape rule, ref kernel, cpu kernel.
 * Included by the files that define them, so that a definition with another signature does not
 * compile, and by op_table.c. */
#ifndef LEVIN_KERNELS_KERNELS_DECL_H
#define LEVIN_KERNELS_KERNELS_DECL_H

#include "kernels/kernels.h"

#define LVNI_OP(name, n_in, n_out, attr_type, flags, sentence)                                     \
    lvn_status lvni_kernels_shape_##name(const lvn_kernel_args *args,                              \
                                         lvni_tensor_desc out[LVN_KERNEL_OUTPUTS]);                \
    lvn_status lvni_ref_##name(const lvn_kernel_args *args);                                       \
    lvn_status lvni_cpu_##name(const lvn_kernel_args *args);
#include "kernels/ops.def"
#undef LVNI_OP

/* Float types that the cpu backend's kernel of an op takes, from its flags. */
#define LVNI_CPU_TYPES(flags)                                                                      \
    (1u << LVN_F32 | (((flags)&LVNI_BF16) != 0 ? 1u << LVN_BF16 : 0u) |                            \
     (((flags)&LVNI_F16) != 0 ? 1u << LVN_F16 : 0u))

/* The cpu backend's kernels over flat buffers: its part of the table, and what the simulated
 * accelerator runs. The stream is not used. */
lvn_status lvni_cpu_flat_add(void *stream, float *a, const float *b, int64_t n);
lvn_status lvni_cpu_flat_lerp(void *stream, float *a, const float *b, float t, int64_t n,
                              const lvn_step_average *step);
lvn_status lvni_cpu_flat_block_sumsq(void *stream, const float *g, int64_t n, double *partial);
lvn_status lvni_cpu_flat_sgd(void *stream, float *w, const float *g, float *momentum_buffer,
                             int64_t n, const lvn_flat_sgd *p);
lvn_status lvni_cpu_flat_trust(void *stream, double *trust, double *of_w, double *of_g, int64_t n,
                               const lvn_flat_trust *p);
lvn_status lvni_cpu_flat_adamw(void *stream, float *w, const float *g, float *m, float *v,
                               int64_t n, const lvn_flat_adamw *p);
lvn_status lvni_cpu_flat_rmsprop(void *stream, float *w, const float *g, float *v, float *mean,
                                 float *momentum, int64_t n, const lvn_flat_rmsprop *p);
lvn_status lvni_cpu_flat_lion(void *stream, float *w, const float *g, float *m, int64_t n,
                              const lvn_flat_lion *p);
lvn_status lvni_cpu_flat_lamb_moments(void *stream, const float *w, const float *g, float *m,
                                      float *v, int64_t n, double *sums, const lvn_flat_lamb *p);
lvn_status lvni_cpu_flat_lamb(void *stream, float *w, const float *m, const float *v, int64_t n,
                              const lvn_flat_lamb *p);
lvn_status lvni_cpu_flat_adafactor(void *stream, float *w, const float *g, float *row_var,
                                   float *col_var, int64_t n, const lvn_flat_adafactor *p);
lvn_status lvni_cpu_flat_round_bf16(void *stream, float *w, int64_t n);
lvn_status lvni_cpu_flat_record(void *stream, float *record, const float *value, int64_t n,
                                float weight);
lvn_status lvni_cpu_flat_apply_record(void *stream, float *buffer, const float *record, int64_t n,
                                      const lvn_flat_mean *p);
lvn_status lvni_cpu_flat_append(void *stream, float *queue, float *filled, float *next,
                                const float *record, const lvn_flat_append *p);
lvn_status lvni_cpu_flat_number(void *stream, double *slot, const void *value, lvn_dtype dtype);
lvn_status lvni_cpu_flat_seed(void *stream, void *value, lvn_dtype dtype, double number,
                              const double *weight, const double *factor);
lvn_status lvni_cpu_flat_decide(void *stream, lvn_step_block *block, double *sums, int64_t n,
                                const double *losses, const lvn_step_decision *decision);
lvn_status lvni_cpu_flat_finish(void *stream, lvn_step_block *block);

#define LVNI_CPU_FLAT                                                                              \
    {                                                                                              \
        .add = lvni_cpu_flat_add, .lerp = lvni_cpu_flat_lerp,                                      \
        .block_sumsq = lvni_cpu_flat_block_sumsq, .sgd = lvni_cpu_flat_sgd,                        \
        .trust = lvni_cpu_flat_trust, .adamw = lvni_cpu_flat_adamw,                                \
        .rmsprop = lvni_cpu_flat_rmsprop, .lion = lvni_cpu_flat_lion,                              \
        .lamb_moments = lvni_cpu_flat_lamb_moments, .lamb = lvni_cpu_flat_lamb,                    \
        .adafactor = lvni_cpu_flat_adafactor, .round_bf16 = lvni_cpu_flat_round_bf16,              \
        .record = lvni_cpu_flat_record, .apply_record = lvni_cpu_flat_apply_record,                \
        .append = lvni_cpu_flat_append, .number = lvni_cpu_flat_number,                            \
        .seed = lvni_cpu_flat_seed, .decide = lvni_cpu_flat_decide, .finish = lvni_cpu_flat_finish \
    }

#endif
