/* Template (included by tpl_table.h only): buffers of random numbers, and dropout. Normal numbers
 * are those of core/rng.c (Box-Muller in double precision), to the bit: the same operations in the
 * same order, without its branches. */
#ifndef LEVIN_KERNELS_CPU_TPL_RANDOM_H
#define LEVIN_KERNELS_CPU_TPL_RANDOM_H

#include "kernels/cpu/tpl_math.h"

enum { COUNTERS = 64 }; /* at once: 256 words */

static void uniform(float *restrict y, int64_t first, int64_t n, const lvni_core_rng *rng)
{
    uint32_t words[4 * COUNTERS];
    for (int64_t i = 0; i < n; i += 4 * COUNTERS) {
        const int64_t m = n - i < 4 * COUNTERS ? n - i : 4 * COUNTERS;
        philox_words(rng, (uint32_t)((uint64_t)(first + i) / 4), COUNTERS, words);
        for (int64_t j = 0; j < m; j++) {
            y[i + j] = (float)(int32_t)(words[j] >> 8) * 0x1p-24f;
        }
    }
}

static inline double bits_double(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

static inline uint64_t double_bits(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return bits;
}

/* A word as a number: exact. */
static inline double of_word(uint32_t word)
{
    return (double)(int32_t)(word ^ 0x80000000u) + 0x1p31;
}

/* lvni_core_log of 0 < x < 1, no denormal. */
static inline double log_inside(double x)
{
    const uint64_t bits = double_bits(x);
    /* [1, 2) */
    const double m1 = bits_double((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
    /* the exponent: exact */
    const double k1 = bits_double((bits >> 52) | 0x4330000000000000u) - (0x1p52 + 1023.0);
    const double m = m1 > 1.4142135623730951 ? m1 * 0.5 : m1,
                 k = m1 > 1.4142135623730951 ? k1 + 1.0 : k1;
    const double f = m - 1.0, s = f / (2.0 + f), z = s * s;
    double p = 1.0 / 23.0;
    p = p * z + 1.0 / 21.0;
    p = p * z + 1.0 / 19.0;
    p = p * z + 1.0 / 17.0;
    p = p * z + 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    const double h = 0.5 * f * f, r = 2.0 * z * p;
    return k * 0x1.62e42fefa38p-1 - ((h - (s * (h + r) + k * 0x1.ef35793c7673p-45)) - f);
}

/* lvni_core_cos2pi of 0 <= x < 1: both series, of which the quarter chooses one. */
static inline double cos_turn(double x)
{
    const double quarter = (double)(int32_t)(x * 4.0 + 0.5),
                 y = 6.283185307179586 * (x - 0.25 * quarter), z = y * y;
    double c = 1.0 / 6402373705728000.0, s = 1.0 / 355687428096000.0;
    c = 1.0 / 20922789888000.0 - z * c;
    c = 1.0 / 87178291200.0 - z * c;
    c = 1.0 / 479001600.0 - z * c;
    c = 1.0 / 3628800.0 - z * c;
    c = 1.0 / 40320.0 - z * c;
    c = 1.0 / 720.0 - z * c;
    c = 1.0 / 24.0 - z * c;
    c = 0.5 - z * c;
    s = 1.0 / 1307674368000.0 - z * s;
    s = 1.0 / 6227020800.0 - z * s;
    s = 1.0 / 39916800.0 - z * s;
    s = 1.0 / 362880.0 - z * s;
    s = 1.0 / 5040.0 - z * s;
    s = 1.0 / 120.0 - z * s;
    s = 1.0 / 6.0 - z * s;
    const double cosine = 1.0 - z * c, sine = y * (1.0 - z * s);
    const double even = quarter == 2.0 ? -cosine : cosine, odd = quarter == 1.0 ? -sine : even;
    return quarter == 3.0 ? sine : odd;
}

/* Element e takes words 2e and 2e + 1 of the stream. */
static void normal(float *restrict y, int64_t first, int64_t n, double deviation,
                   const lvni_core_rng *rng)
{
    uint32_t words[4 * COUNTERS];
    for (int64_t i = 0; i < n; i += 2 * COUNTERS) {
        const int64_t m = n - i < 2 * COUNTERS ? n - i : 2 * COUNTERS;
        philox_words(rng, (uint32_t)((uint64_t)(first + i) / 2), COUNTERS, words);
        for (int64_t j = 0; j < m; j++) {
            const double radius = (of_word(words[2 * j]) + 0.5) * 0x1p-32,
                         turn = of_word(words[2 * j + 1]) * 0x1p-32;
            y[i + j] =
                (float)(__builtin_sqrt(-2.0 * log_inside(radius)) * cos_turn(turn) * deviation);
        }
    }
}

static void dropout(const float *restrict x, float *restrict y, int64_t first, int64_t n,
                    const lvni_core_rng *rng, float p, float scale)
{
    uint32_t words[4 * COUNTERS];
    for (int64_t i = 0; i < n; i += 4 * COUNTERS) {
        const int64_t m = n - i < 4 * COUNTERS ? n - i : 4 * COUNTERS;
        philox_words(rng, (uint32_t)((uint64_t)(first + i) / 4), COUNTERS, words);
        for (int64_t j = 0; j < m; j++) {
            const float drawn = (float)(int32_t)(words[j] >> 8) * 0x1p-24f;
            const float kept = x[i + j] * scale;
            y[i + j] = drawn >= p ? kept : 0.0f;
        }
    }
}

#endif
