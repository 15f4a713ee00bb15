/* Tables of curves for bf16, whose numbers are only 65536: what the f32 kernel gives for each,
 * rounded where the kernel would round. */
#ifndef LEVIN_KERNELS_CPU_CURVE_TABLE_H
#define LEVIN_KERNELS_CPU_CURVE_TABLE_H

#include "kernels/cpu/isa.h"

/* Elements from which on a table pays even when it has to be made first. */
enum { LVNI_CURVE_NUMBERS = 65536 };

/* f(x) as bf16 for every bf16 x, by its bits; NULL where the kernel is as quick. Made at the first
 * call, kept for the process. */
const uint16_t *lvni_cpu_curve_values(lvni_cpu_unary_id id);
/* f'(k) in f32 for a gradient that is dy f'(k); NULL likewise. */
const float *lvni_cpu_curve_slopes(lvni_cpu_pair_id id);

#endif
