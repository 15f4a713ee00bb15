/* Column sums in fixed blocks of rows (column_sum.h): f32 inside a block, f64 over the blocks. */
#include "kernels/cpu/column_sum.h"

#include "kernels/cpu/scratch.h"

#include <string.h>

enum { BLOCK = 64 }; /* rows; part of the law: changing it changes bits */

static void sum_block(const float *x, int64_t rows, int64_t columns, float *restrict out)
{
    memcpy(out, x, (size_t)columns * sizeof *out);
    for (int64_t r = 1; r < rows; r++) {
        const float *row = x + r * columns;
#pragma omp simd
        for (int64_t c = 0; c < columns; c++) {
            out[c] += row[c];
        }
    }
}

lvn_status lvni_column_sum(const float *x, int64_t rows, int64_t columns, float *out, int team)
{
    const int64_t blocks = (rows + BLOCK - 1) / BLOCK;
    const size_t width = (size_t)columns;
    double *total = lvni_scratch(LVNI_SCRATCH_OWN, width * sizeof *total + (size_t)blocks * width * sizeof(float));
    if (total == NULL) {
        return lvn_last_error()->code;
    }
    float *partial = (float *)(total + columns); /* (blocks, columns) */
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1 && rows * columns > 65536)
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t first = b * BLOCK, left = rows - first;
        sum_block(x + first * columns, left < BLOCK ? left : BLOCK, columns, partial + b * columns);
    }
    memset(total, 0, width * sizeof *total);
    for (int64_t b = 0; b < blocks; b++) {
        for (int64_t c = 0; c < columns; c++) {
            total[c] += (double)partial[b * columns + c];
        }
    }
    for (int64_t c = 0; c < columns; c++) {
        out[c] = (float)total[c];
    }
    return LVN_OK;
}
