/* One addition (or minimum, maximum) of two runs of numbers: same bits on every instruction set. */
#ifndef LEVIN_DIST_COMBINE_H
#define LEVIN_DIST_COMBINE_H

#include "dist/comm.h"

bool lvni_dist_combine_has(lvn_dtype dtype);
/* into[i] = a[i] op b[i]; into may be a or b. Integers wrap; of a number and a NaN the NaN is both
 * minimum and maximum. No 16-bit floats. */
void lvni_dist_combine(void *into, const void *a, const void *b, int64_t n, lvn_dtype dtype,
                       lvni_dist_reduce how);
/* LVN_BF16, LVN_F16 */
void lvni_dist_combine_widen(float *into, const void *from, int64_t n, lvn_dtype dtype);
/* rounds to nearest, ties to even */
void lvni_dist_combine_narrow(void *into, const float *from, int64_t n, lvn_dtype dtype);

#endif
