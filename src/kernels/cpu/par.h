/* Work of an own kernel spread over the team of the calling thread's context. Bits never depend on
 * the split: a range function computes each item alone, and sums are taken over items whose size is
 * fixed (see LVNI_CPU_SUM_BLOCK). */
#ifndef LEVIN_KERNELS_CPU_PAR_H
#define LEVIN_KERNELS_CPU_PAR_H

#include "tensor/ctx.h"
#include "tensor/tensor.h"

#include <stdint.h>

/* Elements (one long row) and rows (many columns) behind one partial sum. Results depend on them:
 * they never change. */
enum { LVNI_CPU_SUM_BLOCK = 1024, LVNI_ROW_BLOCK = 256 };

typedef void (*lvni_cpu_range_fn)(const void *job, int64_t begin, int64_t end);

/* fn over [0, n), cut at multiples of `grain` where cut at all; work: elements behind one item.
 * Runs in the calling thread when the whole is small. Blocks until all is done. */
void lvni_cpu_par(int64_t n, int64_t grain, int64_t work, lvni_cpu_range_fn fn, const void *job);
/* The same with denormal operands as they are (LVNI_FP_EXACT), for what compares and chooses: the
 * sign of 1e-38 is 1. */
void lvni_cpu_par_in(lvni_tensor_fp_mode mode, int64_t n, int64_t grain, int64_t work,
                     lvni_cpu_range_fn fn, const void *job);

/* reduce.c: out (C) f32 = sums of x (..., C), f32 or bf16, over all axes but the last: a bias's
 * gradient. */
lvn_status lvni_cpu_sum_rows(const lvn_tensor *x, lvn_tensor *out);

static inline int64_t lvni_cpu_div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

#endif
