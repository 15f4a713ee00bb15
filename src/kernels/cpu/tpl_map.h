/* Template (included by tpl_table.h only): elementwise kernels. Each element is computed alone. */
#ifndef LEVIN_KERNELS_CPU_TPL_MAP_H
#define LEVIN_KERNELS_CPU_TPL_MAP_H

#include "core/math.h"
#include "kernels/cpu/tpl_curves.h"

/* The larger of the bits of |x| and of those before. */
static inline uint32_t larger_bits(uint32_t before, float x)
{
    const uint32_t bits = float_bits(x) & 0x7fffffffu;
    return bits > before ? bits : before;
}

/* Functions of one element; ops without attributes ignore p0 and p1. */
#define LVNI_UNARY(name, expression)                                                               \
    static void unary_##name(const float *restrict in, float *restrict y, int64_t n, float p0,     \
                             float p1)                                                             \
    {                                                                                              \
        (void)p0;                                                                                  \
        (void)p1;                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const float x = in[i];                                                                 \
            y[i] = (expression);                                                                   \
        }                                                                                          \
    }
#define LVNI_UNARY_ATTR(name, attr_type, first, second, expression) LVNI_UNARY(name, expression)
/* Far elements are rare: a second loop does them where there are any. */
#define LVNI_UNARY_FAR(name, expression, far)                                                      \
    static void unary_##name(const float *restrict in, float *restrict y, int64_t n, float p0,     \
                             float p1)                                                             \
    {                                                                                              \
        uint32_t largest = 0;                                                                      \
        (void)p0;                                                                                  \
        (void)p1;                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const float x = in[i];                                                                 \
            largest = larger_bits(largest, x);                                                     \
            y[i] = (expression);                                                                   \
        }                                                                                          \
        for (int64_t i = 0; largest >= FAR_BITS && i < n; i++) {                                   \
            const float x = in[i];                                                                 \
            y[i] = larger_bits(0, x) >= FAR_BITS ? (far) : y[i];                                   \
        }                                                                                          \
    }
#include "kernels/map.def"

#define LVNI_PAIR(name, expression)                                                                \
    static void pair_##name(const float *restrict in_a, const float *restrict in_b,                \
                            float *restrict y, int64_t n, float p0, float p1)                      \
    {                                                                                              \
        (void)p0;                                                                                  \
        (void)p1;                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const float dy = in_a[i], k = in_b[i];                                                 \
            y[i] = (expression);                                                                   \
        }                                                                                          \
    }
#define LVNI_PAIR_ATTR(name, attr_type, first, second, expression) LVNI_PAIR(name, expression)
#define LVNI_PAIR_FAR(name, expression, far)                                                       \
    static void pair_##name(const float *restrict in_a, const float *restrict in_b,                \
                            float *restrict y, int64_t n, float p0, float p1)                      \
    {                                                                                              \
        uint32_t largest = 0;                                                                      \
        (void)p0;                                                                                  \
        (void)p1;                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const float dy = in_a[i], k = in_b[i];                                                 \
            largest = larger_bits(largest, k);                                                     \
            y[i] = (expression);                                                                   \
        }                                                                                          \
        for (int64_t i = 0; largest >= FAR_BITS && i < n; i++) {                                   \
            const float dy = in_a[i], k = in_b[i];                                                 \
            y[i] = larger_bits(0, k) >= FAR_BITS ? (far) : y[i];                                   \
        }                                                                                          \
    }
#include "kernels/map.def"

/* array with array, array with value, value with array; `get` and `put`: from and to the type in
 * memory */
#define MODE(function, mode, from, get, to, put, at_a, at_b, expression)                           \
    static void function##_##mode(const void *left, const void *right, void *result, int64_t n)    \
    {                                                                                              \
        const from *restrict in_a = left, *restrict in_b = right;                                  \
        to *restrict y = result;                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const float a = get(in_a[at_a]), b = get(in_b[at_b]);                                  \
            y[i] = put(expression);                                                                \
        }                                                                                          \
    }
#define MODES_OF(function, from, get, to, put, expression)                                         \
    MODE(function, vv, from, get, to, put, i, i, expression)                                       \
    MODE(function, vs, from, get, to, put, i, 0, expression)                                       \
    MODE(function, sv, from, get, to, put, 0, i, expression)
#define LVNI_BINARY(name, expression)                                                              \
    MODES_OF(binary_##name, float, , float, , expression)                                          \
    MODES_OF(binary_bf16_##name, uint16_t, lvni_core_bf16_to_f32, uint16_t, lvni_core_f32_to_bf16, \
             expression)
#define LVNI_COMPARE(name, condition) MODES_OF(compare_##name, float, , uint8_t, , condition)
#include "kernels/map.def"

static void accumulate(float *restrict a, const float *restrict b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        a[i] += b[i];
    }
}

static void accumulate_bf16(uint16_t *restrict a, const uint16_t *restrict b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        a[i] = lvni_core_f32_to_bf16(lvni_core_bf16_to_f32(a[i]) + lvni_core_bf16_to_f32(b[i]));
    }
}

#endif
