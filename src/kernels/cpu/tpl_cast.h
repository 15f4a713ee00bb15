/* Template (included by tpl_table.h only): f32 from and to bf16 and f16 (core/half.h has the rounding). */
#ifndef LEVIN_KERNELS_CPU_TPL_CAST_H
#define LEVIN_KERNELS_CPU_TPL_CAST_H

#include "core/half.h"
#include "kernels/cpu/tpl_types.h"

static void from_bf16(const uint16_t *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = lvni_bf16_to_f32(x[i]);
    }
}

static void to_bf16(const float *restrict x, uint16_t *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = lvni_f32_to_bf16(x[i]);
    }
}

static void from_f16(const uint16_t *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = lvni_f16_to_f32(x[i]);
    }
}

static void to_f16(const float *restrict x, uint16_t *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = lvni_f32_to_f16(x[i]);
    }
}

#endif
