/* Along one axis a resize or an average pooling is a sparse matrix: output o is a weighted sum of
 * neighbouring inputs, its taps. The gradient is the transposed matrix, whose taps are neighbours
 * again. Used by resample2d.c. */
#ifndef LEVIN_KERNELS_CPU_TAPS_H
#define LEVIN_KERNELS_CPU_TAPS_H

#include "kernels/cpu/isa.h"
#include "kernels/kernels.h"

/* One axis of a map: forward from `in` to `out` pixels. */
typedef struct lvni_cpu_taps_axis {
    const lvn_resample_attr *attr;
    int side; /* 0: height, 1: width */
    int64_t in, out;
} lvni_cpu_taps_axis;

/* Bytes for the taps of this axis, a multiple of 64. */
size_t lvni_cpu_taps_bytes(const lvni_cpu_taps_axis *axis);
/* The taps, of the transposed map if attr->transposed, in memory of that size. */
lvni_cpu_taps lvni_cpu_taps_make(const lvni_cpu_taps_axis *axis, void *memory);

#endif
